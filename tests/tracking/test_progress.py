from __future__ import annotations

import io
import os
import pty
import re
import subprocess
import sys
from pathlib import Path

import pytest

from slimexp.tracking.progress import Progress


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_lines_in_a_pipe() -> None:
    out, clock = io.StringIO(), Clock()
    with Progress(1000, 0, 32, out=out, clock=clock) as progress:
        clock.now += 30  # Tracing.
        progress.advance(1)
        assert progress.report(1, loss=2.3026) == {}
        for step in range(2, 12):
            clock.now += 0.05
            progress.advance(step, wait_secs=0.0017)
        rates = progress.report(11, loss=0.123, learning_rate=0.01)
    assert rates == pytest.approx({"images_per_sec": 640.0, "step_secs": 0.05, "input_wait_frac": 0.034})
    assert out.getvalue() == (
        "step 1/1000  loss 2.303  ETA -\nstep 11/1000  loss 0.123  lr 0.01  images/s 640  input wait 3 %  ETA 0:49\n"
    )


def test_a_resumed_run_counts_from_its_checkpoint() -> None:
    out, clock = io.StringIO(), Clock()
    with Progress(8000, 50, 2, out=out, clock=clock) as progress:
        for step in (51, 52, 53):
            clock.now += 0.5
            progress.advance(step)
        assert progress.report(53)["images_per_sec"] == pytest.approx(4.0)
        assert progress.report(53) == {}
        for step in range(54, 8001):
            clock.now += 0.5
            progress.advance(step)
        progress.report(8000)
    assert out.getvalue().splitlines() == [
        "step 53/8000  images/s 4  input wait 0 %  ETA 1:06:14",
        "step 53/8000  ETA 1:06:14",
        "step 8000/8000  images/s 4  input wait 0 %  ETA 0:00",
    ]


def test_what_is_paused_does_not_count() -> None:
    out, clock = io.StringIO(), Clock()
    with Progress(10, 0, 10, out=out, clock=clock) as progress:
        with progress.paused():
            clock.now += 9
        clock.now += 5
        progress.advance(1)
        clock.now += 1
        progress.advance(2)
        with progress.paused():
            clock.now += 60
        clock.now += 1
        progress.advance(3)
        assert progress.report(3)["images_per_sec"] == pytest.approx(10.0)


SCRIPT = """
import logging, sys, time
handler = logging.StreamHandler(sys.stderr)
logging.getLogger().addHandler(handler)
from slimexp.tracking.progress import Progress
with Progress(50, 0, 32) as progress:
    for step in range(1, 51):
        time.sleep(0.01)
        progress.advance(step)
        if step % 10 == 0:
            progress.report(step, loss=1 / step, learning_rate=0.01)
        if step == 25:
            logging.warning("a message [of] the log")
            print("a print", file=sys.stderr)
assert handler.stream is sys.stderr is sys.__stderr__
logging.warning("after the bar")
"""


@pytest.mark.parametrize("columns", [100, 60])
def test_the_bar_on_a_terminal(columns: int) -> None:
    text = run_in_terminal(SCRIPT, columns)
    plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text)
    lines = [line.strip() for line in re.split(r"[\r\n]+", plain)]
    assert "a message [of] the log" in lines  # On a line of its own: the bar is not torn.
    assert "a print" in lines
    assert lines[-2] == "after the bar"
    assert re.search(r"step 50/50 ", plain)
    if columns == 100:
        assert re.search(r"step 50/50 .*ETA 0:00 +loss 0.02  lr 0.01  images/s \d+  input wait \d+ %", plain)
    assert "\x1b[?25h" in text  # The cursor is shown again.


def test_a_dumb_terminal_gets_lines() -> None:
    text = run_in_terminal(SCRIPT, 100, TERM="dumb")
    assert "\x1b" not in text
    assert "step 10/50  loss 0.1  lr 0.01" in text


def run_in_terminal(script: str, columns: int, **environment: str) -> str:
    leader, follower = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-c", script],
        stdin=follower,
        stdout=follower,
        stderr=follower,
        cwd=Path(__file__).resolve().parents[2],
        env={**os.environ, "TERM": "xterm-256color", "COLUMNS": str(columns), "LINES": "24", **environment},
    )
    os.close(follower)
    chunks = []
    while True:
        try:
            chunk = os.read(leader, 4096)
        except OSError:  # The other end is closed.
            break
        if not chunk:
            break
        chunks.append(chunk)
    os.close(leader)
    assert process.wait(30) == 0, b"".join(chunks).decode()
    return b"".join(chunks).decode()
