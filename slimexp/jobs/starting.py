"""Starts a job whose configuration is known to be valid, and says what went wrong if it fails.

Nothing heavy is imported here: TensorFlow and MLflow come with the job's own module.
"""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import gc
import importlib
import logging
import os
import sys
import threading
import traceback
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NoReturn

from slimexp.config import Config
from slimexp.errors import Interrupted, UserError

__all__ = [
    "Outcome",
    "disk_trouble",
    "end_process",
    "how_to_go_on",
    "open_missing_streams",
    "report",
    "start",
    "tensorflow_notes_to",
    "turn_first_pixels",
    "wants_traceback",
]

_LOG_FILE = "slimexp.log"
# The jobs that keep nothing to go on from. Their folder within the run that they work on is not that run's `run_dir`.
_BEGIN_ANEW = ("benchmark", "check_data", "evaluate", "export", "inspect", "predict")
# What the user mends, and no fault of any program: full, over the quota, read-only, somebody else's.
_DISK_ERRORS = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EPERM})
# As TensorFlow and SQLite put it, whose errors are no OSErrors.
_DISK_TEXTS = ("No space left on device", "Disk quota exceeded", "Read-only file system", "database or disk is full")


@dataclasses.dataclass(frozen=True)
class Outcome:
    """How a job ended.

    Attributes:
        exit_code: 0 when its work was done; as in a shell, 128 + N after signal N.
        reason: Why it ended otherwise.
    """

    exit_code: int = 0
    reason: str = ""


def wants_traceback() -> bool:
    """Tells whether the user has set HYDRA_FULL_ERROR=1; `app.main` sets that variable for its own purposes."""
    return os.environ.get("SLIMEXP_FULL_ERROR", os.environ.get("HYDRA_FULL_ERROR")) == "1"


def start(
    make_config: Callable[[], Config], overrides: Sequence[str], run_dir: Path, *, go_on: str, show_traceback: bool
) -> Outcome:
    """Runs a job; everything that can go wrong is said here, on the screen and, with its traceback, in the log.

    Args:
        make_config: Returns the configuration, or raises a `UserError`.
        overrides: What the command changed, for the run's name.
        run_dir: The run's folder.
        go_on: What to enter to go on after an interruption.
        show_traceback: Whether to show tracebacks on the screen as well: those of faults that no user can mend. With
            HYDRA_FULL_ERROR=1 all of them are shown.

    Returns:
        How it ended.
    """
    try:
        config = make_config()
        with tensorflow_notes_to(run_dir / _LOG_FILE):
            job = _job(config)
        job(config, list(overrides))
    except (Interrupted, KeyboardInterrupt) as error:
        how = str(error) or "interrupted"
        _say(f"slimexp: {how}. To go on: {go_on}")
        return Outcome(128 + getattr(error, "signum", 2), how)
    except UserError as error:
        _keep_traceback(run_dir, error, show=wants_traceback())
        return report(error)
    except SystemExit as error:
        # Whatever its code: a job that has done its work returns.
        _keep_traceback(run_dir, error, show=wants_traceback())
        text = error.code if isinstance(error.code, str) else f"sys.exit({'' if error.code is None else error.code})"
        return report(f"the job was left by {text} before its work was done.", exit_code=_code_of(error))
    except BrokenPipeError as error:
        _keep_traceback(run_dir, error, show=wants_traceback())
        told = "what took this program's output has ended (a pipe is closed), so the job was ended as well"
        return report(f"{told}. To go on: {go_on}")
    except Exception as error:
        trouble = disk_trouble(error, run_dir)
        if trouble is not None:
            _keep_traceback(run_dir, error, show=wants_traceback())
            return report(f"{trouble} Then enter {go_on}.")
        log_file = _keep_traceback(run_dir, error, show=show_traceback or wants_traceback())
        summary = f"unexpected {type(error).__name__}: {error}"
        report(f"{summary}\nThis is a fault of slimexp or of code that it was given. The traceback is in {log_file}.")
        return Outcome(1, summary)
    return Outcome()


def how_to_go_on(job: str, run_dir: Path) -> str:
    """Returns what to enter after a job was stopped, for `start`."""
    if job in _BEGIN_ANEW:
        return f"the same command again; job={job} begins anew"
    return f"the same command with run_dir={run_dir}"


