"""One process a run folder. Nothing heavy is imported here: `app.py` asks before Hydra writes into the folder."""

from __future__ import annotations

import contextlib
import fcntl
import logging
from collections.abc import Iterator
from pathlib import Path

from slimexp.errors import UserError

__all__ = ["BusyError", "exclusive"]

_log = logging.getLogger(__name__)


class BusyError(UserError):
    """Another process is running in the folder."""


@contextlib.contextmanager
def exclusive(run_dir: Path) -> Iterator[None]:
    """Holds the run's folder for this process alone.

    Raises:
        BusyError: If another process is running in it.
    """
    with open(run_dir / ".lock", "a", encoding="utf-8") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise BusyError(
                f"run_dir={run_dir}: another run is writing there now. Wait for it, or choose another folder."
            ) from None
        except OSError as error:  # Some network file systems have no locks.
            _log.warning("run_dir=%s cannot be locked (%s): do not start a second run there.", run_dir, error)
        yield
