from __future__ import annotations

import signal

import pytest

from slimexp.sweep.answer import verdict
from slimexp.sweep.jobs import FAILED, FINISHED, KILLED, NOT_RUN, PRUNED, SweepJob


def jobs(*ends):
    return [
        SweepJob(i, str(i), "", status=status, exit_code=code, reason="why.") for i, (status, code) in enumerate(ends)
    ]


@pytest.mark.parametrize(
    ("ends", "signum", "error", "expected"),
    [
        ([(FINISHED, 0), (PRUNED, 0)], 0, None, (FINISHED, 0, None)),
        ([(FINISHED, 0), (KILLED, 137), (FAILED, 3)], 0, None, (FAILED, 137, "2 of 3 jobs failed: 1 (why), 2 (why)")),
        ([(FINISHED, 0), (NOT_RUN, None)], 0, None, (FAILED, 1, "0 of 2 jobs failed: ")),
        ([(KILLED, 143)], signal.SIGTERM, None, (KILLED, 143, "stopped by SIGTERM")),
        ([(NOT_RUN, None)], 0, ValueError("no"), (FAILED, 1, "ValueError: no")),
    ],
    ids=["done", "failed", "left", "stopped", "error"],
)
def test_what_a_sweep_comes_to(ends, signum, error, expected):
    assert verdict(jobs(*ends), signum, error) == expected
