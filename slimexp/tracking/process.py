"""Names a process so that it can be told later if it still runs: after a reboot, from a container, its id reused."""

from __future__ import annotations

import os
import socket
from pathlib import Path
from typing import NamedTuple

__all__ = ["PROCESS_TAG", "Process", "this_process"]

# Its value is `HOST BOOT NAMESPACE PID START`; the host comes first, so that a store can be asked for its runs.
PROCESS_TAG = "slimexp.process"
_UNKNOWN = "-"
_PROC = Path("/proc")


class Process(NamedTuple):
    """A process, named for good.

    Attributes:
        host: The host name.
        boot: The system's boot id; machines and containers may share a name, but not that. `-` where there is none.
        namespace: The number of its namespace of process ids: containers of one machine share its boot id.
        pid: Its id.
        start: When it was started, in the system's clock ticks since boot; an id is given out again, but not with that.
    """

    host: str
    boot: str
    namespace: str
    pid: int
    start: str

    def __str__(self) -> str:
        return " ".join(str(part) for part in self)

    @classmethod
    def parse(cls, text: str) -> Process | None:
        """Reads what `str` wrote; None if it is something else."""
        parts = text.split(" ")
        if len(parts) != 5 or not parts[3].isdecimal():
            return None
        return cls(parts[0], parts[1], parts[2], int(parts[3]), parts[4])

    def is_gone(self) -> bool | None:
        """Tells whether the process has ended; None if that cannot be told from here."""
        here = this_process()
        if _UNKNOWN in (self.boot, self.namespace, self.start) or self[:3] != here[:3]:
            return None
        return _start_of(self.pid) != self.start


def this_process() -> Process:
    """Returns the process that calls."""
    host = socket.gethostname().replace(" ", "_") or _UNKNOWN
    return Process(host, _boot_id(), _namespace(), os.getpid(), _start_of(os.getpid()) or _UNKNOWN)


def _boot_id() -> str:
    try:
        return (_PROC / "sys/kernel/random/boot_id").read_text(encoding="ascii").strip() or _UNKNOWN
    except OSError:
        return _UNKNOWN


def _namespace() -> str:
    try:
        return "".join(letter for letter in os.readlink(_PROC / "self/ns/pid") if letter.isdecimal()) or _UNKNOWN
    except OSError:
        return _UNKNOWN


def _start_of(pid: int) -> str | None:
    """Returns when a process was started; None if there is none with this id, or it only waits to be reaped."""
    try:
        text = (_PROC / str(pid) / "stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    # The second field is the program's name in brackets, which may hold blanks and brackets.
    fields = text.rpartition(")")[2].split()
    return None if len(fields) < 20 or fields[0] in "ZX" else fields[19]
