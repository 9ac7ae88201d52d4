"""Which GPUs a job of a sweep gets, where several jobs run side by side on one machine.

TensorFlow takes every GPU that it sees, so each job's process is shown its own alone. Which are taken is known by
locks, which the kernel gives back with the process that held them, whatever its end; other sweeps on the machine see
them too.
"""

from __future__ import annotations

import contextlib
import fcntl
import itertools
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

from slimexp.errors import UserError

__all__ = ["own_gpus", "visible_gpus"]

_VISIBLE, _ORDER = "CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER"
_ASK_SECS = 30


def visible_gpus() -> list[str]:
    """Returns the GPUs that this process may use, as `CUDA_VISIBLE_DEVICES` or nvidia-smi number them."""
    named = os.environ.get(_VISIBLE)
    if named is not None:
        # As CUDA reads it: the first name that there cannot be hides itself and all behind it.
        return list(itertools.takewhile(lambda name: name not in ("", "-1"), map(str.strip, named.split(","))))
    command = shutil.which("nvidia-smi")
    if command is None:
        return []
    try:
        done = subprocess.run(
            [command, "--query-gpu=index", "--format=csv,noheader"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_ASK_SECS,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return []  # The command without a driver that works.
    return [line.strip() for line in done.stdout.splitlines() if line.strip().isdecimal()]


@contextlib.contextmanager
def own_gpus(count: int | None, folder: Path | None = None) -> Iterator[dict[str, str]]:
    """Keeps GPUs for a job, those with the fewest jobs on them.

    Args:
        count: How many, 1 or more; None: nothing is kept or changed.
        folder: Where the locks are; by default one of the user's for the whole machine.

    Yields:
        The environment variables that show a process these alone; nothing where there are no GPUs.

    Raises:
        UserError: If there are some, but fewer.
    """
    there = visible_gpus() if count is not None else []
    if count is None or not there:
        yield {}
        return
    if len(there) < count:
        raise UserError(
            f"sweep.gpus_per_job={count}: there {'is 1 GPU' if len(there) == 1 else f'are {len(there)} GPUs'} that may "
            f"be used ({', '.join(there)}). Ask for as many or fewer."
        )
    folder = folder or Path(tempfile.gettempdir()) / f"slimexp-gpus-{os.getuid()}"
    folder.mkdir(parents=True, exist_ok=True)
    with contextlib.ExitStack() as held:
        taken: list[str] = []
        for _ in range(count):
            taken.append(_take([gpu for gpu in there if gpu not in taken], folder, held))
        # nvidia-smi counts by the place on the bus, CUDA by speed unless it is told.
        order = {} if _VISIBLE in os.environ else {_ORDER: "PCI_BUS_ID"}
        yield {_VISIBLE: ",".join(taken), **order}


def _take(gpus: list[str], folder: Path, held: contextlib.ExitStack) -> str:
    """Takes the GPU with the fewest jobs on it: each of its jobs holds a place there, the first that was free."""
    for place in itertools.count():
        for gpu in gpus:
            with contextlib.ExitStack() as tried:
                lock = tried.enter_context(open(folder / f"{gpu.replace(os.sep, '_')}.{place}.lock", "a"))
                with contextlib.suppress(BlockingIOError):
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    held.enter_context(tried.pop_all())
                    return gpu
    raise AssertionError
