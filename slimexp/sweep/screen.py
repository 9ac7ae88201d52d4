"""What a sweep's own process says before its first job begins: what is wrong, what is odd, and what will be run."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from hydra.core.override_parser.types import Override
from omegaconf import DictConfig

from slimexp.errors import UserError
from slimexp.sweep.identity import sweep_name
from slimexp.sweep.plan import PlannedJob, lists_swept

__all__ = ["announce", "note_others", "refuse_errors", "say", "warn_about_lists"]

_SHOWN = 30


def say(text: str) -> None:
    """Prints a line to stderr, at once."""
    print(text, file=sys.stderr, flush=True)


def warn_about_lists(config: DictConfig, overrides: Sequence[Override]) -> None:
    """Says where a list may have been meant instead of a sweep."""
    for shown in lists_swept(config, overrides):
        key, _, values = shown.partition("=")
        say(
            f"slimexp: warning: {shown}: with -m each of these values becomes a job of its own, though {key} holds "
            f"a list. For one list write {key}=[{values}]."
        )


def refuse_errors(planned: Sequence[PlannedJob]) -> None:
    """Raises one error that names all jobs whose settings are wrong, each message once."""
    wrong: dict[str, list[PlannedJob]] = {}
    for job in planned:
        if job.error is not None:
            wrong.setdefault(job.error, []).append(job)
    if not wrong:
        return
    count = sum(map(len, wrong.values()))
    if len(wrong) == 1 and len(planned) == count:
        raise UserError(next(iter(wrong)))
    lines = [f"job {', '.join(str(job.number) for job in jobs)}: {error}" for error, jobs in wrong.items()]
    raise UserError("\n".join([f"{count} of {len(planned)} jobs cannot be run; none was begun.", *lines]))


def note_others(sweep_dir: Path, numbers: Sequence[int]) -> None:
    """Says which jobs of the folder are none of this command's, if any."""
    if numbers:
        shown = ", ".join(map(str, numbers[:_SHOWN]))
        say(
            f"slimexp: note: {sweep_dir} also holds jobs that are none of this command's "
            f"({shown}{', ...' if len(numbers) > _SHOWN else ''}): they are kept and count for "
            "nothing here. For a folder of its own choose another hydra.sweep.dir."
        )


def announce(
    planned: Sequence[PlannedJob],
    due: Sequence[PlannedJob],
    *,
    keys: Sequence[str],
    earlier_dir: Path | None,
    side_by_side: bool,
) -> None:
    """Shows how many jobs there are, and which.

    Args:
        planned: All of the command.
        due: Those that are to be run.
        keys: The keys that the sweep is over.
        earlier_dir: The sweep's folder where it goes on; None where it begins.
        side_by_side: Whether the launcher may run several at a time.
    """
    config = next(job.config for job in planned if job.config is not None)
    if earlier_dir is None:
        what = sweep_name(config.model.name, keys)
        say(f"Sweep of {len(planned)} job{'s' if len(planned) != 1 else ''}: {what}")
    elif due:
        done = len(planned) - len(due)
        say(f"Going on with the sweep in {earlier_dir}: {done} of {len(planned)} jobs have finished. To run:")
    else:
        say(
            f"All {len(planned)} jobs of this sweep have finished, in {earlier_dir}. To run them again: "
            "sweep.resume=never."
        )
    if due and side_by_side and config.job.name == "benchmark":
        say("slimexp: warning: benchmarks side by side slow each other down; leave hydra/launcher out for them.")
    for job in due[:_SHOWN]:
        say(f"  {job.number}  {job.name}{f'  ({job.why})' if job.why and earlier_dir else ''}")
    if len(due) > _SHOWN:
        say(f"  ... and {len(due) - _SHOWN} more")
