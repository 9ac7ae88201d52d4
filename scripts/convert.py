#!/usr/bin/env python3
"""Turns a dataset of one form into another: list file, folder of classes, TFRecord files; see --help.

The same as `python -m slimexp.convert`, which also works where only the package is installed.
"""

import _venv  # isort: skip  # noqa: F401  # First: it may go on with another interpreter.
import sys

from slimexp.convert.command import main

if __name__ == "__main__":
    sys.exit(main())
