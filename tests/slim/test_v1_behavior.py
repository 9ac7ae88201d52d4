"""Programs that begin with `tf.compat.v1.disable_v2_behavior()`, as most programs of old do."""

from __future__ import annotations

import subprocess
import sys


def test_most_of_the_library_after_disable_v2_behavior(repository, tmp_path):
    command = [sys.executable, "-m", "tests.slim.v1_behavior", str(tmp_path)]
    done = subprocess.run(command, cwd=repository, capture_output=True, text=True, timeout=250)
    assert done.returncode == 0, done.stderr[-4000:]
