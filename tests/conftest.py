"""What several test modules share."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

# TensorFlow's start-up notes would bury the failures; set before anything imports it.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")


def pytest_collection_finish(session: pytest.Session) -> None:
    """Splits the CPU in two before TensorFlow is first used, for strategies over several devices."""
    if "tensorflow" in sys.modules:
        import tensorflow as tf

        (cpu,) = tf.config.list_physical_devices("CPU")
        tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)


@pytest.fixture(scope="session")
def repository() -> Path:
    """The checkout's root."""
    return Path(__file__).resolve().parent.parent
