"""Flags as TF-Slim's and TensorFlow's scripts have them, so that commands of old work as they are. No TensorFlow."""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from slimexp.errors import UserError
from slimexp.jobs.starting import tensorflow_notes_to

__all__ = ["FlagParser", "quiet_start", "run_script"]

_TRUE, _FALSE = ("true", "t", "1", "yes", "y"), ("false", "f", "0", "no", "n")


class FlagParser(argparse.ArgumentParser):
    """Takes `--flag=value`, `--flag value`, and for truth values also `--flag` and `--noflag`."""

    def __init__(self, description: str) -> None:
        super().__init__(description=description, allow_abbrev=False)
        self._needless: list[str] = []

    def flag(self, name: str, text: str, **options: object) -> None:
        """Adds a flag with a value."""
        self.add_argument(f"--{name}", help=text, **options)  # type: ignore[arg-type]

    def switch(self, name: str, text: str, *, default: bool = False) -> None:
        """Adds a truth value."""
        shown = str(default).lower()
        help_ = f"{text} ({shown})"
        self.add_argument(
            f"--{name}", help=help_, nargs="?", const=True, default=default, type=_truth, metavar="true|false"
        )
        self.add_argument(f"--no{name}", dest=name, action="store_false", help=argparse.SUPPRESS)

    def needless(self, *names: str) -> None:
        """Adds flags of old that there is no need for any more: given, they are named and have no effect."""
        for name in names:
            self.add_argument(f"--{name}", help=argparse.SUPPRESS, nargs="?", default=None, const="")
        self._needless += names

    def parse(self, argv: Sequence[str]) -> argparse.Namespace:
        """Parses a command line; what is not needed is said."""
        flags = self.parse_args(argv)
        given = [name for name in self._needless if getattr(flags, name)]
        if given:
            print(f"Not needed, and left out: {', '.join(f'--{name}' for name in given)}.", file=sys.stderr)
        return flags


@contextlib.contextmanager
def quiet_start() -> Iterator[None]:
    """Keeps off the screen what TensorFlow says of the machine while it is imported."""
    with tensorflow_notes_to(Path(os.devnull)):
        yield


def run_script(main: Callable[[Sequence[str]], None]) -> None:
    """Runs a script with the command line; what a user can mend ends in one message and exit code 1."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    try:
        main(sys.argv[1:])
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(1)


def _truth(text: str) -> bool:
    word = text.lower()
    if word not in _TRUE + _FALSE:
        raise argparse.ArgumentTypeError(f"{text!r} is neither true nor false")
    return word in _TRUE
