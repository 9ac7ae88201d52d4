"""What the machine does while a run is on it: processor, memory, disk, network, GPUs, as metrics named `system/...`.

A thread looks every few seconds; what it saw is added to the next row that the run logs, so that it comes with a step
of the run, once each, and by the same way as all other metrics. Rates and shares are means since the row before,
amounts of memory the highest seen.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import shutil
import subprocess
import threading
import time
from collections.abc import Callable
from typing import Any

from slimexp.errors import UserError

__all__ = ["CHOICES", "SystemSampler", "find_psutil"]

CHOICES = ("auto", "true", "false")
# nvidia-smi takes about 0.1 s of processor time a call, which is 0.3 % of one core at this interval.
_SMI_EVERY_SECS = 30.0
_SMI_QUERY = ("--query-gpu=index,utilization.gpu,memory.used", "--format=csv,noheader,nounits")

_Sample = dict[str, float]


def find_psutil(wanted: str) -> Any:
    """Returns the module psutil if it is wanted, else None.

    Args:
        wanted: `true`, `false`, or `auto` for yes if it is installed.

    Raises:
        UserError: If `wanted` is none of the three, or `true` without psutil.
    """
    if wanted not in CHOICES:
        raise UserError(f"tracking.system_metrics={wanted} is unknown; use {', '.join(CHOICES)}.")
    if wanted == "false":
        return None
    try:
        return importlib.import_module("psutil")
    except ImportError as error:
        if wanted == "auto":
            return None
        raise UserError(
            "tracking.system_metrics=true needs the package psutil, which is not installed: "
            "pip install 'slimexp[psutil]'; or set tracking.system_metrics=auto to do without where it is missing."
        ) from error


class SystemSampler:
    """Looks at the machine in a thread of its own, which keeps no process alive."""

    def __init__(self, psutil: Any, every_secs: float) -> None:
        """Starts the thread.

        Args:
            psutil: The module.
            every_secs: How often it looks.
        """
        self._every_secs = every_secs
        self._machine = _Machine(psutil)
        self._read_gpus = _gpu_reader()
        self._lock = threading.Lock()
        self._sums: dict[str, float] = {}
        self._counts: dict[str, int] = {}
        self._last_step: int | None = None
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="system-sampler", daemon=True)
        self._thread.start()

    def take(self, step: int) -> _Sample:
        """Returns what was seen since it was asked last, by metric; empty if nothing was, or the step had its share."""
        with self._lock:
            if not self._counts or (self._last_step is not None and step <= self._last_step):
                return {}
            self._last_step = step
            sums, counts = self._sums, self._counts
            self._sums, self._counts = {}, {}
        return {f"system/{name}": total / counts[name] for name, total in sums.items()}

    def stop(self, step: int) -> _Sample:
        """Ends the thread; returns a last look if `take` has never returned any, so that a short run has one too.

        Args:
            step: The last one of the run.
        """
        self._stopped.set()
        self._thread.join(2)
        if self._last_step is not None or self._thread.is_alive():
            return {}
        self._look()
        return self.take(step)

    def _run(self) -> None:
        while not self._stopped.wait(self._every_secs):
            self._look()

    def _look(self) -> None:
        # A counter that is missing, or a container that hides one, costs that value and nothing else.
        sample = self._machine.look()
        with contextlib.suppress(Exception):
            sample.update(self._read_gpus())
        with self._lock:
            for name, value in sample.items():
                if name.endswith("_bytes"):
                    self._sums[name], self._counts[name] = max(self._sums.get(name, 0.0), value), 1
                else:
                    self._sums[name] = self._sums.get(name, 0.0) + value
                    self._counts[name] = self._counts.get(name, 0) + 1


class _Machine:
    """Turns psutil's counters into rates."""

    def __init__(self, psutil: Any) -> None:
        self._psutil = psutil
        self._process = psutil.Process()
        self._before = self._counters()
        self._before_at = time.monotonic()
        psutil.cpu_percent()  # Counts from the call before.

    def look(self) -> _Sample:
        counters, now = self._counters(), time.monotonic()
        secs = max(now - self._before_at, 1e-3)
        sample = {
            name: max(value - self._before[name], 0.0) / secs
            for name, value in counters.items()
            if name in self._before
        }
        self._before, self._before_at = counters, now
        with contextlib.suppress(Exception):
            sample["cpu_percent"] = float(self._psutil.cpu_percent())
        with contextlib.suppress(Exception):
            memory = self._psutil.virtual_memory()
            sample["memory_used_bytes"] = float(memory.total - memory.available)
        with contextlib.suppress(Exception):
            sample["process_memory_bytes"] = float(self._process.memory_info().rss)
        return sample

    def _counters(self) -> _Sample:
        counters: _Sample = {}
        with contextlib.suppress(Exception):
            times = self._process.cpu_times()
            counters["process_cpu_cores"] = times.user + times.system  # Seconds each second: cores at work.
        with contextlib.suppress(Exception):
            disk = self._psutil.disk_io_counters()
            if disk is not None:
                counters["disk_read_bytes_per_sec"] = float(disk.read_bytes)
                counters["disk_written_bytes_per_sec"] = float(disk.write_bytes)
        with contextlib.suppress(Exception):
            network = self._psutil.net_io_counters()
            if network is not None:
                counters["network_received_bytes_per_sec"] = float(network.bytes_recv)
                counters["network_sent_bytes_per_sec"] = float(network.bytes_sent)
        return counters


