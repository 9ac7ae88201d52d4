"""The process of one job of a sweep: `python -m slimexp.sweep.process JOB_DIR`.

What it is to do stands in `JOB_DIR/.hydra/job.json`; when it can, it leaves how it ended in `result.json` beside that.
"""

from __future__ import annotations

import contextlib
import ctypes
import dataclasses
import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

from hydra.core.utils import configure_log
from omegaconf import OmegaConf

from slimexp.config import Config
from slimexp.jobs.starting import Outcome, disk_trouble, end_process, report, start
from slimexp.sweep.membership import Membership, join
from slimexp.validation import validate

__all__ = ["JOB_FILE", "RESULT_FILE", "main", "read_result", "write_job"]

JOB_FILE, RESULT_FILE = ".hydra/job.json", ".hydra/result.json"
_PR_SET_PDEATHSIG = 1


def write_job(job_dir: Path, content: dict[str, Any]) -> None:
    """Writes what a job's process is to do."""
    _write(job_dir / JOB_FILE, content)
    (job_dir / RESULT_FILE).unlink(missing_ok=True)


def read_result(job_dir: Path) -> Outcome | None:
    """Returns how a job said that it ended; None if it could not say."""
    try:
        return Outcome(**json.loads((job_dir / RESULT_FILE).read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        return None


def main(arguments: list[str]) -> int:
    """Runs the job whose folder is named and returns its exit code."""
    job_dir = Path(arguments[0])
    _end_with_parent(int(arguments[1]))
    content = json.loads((job_dir / JOB_FILE).read_text(encoding="utf-8"))
    job = content["job"]
    # As the command that this job alone would be, for its record.
    sys.argv = [content["program"], *content["overrides"]]
    verbose = content["verbose"]
    configure_log(
        OmegaConf.create(content["logging"]), OmegaConf.create(verbose) if isinstance(verbose, list) else verbose
    )
    join(Membership(**job))

    def make_config() -> Config:
        return validate(OmegaConf.create(content["config"]), start_dir=content["start_dir"], run_dir=job_dir)

    outcome = start(
        make_config,
        content["overrides"],
        job_dir,
        go_on="the command of the sweep again, which goes on with what is missing",
        show_traceback=True,
    )
    try:
        _write(job_dir / RESULT_FILE, dataclasses.asdict(outcome))
    except OSError as error:
        # Without it the job counts as failed: how it ended is then for its own record to tell.
        report(disk_trouble(error, job_dir) or error)
        return outcome.exit_code or 1
    return outcome.exit_code


def _write(path: Path, content: dict[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_suffix(".tmp")
    try:
        temporary.write_text(json.dumps(content, ensure_ascii=False), encoding="utf-8", errors="surrogatepass")
        temporary.replace(path)
    except OSError:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise


def _end_with_parent(parent: int) -> None:
    """Asks Linux for a SIGTERM when the process that waits for this one is gone, as after a SIGKILL."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
        if os.getppid() != parent:  # It was gone before that.
            os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    end_process(main(sys.argv[1:]))
