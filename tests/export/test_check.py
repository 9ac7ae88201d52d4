"""The comparison with evaluation: every part, for one image and for several; what differs is named and refused."""

from __future__ import annotations

import numpy as np
import pytest

from slimexp.errors import UserError
from slimexp.export.check import Sample, compare

SCORES = np.array([[0.1, 0.9], [0.8, 0.2], [0.5, 0.5]])
SAMPLE = Sample(
    np.arange(3, dtype=np.float32).reshape(3, 1, 1, 1), SCORES, ["a.jpg", "b.tif", "c.jpg"], [b"0", None, b"2"], "eval"
)


def of_images(shift=0.0, sizes=None):
    def score(images):
        if sizes is not None:
            sizes.append(len(images))
        return SCORES[images[:, 0, 0, 0].astype(int)] + shift

    return score


def of_bytes(contents):
    return SCORES[[int(content) for content in contents]] + 2e-5


def test_the_greatest_difference_of_each_part_is_returned():
    sizes = []
    found = compare(SAMPLE, {"frozen": of_images(1e-6, sizes)}, {"bytes": of_bytes})
    assert found == {"frozen": pytest.approx(1e-6), "bytes": pytest.approx(2e-5)}
    assert sizes == [1, 2]  # One alone, and the others.


def test_a_part_that_differs_fails_with_the_image():
    with pytest.raises(UserError, match=r"check: frozen gives 'a.jpg' scores .* by up to 0\.0002, and 0\.0001 is"):
        compare(SAMPLE, {"frozen": of_images(2e-4)}, {})
    with pytest.raises(UserError, match="up to nan"):
        compare(SAMPLE, {"frozen": lambda images: of_images()(images) * np.nan}, {})


def test_without_a_decodable_file_the_bytes_are_not_checked():
    sample = Sample(SAMPLE.images, SCORES, SAMPLE.paths, [None] * 3, "eval")
    assert compare(sample, {"frozen": of_images()}, {"bytes": of_bytes}) == {"frozen": 0.0}