def disk_trouble(error: BaseException, folder: Path) -> str | None:
    """Says what is wrong where an error comes from a disk that is full or that may not be written.

    Args:
        error: Any error; what it was raised from counts as well.
        folder: Where the results go, for an error that names no file.

    Returns:
        The path, what is wrong with it, and the way out; None if the error is about something else.
    """
    seen: BaseException | None = error
    while seen is not None:
        text = next((text for text in _DISK_TEXTS if text.lower() in str(seen).lower()), None)
        if isinstance(seen, OSError) and seen.errno in _DISK_ERRORS:
            text = seen.strerror or text
            path = os.fsdecode(seen.filename) if isinstance(seen.filename, (str, bytes)) else str(folder)
        else:
            path = str(folder)
        if text is not None:
            return (
                f"{path}: cannot be written or read ({text}). Make room or set its permissions right, or choose "
                "another place for the results with output_root=PATH."
            )
        seen = seen.__cause__
    return None


def report(error: object, exit_code: int = 1) -> Outcome:
    """Prints an error and returns it as an outcome."""
    _say(f"slimexp: error: {error}")
    return Outcome(exit_code, str(error))


def _say(text: str) -> None:
    # The terminal may be gone: that is how some jobs are ended.
    with contextlib.suppress(OSError):
        print(text, file=sys.stderr, flush=True)


def open_missing_streams() -> None:
    """Gives a program that was started with its output closed (`>&-`) somewhere to write to."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # Gets the lowest number that is free, which is this one.
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115 (as long as the process lives)


def end_process(exit_code: int) -> NoReturn:
    """Ends this process, also while a thread of ours is in a call of TensorFlow's that takes its time.

    Python would wait for it, up to a minute for the end of a pipeline. A daemon, for which it does not wait, aborts the
    process if it comes back while Python shuts down. Their work is of no use to anybody by now.
    """
    if any(thread.name.startswith("slimexp ") for thread in threading.enumerate()):
        logging.shutdown()
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError, ValueError):
                stream.flush()
        os._exit(exit_code)
    sys.exit(exit_code)


def _code_of(error: SystemExit) -> int:
    return error.code if isinstance(error.code, int) and 0 < error.code < 128 else 1


@contextlib.contextmanager
def tensorflow_notes_to(log_file: Path) -> Iterator[None]:
    """Sends what TensorFlow's C++ parts print while they are imported, and look for a GPU, to a file."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    sys.stderr.flush()
    screen = os.dup(2)
    try:
        with open(log_file, "ab") as file:
            os.dup2(file.fileno(), 2)
            yield
            tensorflow = sys.modules.get("tensorflow")
            if tensorflow is not None:
                tensorflow.config.list_physical_devices()
    finally:
        os.dup2(screen, 2)
        os.close(screen)


def turn_first_pixels(run_dir: str | Path) -> None:
    """Has TensorFlow say into the run's log what it says of the processor at the first transposition of bytes.

    On one without AVX-512 that is a line that looks like an error and is none: another implementation takes over.

    Args:
        run_dir: The run's folder. The devices have to be set up before: TensorFlow is in use from here on.
    """
    import tensorflow as tf

    with tensorflow_notes_to(Path(run_dir) / _LOG_FILE), tf.device("/CPU:0"):
        tf.transpose(tf.zeros([1, 1], tf.uint8))


def _job(config: Config) -> Any:
    """Imports the job's function."""
    module, _, name = config.job._target_.rpartition(".")
    try:
        with _kept_from_the_collector():
            return getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise UserError(f"job._target_={config.job._target_}: cannot be imported: {error}") from error


@contextlib.contextmanager
def _kept_from_the_collector() -> Iterator[None]:
    """Has Python's garbage collector leave out for good what is imported inside.

    TensorFlow and MLflow are 700,000 objects that stay. Going through them took 0.3 s each time: a third of the time
    that importing them takes, and a pause in training now and then.
    """
    if "tensorflow" in sys.modules or not gc.isenabled():  # Imported before: what there is may well go again.
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()


def _keep_traceback(run_dir: Path, error: BaseException, *, show: bool) -> Path:
    """Writes the traceback to the run's log file, and to the screen if it is to be shown."""
    log_file = run_dir / _LOG_FILE
    with contextlib.suppress(OSError), open(log_file, "a", encoding="utf-8") as file:
        traceback.print_exception(error, file=file)
    if show:
        traceback.print_exception(error)
    return log_file
