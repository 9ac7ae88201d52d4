from __future__ import annotations

import math
import os
import subprocess
import sys
import time
import types
from pathlib import Path
from typing import Any

import pytest

from slimexp.errors import UserError
from slimexp.tracking import read_metrics, system_metrics
from slimexp.tracking.system_metrics import SystemSampler, find_psutil
from slimexp.tracking.tracker import Tracker

psutil = pytest.importorskip("psutil")


def start(run_dir: Path, **changes: Any) -> Tracker:
    arguments: dict[str, Any] = {"system_metrics": "true", "system_every_secs": 0.05, **changes}
    return Tracker.start(
        backend="none", uri=None, experiment="x", run_name="r", run_dir=run_dir, tags={}, params={}, **arguments
    )


def test_each_step_has_what_was_seen_before_it_once(tmp_path: Path) -> None:
    tracker = start(tmp_path)
    for step in (10, 20):
        time.sleep(0.15)
        tracker.log_metrics(step, {"train/loss": 1.0})
        time.sleep(0.1)
        tracker.log_metrics(step, {"eval/loss": 1.0})
    tracker.finish()
    rows = read_metrics(tmp_path / "metrics.jsonl")
    with_system = [row for row in rows if "system/cpu_percent" in row.metrics]
    assert [(row.step, "train/loss" in row.metrics) for row in with_system] == [(10, True), (20, True)]
    values = {key.removeprefix("system/"): v for key, v in with_system[0].metrics.items() if key.startswith("system/")}
    assert {"process_cpu_cores", "memory_used_bytes", "process_memory_bytes"} <= set(values)
    assert 0 <= values["cpu_percent"] <= 100
    assert 1e6 < values["process_memory_bytes"] < values["memory_used_bytes"] < 1e15
    assert all(math.isfinite(value) and value >= 0 for value in values.values())


def test_a_short_run_has_one_look(tmp_path: Path) -> None:
    tracker = start(tmp_path, system_every_secs=100.0)
    tracker.log_metrics(7, {"a": 1.0})
    tracker.finish()
    rows = read_metrics(tmp_path / "metrics.jsonl")
    assert [row.step for row in rows] == [7, 7]
    assert rows[1].metrics["system/memory_used_bytes"] > 0


def test_a_run_that_goes_on_and_logs_nothing_looks_at_the_step_that_it_went_on_from(tmp_path: Path) -> None:
    start(tmp_path).finish()
    (tmp_path / "metrics.jsonl").unlink()
    start(tmp_path, resume_step=7).finish()
    assert [row.step for row in read_metrics(tmp_path / "metrics.jsonl")] == [7]


def test_rates_are_means_and_amounts_the_highest(monkeypatch: pytest.MonkeyPatch) -> None:
    sampler = SystemSampler(psutil, 100.0)
    looks = [{"cpu_percent": 10.0, "memory_used_bytes": 5.0}, {"cpu_percent": 30.0, "memory_used_bytes": 3.0}]
    monkeypatch.setattr(sampler._machine, "look", lambda: dict(looks.pop(0)))
    sampler._look()
    sampler._look()
    assert sampler.take(1) == {"system/cpu_percent": 20.0, "system/memory_used_bytes": 5.0}
    assert sampler.take(2) == {}
    sampler.stop(2)
    assert not sampler._thread.is_alive()


def test_psutil_is_asked_for(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert find_psutil("false") is None
    assert find_psutil("auto") is psutil
    with pytest.raises(UserError, match=r"tracking.system_metrics=yes is unknown; use auto, true, false"):
        find_psutil("yes")
    monkeypatch.setitem(sys.modules, "psutil", None)  # As if it were not installed.
    assert find_psutil("auto") is None
    with pytest.raises(UserError, match=r"needs the package psutil, .*pip install 'slimexp\[psutil\]'; or set .*=auto"):
        start(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_counter_that_fails_costs_only_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*args: Any) -> Any:
        raise PermissionError("hidden in this container")

    fake = types.SimpleNamespace(**{name: getattr(psutil, name) for name in ("Process", "virtual_memory")})
    fake.cpu_percent = lambda: 50.0
    fake.disk_io_counters = lambda: None  # As on machines without disks.
    fake.net_io_counters = fail
    sampler = SystemSampler(fake, 100.0)
    values = sampler.stop(0)
    assert values["system/cpu_percent"] == 50.0
    assert not [name for name in values if "disk" in name or "network" in name]


def test_gpus_by_nvidia_smi(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    command = tmp_path / "nvidia-smi"
    command.write_text("#!/bin/sh\necho '0, 40, 1024'\necho '1, [N/A], 2048'\necho '2, 7, 1'\n")
    command.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")
    monkeypatch.setitem(sys.modules, "pynvml", None)
    read = system_metrics._gpu_reader()
    expected = {"gpu_0_percent": 40.0, "gpu_0_memory_bytes": 2.0**30, "gpu_1_memory_bytes": 2.0**31}
    assert read() == expected
    assert read() == {}  # Only now and then.
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "GPU-8a6b")
    assert "gpu_2_percent" in system_metrics._gpu_reader()()


def test_gpus_by_nvml(monkeypatch: pytest.MonkeyPatch) -> None:
    nvml = types.SimpleNamespace(
        nvmlInit=lambda: None,
        nvmlDeviceGetCount=lambda: 1,
        nvmlDeviceGetHandleByIndex=lambda number: number,
        nvmlDeviceGetUtilizationRates=lambda handle: types.SimpleNamespace(gpu=12),
        nvmlDeviceGetMemoryInfo=lambda handle: types.SimpleNamespace(used=5),
    )
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setitem(sys.modules, "pynvml", nvml)
    assert system_metrics._gpu_reader()() == {"gpu_0_percent": 12.0, "gpu_0_memory_bytes": 5.0}
    monkeypatch.setitem(sys.modules, "pynvml", None)
    monkeypatch.setattr(system_metrics.shutil, "which", lambda name: None)
    assert system_metrics._gpu_reader()() == {}


def test_it_costs_little_and_keeps_no_process_alive(tmp_path: Path) -> None:
    code = (
        "import sys, time; from pathlib import Path\n"
        "from slimexp.tracking import Tracker\n"
        "tracker = Tracker.start(backend='none', uri=None, experiment='x', run_name='r', run_dir=Path(sys.argv[1]),\n"
        "                        tags={}, params={}, system_metrics='true', system_every_secs=0.05)\n"
        "time.sleep(0.2)\n"
        "cpu, began = time.thread_time(), time.monotonic()\n"
        "for _ in range(20):\n"
        "    tracker._rows._sampler._look()\n"
        "print((time.thread_time() - cpu) / 20)\n"
    )
    root = Path(__file__).resolve().parents[2]
    command = [sys.executable, "-c", code, str(tmp_path)]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, timeout=20, check=True)
    # A look every 10 s: 1 % of a core would be 0.1 s.
    assert float(done.stdout) < 0.02
    assert done.stderr == ""