def _gpu_reader() -> Callable[[], _Sample]:
    """Returns what reads the GPUs' load and memory: NVIDIA's library if its Python package is there, or its command."""
    visible = _visible_gpus()
    with contextlib.suppress(Exception):
        nvml: Any = importlib.import_module("pynvml")
        nvml.nvmlInit()
        count = range(nvml.nvmlDeviceGetCount())
        handles = {i: nvml.nvmlDeviceGetHandleByIndex(i) for i in count if visible is None or i in visible}

        def read_nvml() -> _Sample:
            sample: _Sample = {}
            for number, handle in handles.items():
                sample[f"gpu_{number}_percent"] = float(nvml.nvmlDeviceGetUtilizationRates(handle).gpu)
                sample[f"gpu_{number}_memory_bytes"] = float(nvml.nvmlDeviceGetMemoryInfo(handle).used)
            return sample

        return read_nvml
    command = shutil.which("nvidia-smi")
    if command is None:
        return dict
    return _SmiReader(command, visible).read


class _SmiReader:
    """Asks nvidia-smi, now and then."""

    def __init__(self, command: str, visible: frozenset[int] | None) -> None:
        self._command = command
        self._visible = visible
        self._next_at = 0.0

    def read(self) -> _Sample:
        if time.monotonic() < self._next_at:
            return {}
        self._next_at = time.monotonic() + _SMI_EVERY_SECS
        done = subprocess.run(
            [self._command, *_SMI_QUERY],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=10,
            check=True,
        )
        sample: _Sample = {}
        for line in done.stdout.splitlines():
            number, *fields = (field.strip() for field in line.split(","))
            if self._visible is not None and int(number) not in self._visible:
                continue
            for name, field, unit in zip(("percent", "memory_bytes"), fields, (1, 1 << 20), strict=True):
                with contextlib.suppress(ValueError):  # "[N/A]" where a GPU does not tell.
                    sample[f"gpu_{number}_{name}"] = float(field) * unit
        return sample


def _visible_gpus() -> frozenset[int] | None:
    """Returns the numbers of the GPUs that this process may use; None means all, or that they are not named so."""
    wanted = os.environ.get("CUDA_VISIBLE_DEVICES")
    if wanted is None:
        return None
    numbers = [part.strip() for part in wanted.split(",") if part.strip()]
    return frozenset(map(int, numbers)) if all(number.isdecimal() for number in numbers) else None
