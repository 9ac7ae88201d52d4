from __future__ import annotations

import os
import subprocess
import sys

import pytest

from slimexp.tracking import process
from slimexp.tracking.process import Process, this_process


def test_a_name_is_read_back() -> None:
    here = this_process()
    assert here.pid == os.getpid()
    assert Process.parse(str(here)) == here
    for text in ("", "host", "a b c d e", f"{here} more"):
        assert Process.parse(text) is None


def test_who_is_gone() -> None:
    here = this_process()
    assert here.is_gone() is False
    # Its id was given to another process since.
    assert here._replace(start="1").is_gone() is True
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    start = process._start_of(child.pid)
    assert start is not None
    named = here._replace(pid=child.pid, start=start)
    assert named.is_gone() is False
    child.kill()
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert named.is_gone() is True  # Not reaped yet, and yet it is no more.
    child.communicate()
    assert named.is_gone() is True


@pytest.mark.parametrize("part", ["host", "boot", "namespace"])
def test_of_elsewhere_nothing_can_be_told(part: str) -> None:
    assert this_process()._replace(**{part: "other", "start": "1"}).is_gone() is None  # type: ignore[arg-type]
    assert this_process()._replace(**{part: "-", "start": "1"}).is_gone() is None  # type: ignore[arg-type]
