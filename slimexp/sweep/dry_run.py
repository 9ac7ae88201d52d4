"""A sweep that runs nothing: what would be wrong with which job."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from slimexp.errors import UserError
from slimexp.jobs.starting import tensorflow_notes_to
from slimexp.sweep.plan import PlannedJob

__all__ = ["rehearse"]


def rehearse(planned: Sequence[PlannedJob]) -> int:
    """Checks jobs as far as that can be done without running them, and prints a line on each.

    Args:
        planned: The jobs; those whose settings are wrong have their `error` already.

    Returns:
        The exit code: 1 if anything is wrong with any.
    """
    with tensorflow_notes_to(Path(os.devnull)):
        from slimexp.jobs.dry_run import Rehearsal

    rehearsal = Rehearsal()
    wrong = 0
    for job in planned:
        error, found = job.error, ""
        if error is None:
            assert job.config is not None
            try:
                found = rehearsal.check(job.config)
            except UserError as failure:
                error = str(failure)
            except Exception as failure:  # Of code that it was given; the other jobs are to be checked as well.
                error = f"unexpected {type(failure).__name__}: {failure}"
        wrong += error is not None
        done = f"  {'wrong' if error is not None else 'ok'}"
        text = error if error is not None else found
        print(f"{job.number:>4}  {job.name}{done}: " + text.replace("\n", "\n      "), flush=True)
    count = f"{len(planned)} job{'s' if len(planned) != 1 else ''}"
    print(f"Dry run: {count}, {len(planned) - wrong} in order, {wrong} wrong. Nothing was run.", flush=True)
    return 1 if wrong else 0
