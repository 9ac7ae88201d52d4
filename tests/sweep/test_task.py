from __future__ import annotations

import pytest

from slimexp.jobs.starting import Outcome
from slimexp.sweep.jobs import FAILED, FINISHED, KILLED
from slimexp.sweep.task import first_line, outcome_of


@pytest.mark.parametrize(
    ("returncode", "result", "status", "exit_code", "reason"),
    [
        (0, Outcome(), FINISHED, 0, ""),
        # What the job said before it was torn down counts, not how that went.
        (-6, Outcome(), FINISHED, 0, ""),
        (1, Outcome(1, "no"), FAILED, 1, "no"),
        (143, Outcome(143, "stopped by SIGTERM"), KILLED, 143, "stopped by SIGTERM"),
        (0, None, FAILED, 1, "its process ended with exit code 0 before its work was done"),
        (3, None, FAILED, 3, "its process ended with exit code 3 before its work was done"),
        (-9, None, KILLED, 137, "killed by signal 9 (out of memory?)"),
        (-15, None, KILLED, 143, "stopped by SIGTERM before there was anything to save"),
        (-11, None, FAILED, 139, "crashed by signal 11 (SIGSEGV)"),
        (-64, None, FAILED, 192, "crashed by signal 64 (SIGRTMAX)"),
    ],
)
def test_how_a_job_ended(returncode, result, status, exit_code, reason):
    assert outcome_of(returncode, result) == (status, Outcome(exit_code, reason))


def test_the_line_that_only_announces_the_next_takes_it_along():
    assert first_line("a\nb") == "a"
    assert first_line("3 lines are wrong:\n  line 1\n  line 2") == "3 lines are wrong: line 1"
    assert first_line("") == ""
