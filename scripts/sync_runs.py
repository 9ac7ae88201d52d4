#!/usr/bin/env python3
"""Sends to MLflow what it has missed of runs: a server was down, a process was killed.

    python scripts/sync_runs.py [RUN_DIR ...|OUTPUT_ROOT] [--tracking-uri URI] [--dry-run]

Says a line for each run; exit code 1 if something could not be sent. An installed slimexp has the same as
`python -m slimexp.tracking.sync`.
"""

from __future__ import annotations

import _venv  # isort: skip  # noqa: F401  # First: it may go on with another interpreter.

import sys

from slimexp.tracking.sync import main

if __name__ == "__main__":
    sys.exit(main())
