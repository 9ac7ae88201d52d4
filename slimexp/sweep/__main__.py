"""`python -m slimexp.sweep SWEEP_DIR`: the answer of a sweep once more, e.g. by another metric."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from slimexp.errors import UserError
from slimexp.sweep.summary import DIRECTIONS, summarize

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Prints a sweep's table and verdict, and writes its files anew.

    Args:
        arguments: The command line without the program's name.

    Returns:
        The exit code.
    """
    parser = argparse.ArgumentParser(prog="python -m slimexp.sweep", description=__doc__)
    parser.add_argument("sweep_dir", type=Path, help="the sweep's folder, e.g. outputs/sweeps/DATE/TIME")
    parser.add_argument("--metric", help="what decides which job is best, e.g. eval/loss")
    parser.add_argument("--direction", choices=DIRECTIONS, help="whether more or less of it is better")
    options = parser.parse_args(arguments)
    try:
        summary = summarize(options.sweep_dir.absolute(), options.metric, options.direction)
    except UserError as error:
        print(f"slimexp: error: {error}", file=sys.stderr)
        return 1
    except OSError as error:
        print(f"slimexp: error: {options.sweep_dir} cannot be written: {error.strerror or error}.", file=sys.stderr)
        return 1
    if summary is None:
        print(f"slimexp: error: {options.sweep_dir}: has no jobs of a sweep in it.", file=sys.stderr)
        return 1
    return 0 if summary.error is None else 1


if __name__ == "__main__":
    sys.exit(main())
