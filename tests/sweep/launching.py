"""Starts sweeps of `odd_jobs` as a user does: real processes, from a folder of their own."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest


class Launched:
    """What one command left: its exit code, its output, and the sweep's folder."""

    def __init__(self, folder: Path, returncode: int, stdout: str, stderr: str) -> None:
        self.folder, self.returncode, self.stdout, self.stderr = folder, returncode, stdout, stderr

    @property
    def dir(self) -> Path:
        return sweep_dirs(self.folder)[-1]

    @property
    def record(self) -> dict[str, Any]:
        return dict(json.loads((self.dir / "sweep.json").read_text(encoding="utf-8")))

    @property
    def statuses(self) -> list[str]:
        return [job["status"] for job in self.record["jobs"]]


def sweep_dirs(folder: Path) -> list[Path]:
    return sorted(path.parent for path in folder.glob("outputs/sweeps/*/*/sweep.json"))


def starts(folder: Path, number: int) -> int:
    """Returns how often a job was started."""
    path = sweep_dirs(folder)[-1] / str(number) / "starts.txt"
    return len(path.read_text(encoding="utf-8").splitlines()) if path.exists() else 0


def command(folder: Path, *overrides: str, tracking: str = "none") -> list[str]:
    shutil.copy(Path(__file__).with_name("odd_jobs.py"), folder / "odd_jobs.py")
    return [sys.executable, "-m", "slimexp", "-m", "job._target_=odd_jobs.run", f"tracking={tracking}", *overrides]


def launch(folder: Path, *overrides: str, **options: str) -> Launched:
    """Runs a sweep to its end."""
    done = subprocess.run(
        command(folder, *overrides, **options),
        cwd=folder,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=120,
    )
    return Launched(folder, done.returncode, done.stdout, done.stderr)


def launch_and_signal(folder: Path, *overrides: str, jobs: int = 1, number: int, group: bool) -> Launched:
    """Runs a sweep, and sends a signal once some of its jobs are at work; to all of its group, as a terminal does."""
    with (
        open(folder / "out.txt", "w+", encoding="utf-8") as out,
        open(folder / "err.txt", "w+", encoding="utf-8") as err,
    ):
        process = subprocess.Popen(
            command(folder, *overrides),
            cwd=folder,
            env=environment(),
            stdout=out,
            stderr=err,
            start_new_session=True,
            # A suite that a shell runs in the background has it ignored, and so would the sweep.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        )
        wait_for(lambda: len(list(folder.glob("outputs/sweeps/*/*/*/waiting"))) >= jobs, process)
        (os.killpg if group else os.kill)(process.pid, number)
        if number == signal.SIGKILL:
            process.wait(10)
        returncode = process.wait(60)
        texts = []
        for file in (out, err):
            file.seek(0)
            texts.append(file.read())
        return Launched(folder, returncode, *texts)


def wait_for(condition: Any, process: subprocess.Popen[Any] | None = None, secs: float = 60) -> None:
    deadline = time.monotonic() + secs
    while not condition():
        assert time.monotonic() < deadline, "it did not come to pass"
        assert process is None or process.poll() is None, "the sweep ended early"
        time.sleep(0.05)


def put_gpus(folder: Path, count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Puts a command in the place of nvidia-smi, which says that there are so many GPUs."""
    command = folder / "bin" / "nvidia-smi"
    command.parent.mkdir()
    command.write_text(f"#!/bin/sh\n[ $1 = --query-gpu=index ] && seq 0 {count - 1}\n")
    command.chmod(0o755)
    monkeypatch.setenv("PATH", f"{command.parent}:{os.environ['PATH']}")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)


def environment() -> dict[str, str]:
    return {key: value for key, value in os.environ.items() if not key.startswith(("MLFLOW", "HYDRA", "SLIMEXP"))}
