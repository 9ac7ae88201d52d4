"""Jobs as processes of their own, and the checkpoints that they leave."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.jobs.conftest import TINY, Job
from tests.jobs.tiny import MODEL

__all__ = ["ENDLESS", "SMALL", "checkpoint_bytes", "processes", "wait_for_step"]

SMALL = [*TINY, *MODEL, "evaluation.batch_size=120"]
ENDLESS = ["trainer.max_steps=100000", "trainer.save_every_steps=20", "trainer.log_every_steps=5"]


def checkpoint_bytes(run_dir: Path, step: int) -> bytes:
    prefix = run_dir / "checkpoints" / f"model.ckpt-{step}"
    return b"".join(Path(f"{prefix}{part}").read_bytes() for part in (".index", ".data-00000-of-00001"))


def processes(job: Job, *overrides: str) -> subprocess.Popen[str]:
    """Starts a job as the command line does, with its output in one stream."""
    job.prepare_store()
    arguments = [f"run_dir={job.run_dir}", f"tracking.uri={job.uri}", f"dataset.cache_dir={job.cache_dir}", *overrides]
    return subprocess.Popen(
        [sys.executable, "-m", "slimexp", *arguments],
        cwd=job.folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def wait_for_step(process: subprocess.Popen[str], step: int) -> None:
    assert process.stdout is not None
    for line in process.stdout:
        if line.startswith(f"step {step}/"):
            return
    raise AssertionError("the run ended before")
