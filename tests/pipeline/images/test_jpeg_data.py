from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from PIL import Image

from slimexp.pipeline.images.formats import BadImage
from slimexp.pipeline.images.jpeg_data import check_pixel_data, require_pixel_data
from slimexp.pipeline.images.jpeg_header import END, read_jpeg_header

WAYS: list[dict[str, Any]] = [
    {},
    {"progressive": True},
    {"restart_marker_blocks": 7},
    {"subsampling": 0, "quality": 97, "optimize": True},
]


def checked(contents: bytes) -> str | None:
    return check_pixel_data(contents, read_jpeg_header(contents))


@pytest.mark.parametrize("way", WAYS, ids=["baseline", "progressive", "restarts", "fine"])
@pytest.mark.parametrize("mode", ["RGB", "L"])
def test_data_that_end_early_are_found_wherever_that_is(
    photo: np.ndarray, encode: Callable, mode: str, way: dict[str, Any]
) -> None:
    contents = encode(Image.fromarray(photo[:160, :200]).convert(mode), **way)
    assert checked(contents) is None
    assert checked(contents + b"a trailer") is None
    assert checked(contents + contents[: len(contents) // 2] + END) is None  # The second picture is not ours.
    scan_start = read_jpeg_header(contents).scan_start
    for length in range(scan_start + 14, len(contents) - 80, 487):
        reason = checked(contents[:length] + END)
        assert reason is not None, length
        assert reason.startswith("the JPEG is cut short: ")


def test_the_place_is_named(photo: np.ndarray, encode: Callable) -> None:
    contents = encode(photo[:160, :200])[:-300] + END
    message = (
        f"the JPEG is cut short: its pixel data end at byte {len(contents) - 2}, before the picture does, and an end "
        "marker stands there all the same"
    )
    assert checked(contents) == message
    with pytest.raises(BadImage, match="its pixel data end at byte"):
        require_pixel_data(contents)


def test_a_cut_before_a_restart_marker(photo: np.ndarray, encode: Callable) -> None:
    contents = encode(photo[:90, :90], restart_marker_blocks=7)
    for marker in (b"\xff\xd0", b"\xff\xd2"):
        at = contents.rfind(marker)
        assert "its pixel data end at byte" in (checked(contents[:at] + END) or "")
        assert "its pixel data end at byte" in (checked(contents[: at + 2] + END) or "")


def test_whole_scans_that_are_missing(photo: np.ndarray, encode: Callable) -> None:
    contents = encode(photo[:90, :90], progressive=True)
    starts = [n for n in range(len(contents)) if contents.startswith(b"\xff\xda", n)]
    assert len(starts) > 3
    last = contents[: starts[-1]] + END
    assert checked(last) == "the JPEG is cut short: it is progressive, and the scans with its finest detail are missing"
    # All components of it in its first scan; a picture with one fewer is put together from three.
    assert read_jpeg_header(contents).num_components == 3
    frame = bytearray(encode(photo[:90, :90, 0]))
    at = frame.find(b"\xff\xc0")
    frame[at + 9] = 3
    assert checked(bytes(frame)) == "the JPEG is cut short: it has pixel data of 1 of its 3 colours"


def test_what_is_another_checks_to_tell_is_left_to_it(photo: np.ndarray, encode: Callable) -> None:
    contents = encode(photo[:90, :90])
    assert checked(contents[:-2]) is None
    assert checked(contents[:100]) is None
    assert checked(b"\xff\xd8\xff" + contents[400:]) is None
    assert np.asarray(Image.open(io.BytesIO(contents))).shape == (90, 90, 3)
