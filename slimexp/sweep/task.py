"""What Hydra's launchers call for each job of a sweep: starts the job's own process, waits for it, notes its end.

So any launcher will do: the jobs come one by one, side by side, or on a cluster, and each gives back its memory, and
ends by itself.
"""

from __future__ import annotations

import contextlib
import datetime
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO

from slimexp.errors import UserError
from slimexp.jobs.lock import BusyError, exclusive
from slimexp.jobs.starting import Outcome, disk_trouble
from slimexp.sweep import stopping
from slimexp.sweep.gpus import own_gpus
from slimexp.sweep.jobs import FAILED, FINISHED, KILLED, PRUNED, RUNNING, SweepJob, first_line, note_job, read_sweep
from slimexp.sweep.process import JOB_FILE, RESULT_FILE, read_result
from slimexp.sweep.screen import say

__all__ = ["outcome_of", "run_task"]

_POLL_SECS = 0.2
# A job whose sweep was killed saves its checkpoint and ends; the same sweep may be started again meanwhile.
_BUSY_SECS = 60
_LOG_FILE = "slimexp.log"


def run_task(sweep_dir: Path, job_dir: Path, *, is_attached: bool, num_gpus: int | None = None) -> None:
    """Runs one job in a process of its own. Never raises for what becomes of it: that is noted in the record.

    Args:
        sweep_dir: The sweep's folder.
        job_dir: The job's, in which it is said what to do.
        is_attached: Whether this is the sweep's own process and runs one job at a time, which then has the screen for
            itself; else each line gets the job's number in front.
        num_gpus: How many GPUs it gets for itself, where there are some; None: it sees those that this process sees.
    """
    directory = os.path.relpath(job_dir, sweep_dir)
    record = read_sweep(sweep_dir)
    job = next(job for job in record.jobs if job.dir == directory)
    if stopping.requested(sweep_dir):
        _leave_nothing(job_dir)
        return
    if not is_attached:
        _leave_ctrl_c_to_the_sweep()
    label = f"Job {job.number}:" if is_attached else f"[{job.number}]"
    say(f"\nJob {job.number}: {job.name}" if is_attached else f"[{job.number}] {job.name}")
    began = time.monotonic()
    note_job(sweep_dir, job.number, status=RUNNING, exit_code=None, reason="", started=_now(), secs=None)
    status, outcome = _run(sweep_dir, job_dir, job, is_attached, num_gpus)
    secs = round(time.monotonic() - began, 1)
    end = {"status": status, "exit_code": outcome.exit_code, "reason": outcome.reason, "secs": secs}
    note_job(sweep_dir, job.number, **end, run_id=_run_id(job_dir))
    if status in (FAILED, KILLED) and record.on_failure == "stop" and not stopping.requested(sweep_dir):
        stopping.request(sweep_dir, stopping.Stop(0))
    say(f"{label} {status} after {secs:,.1f} s{f': {first_line(outcome.reason)}' if outcome.reason else ''}")


def outcome_of(returncode: int, result: Outcome | None) -> tuple[str, Outcome]:
    """Works out how a job ended.

    Args:
        returncode: Its process's, negative after a signal.
        result: What it said itself; None if it came to no such end.

    Returns:
        Its status, and its exit code and reason.
    """
    if result is not None and result.exit_code == 0:
        return FINISHED, result
    if result is not None:
        return (KILLED if result.exit_code > 128 else FAILED), result
    if returncode < 0:
        name = _signal_name(-returncode)
        if -returncode == signal.SIGKILL:
            return KILLED, Outcome(137, "killed by signal 9 (out of memory?)")
        if -returncode in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            return KILLED, Outcome(128 - returncode, f"stopped by {name} before there was anything to save")
        return FAILED, Outcome(128 - returncode, f"crashed by signal {-returncode} ({name})")
    return FAILED, Outcome(returncode or 1, f"its process ended with exit code {returncode} before its work was done")


