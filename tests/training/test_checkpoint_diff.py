"""Two checkpoints compared, variable by variable."""

from __future__ import annotations

import numpy as np
import pytest

from slimexp.training.checkpoint_diff import compare
from slimexp.training.checkpoint_file import CheckpointFile
from slimexp.training.checkpoints import Checkpoints


def test_every_way_to_differ(tmp_path):
    nan = np.array([np.nan, 1.0], np.float32)
    first = {
        "a": np.float32([1, 2]),
        "equal": nan,
        "lost": np.float32([1, 2]),
        "number": np.int64(2**60),
        "shape": np.float32([1, 2]),
        "text": np.array([b"x"]),
        "type": np.float32([1, 2]),
        "value": np.float32([1, 2]),
        "half": np.float16([60000, 1]),
    }
    second = {
        "b": np.float32([1, 2]),
        "equal": nan,
        "lost": nan,
        "number": np.int64(2**60 + 512),
        "shape": np.float32([1, 2, 3]),
        "text": np.array([b"y"]),
        "type": np.float64([1, 2]),
        "value": np.float32([1.25, 1.5]),
        "half": np.float16([-60000, 1]),
    }
    files = [CheckpointFile(Checkpoints(tmp_path / str(i)).save(1, v)) for i, v in enumerate((first, second))]
    found = {d.name: (d.status, d.max_abs_difference) for d in compare(*files)}
    assert list(found) == sorted(found)
    assert found.pop("lost") == ("value differs", pytest.approx(np.nan, nan_ok=True))
    assert found == {
        "a": ("only in the first", None),
        "b": ("only in the second", None),
        "equal": ("equal", None),
        "half": ("value differs", 120000.0),
        "number": ("value differs", 512.0),
        "shape": ("shape or type differs", None),
        "text": ("value differs", None),
        "type": ("shape or type differs", None),
        "value": ("value differs", 0.5),
    }
    assert {d.status for d in compare(files[0], files[0])} == {"equal"}
