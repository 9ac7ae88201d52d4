"""Sweeps: many jobs from one command, each in a process of its own, with one record and one answer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from slimexp.sweep.jobs import RECORD_FILE, Sweep, SweepJob, edit_sweep, read_sweep

if TYPE_CHECKING:
    from slimexp.sweep.summary import Summary, summarize

__all__ = ["RECORD_FILE", "Summary", "Sweep", "SweepJob", "edit_sweep", "read_sweep", "summarize"]


def __getattr__(name: str) -> Any:
    # The summary brings matplotlib and pandas, which the command line does without until a sweep has ended.
    if name in ("Summary", "summarize"):
        from slimexp.sweep import summary

        return getattr(summary, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