def _run(sweep_dir: Path, job_dir: Path, job: SweepJob, is_attached: bool, num_gpus: int | None) -> tuple[str, Outcome]:
    try:
        (job_dir / stopping.PRUNE_FILE).unlink(missing_ok=True)
        _wait_until_free(job_dir)
        with own_gpus(num_gpus) as environment:
            prefix = "" if is_attached else f"[{job.number}] "
            returncode, pruned = _run_process(sweep_dir, job_dir, prefix, environment)
    except (OSError, UserError) as error:
        if isinstance(error, OSError) and (trouble := disk_trouble(error, job_dir)):
            return FAILED, Outcome(1, trouble)
        return FAILED, Outcome(1, f"its process could not be started: {error}")
    result = read_result(job_dir)
    status, outcome = outcome_of(returncode, result)
    if pruned and status != FINISHED:
        return PRUNED, Outcome(0, str(pruned.get("reason", "pruned")))
    if result is None:
        with contextlib.suppress(OSError), open(job_dir / _LOG_FILE, "a", encoding="utf-8") as log:
            log.write(f"[{time.strftime('%Y-%m-%d %H:%M:%S')}] ERROR slimexp: {outcome.reason}\n")
    return status, outcome


def _run_process(
    sweep_dir: Path, job_dir: Path, prefix: str, environment: Mapping[str, str]
) -> tuple[int, dict[str, object] | None]:
    """Starts the job's process and passes wishes to stop on to it until it ends."""
    start_dir = json.loads((job_dir / JOB_FILE).read_text(encoding="utf-8"))["start_dir"]
    (job_dir / RESULT_FILE).unlink(missing_ok=True)
    sys.stdout.flush()
    sys.stderr.flush()
    process = subprocess.Popen(
        [sys.executable, "-m", "slimexp.sweep.process", str(job_dir), str(os.getpid())],
        cwd=start_dir,
        # The same modules as here, a user's own included, also where the command is the script `slimexp`.
        env={**os.environ, **environment, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE if prefix else None,
        stderr=subprocess.PIPE if prefix else None,
        # Ctrl-C reaches all processes of a terminal's group; a job is to get it once, from here.
        start_new_session=True,
    )
    with _forwarded(process, prefix):
        sent, pruned = 0, None
        while True:
            with contextlib.suppress(subprocess.TimeoutExpired):
                return process.wait(_POLL_SECS), pruned
            stop = stopping.requested(sweep_dir)
            if stop and stop.signum and stop.count > sent:
                process.send_signal(stop.signum if stop.count < 3 else signal.SIGKILL)
                sent = stop.count
            if pruned is None and (pruned := stopping.prune_request(job_dir)) is not None:
                process.send_signal(signal.SIGTERM)


@contextlib.contextmanager
def _forwarded(process: subprocess.Popen[bytes], prefix: str) -> Iterator[None]:
    """Shows what the process prints, each line with the prefix, as it comes."""
    threads = [
        threading.Thread(target=_forward, args=(source, target, prefix), daemon=True)
        for source, target in ((process.stdout, 1), (process.stderr, 2))
        if source is not None
    ]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        for thread in threads:
            thread.join(2)  # A process of the job's own may hold the pipe open.


def _forward(source: IO[bytes], target: int, prefix: str) -> None:
    for line in source:
        with contextlib.suppress(OSError):
            # In one piece, so that lines of different jobs do not mix.
            os.write(target, prefix.encode() + line.rstrip(b"\n") + b"\n")


def _leave_ctrl_c_to_the_sweep() -> None:
    """Ignores Ctrl-C in a launcher's worker: the sweep's own process is asked as well, and asks the jobs to stop.

    For good: a worker that ends between two jobs would look to its launcher as if it had crashed.
    """
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, signal.SIG_IGN)


def _wait_until_free(job_dir: Path) -> None:
    deadline = time.monotonic() + _BUSY_SECS
    while True:
        try:
            with exclusive(job_dir):
                return
        except BusyError:
            if time.monotonic() > deadline:
                raise
            time.sleep(_POLL_SECS)


def _leave_nothing(job_dir: Path) -> None:
    """Removes what Hydra has written for a job that is not begun."""
    if read_result(job_dir) is not None or any(job_dir.glob("*.json*")):
        return  # It was begun earlier.
    for path in [*job_dir.glob(".hydra/*"), job_dir / ".lock"]:
        path.unlink(missing_ok=True)
    with contextlib.suppress(OSError):
        if not (job_dir / _LOG_FILE).stat().st_size:
            (job_dir / _LOG_FILE).unlink()
    for folder in (job_dir / ".hydra", job_dir):
        with contextlib.suppress(OSError):
            folder.rmdir()


def _run_id(job_dir: Path) -> str | None:
    try:
        run_id = json.loads((job_dir / "run.json").read_text(encoding="utf-8")).get("run_id")
    except (OSError, ValueError, AttributeError):
        return None
    return str(run_id) if run_id else None


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _now() -> str:
    return datetime.datetime.now().astimezone().isoformat(timespec="seconds")
