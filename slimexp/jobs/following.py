"""Waits for the checkpoints of a run that is training in another process, without getting in its way."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from slimexp.errors import UserError
from slimexp.tracking.record import RECORD_FILE
from slimexp.tracking.run import METRICS_FILE
from slimexp.training.checkpoint_watch import find_checkpoints

__all__ = ["follow", "run_has_ended"]

_log = logging.getLogger("slimexp")
_POLL_SECS = 1.0
# A run that was killed says so nowhere; one that lives holds its lock and goes on writing metrics.
_SILENT_SECS = 30.0


def follow(
    folder: Path,
    run_dir: Path | None,
    *,
    timeout_secs: float | None,
    check_stop: Callable[[], None],
    poll_secs: float = _POLL_SECS,
) -> Iterator[tuple[int, str]]:
    """Yields the checkpoints of a folder, each once, as they come.

    Args:
        folder: Where they are written; it need not be there yet.
        run_dir: The run that writes them; None: nobody can say when that has ended.
        timeout_secs: Ends after so long without a new one; None: never.
        check_stop: Called at every look; what it raises ends the wait.
        poll_secs: How often to look.

    Yields:
        Step and prefix; those that are there together by rising step.

    Raises:
        UserError: If nothing came within `timeout_secs`, and nothing before.
    """
    seen: set[str] = set()
    since = time.monotonic()
    said = False
    while True:
        # Asked first: what is there when the run has ended is all that will come.
        ended = run_dir is not None and run_has_ended(run_dir)
        fresh = [(step, prefix) for step, prefix in find_checkpoints(folder) if prefix not in seen]
        for step, prefix in fresh:
            seen.add(prefix)
            yield step, prefix
        if fresh:
            since, said = time.monotonic(), False
            continue
        if ended:
            _say_how_it_ended(run_dir)
            return
        waited = time.monotonic() - since
        if timeout_secs is not None and waited >= timeout_secs:
            text = f"no new checkpoint in {folder} for {timeout_secs:g} s (evaluation.timeout_secs)"
            if not seen:
                raise UserError(f"evaluation.follow=true: {text}, and none before. Is this where the run saves them?")
            _log.warning("Not waiting any longer: %s.", text)
            return
        if not said:
            _log.info("Waiting for the next checkpoint in %s. Ctrl-C ends this.", folder)
            said = True
        check_stop()
        time.sleep(poll_secs)


def _say_how_it_ended(run_dir: Path | None) -> None:
    status = _status(run_dir) if run_dir is not None else None
    if status == "RUNNING":
        _log.warning(
            "The run in %s was killed: no process holds it, and it has been silent for a while. To let it go on, give "
            "its command again with that run_dir.",
            run_dir,
        )
    elif status is not None:
        _log.info("The run in %s has ended: %s.", run_dir, status)


def run_has_ended(run_dir: Path, *, silent_secs: float = _SILENT_SECS) -> bool:
    """Tells whether a run's process is gone, without touching its lock.

    It has ended if its record says so. A run that was killed by force still counts as running there: it has ended if
    nobody holds its lock and its metrics have not grown for a while.
    """
    status = _status(run_dir)
    if status not in (None, "RUNNING"):
        return True
    locked = _is_locked(run_dir / ".lock")
    return not locked and _silent_secs(run_dir) > (silent_secs if locked is not None else 20 * silent_secs)


def _status(run_dir: Path) -> str | None:
    try:
        return json.loads((run_dir / RECORD_FILE).read_text(encoding="utf-8")).get("status")
    except (OSError, ValueError, AttributeError):
        return None


def _silent_secs(run_dir: Path) -> float:
    times = [path.stat().st_mtime for name in (METRICS_FILE, RECORD_FILE, ".lock") if (path := run_dir / name).exists()]
    return time.time() - max(times, default=0.0)


def _is_locked(path: Path) -> bool | None:
    """Tells whether a process of this machine holds a lock on the file; None if the system does not say.

    Trying to get the lock would tell as well, but be in the way of a run that starts at that moment.
    """
    try:
        inode = path.stat().st_ino
        locks = Path("/proc/locks").read_text(encoding="ascii")
    except FileNotFoundError:
        return False if Path("/proc/locks").exists() else None
    except OSError:
        return None
    # 1: FLOCK  ADVISORY  WRITE 1234 08:02:131 0 EOF. Some file systems show another device than stat does.
    return any(f":{inode} " in line for line in locks.splitlines() if " FLOCK " in line)
