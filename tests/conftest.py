"""What several test modules share."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

# TensorFlow's start-up notes would bury the failures; set before anything imports it.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
REPOSITORY = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="session")
def repository() -> Path:
    """The checkout's root."""
    return REPOSITORY
