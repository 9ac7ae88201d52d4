from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image, ImageOps

from slimexp.pipeline.images.orientation import displayed_size, parse_orientation, to_stored, turn, turn_array


def exif(orientation: int, **changes: bytes) -> bytes:
    block = Image.Exif()
    block[0x0112] = orientation
    block[0x010F] = "a camera"
    block[0x8769] = {0x9003: "2020:01:01 00:00:00"}  # A second directory.
    return block.tobytes()[6:]


def entry(order: str, tag: int, kind: int, count: int, value: bytes) -> bytes:
    head = b"II*\0" if order == "little" else b"MM\0*"
    number = lambda n, size: n.to_bytes(size, order)  # type: ignore[arg-type]  # noqa: E731
    return head + number(8, 4) + number(1, 2) + number(tag, 2) + number(kind, 2) + number(count, 4) + value


@pytest.mark.parametrize("orientation", range(1, 9))
def test_the_orientation_is_found(orientation: int) -> None:
    assert parse_orientation(exif(orientation)) == orientation
    assert parse_orientation(entry("big", 0x0112, 3, 1, bytes([0, orientation, 0, 0]))) == orientation
    assert parse_orientation(entry("little", 0x0112, 4, 1, bytes([orientation, 0, 0, 0]))) == orientation


def test_damaged_exif_is_upright() -> None:
    sound = exif(6)
    assert all(parse_orientation(sound[:length]) in (1, 6) for length in range(len(sound)))
    for damaged in (b"", b"II*\0", b"XX*\0" + sound[4:], sound[:4] + b"\xff" * 4 + sound[8:], sound[:8]):
        assert parse_orientation(damaged) == 1
    assert parse_orientation(entry("little", 0x0112, 3, 1, bytes([9, 0, 0, 0]))) == 1
    assert parse_orientation(entry("little", 0x0112, 3, 1, bytes(4))) == 1
    assert parse_orientation(entry("little", 0x0112, 3, 2, bytes([6, 0, 0, 0]))) == 1
    assert parse_orientation(entry("little", 0x0112, 2, 1, bytes([6, 0, 0, 0]))) == 1
    # Says that it has 65535 entries and has one.
    assert parse_orientation(sound[:8] + b"\xff\xff" + bytes(12)) == 1


def test_pixels_are_turned_as_pillow_turns_them() -> None:
    stored = np.arange(5 * 7 * 3, dtype=np.uint8).reshape(5, 7, 3)
    for orientation in range(1, 9):
        image = Image.fromarray(stored)
        image.getexif()[0x0112] = orientation
        expected = np.asarray(ImageOps.exif_transpose(image))
        assert (turn(tf.constant(stored), tf.constant(orientation)).numpy() == expected).all()
        assert (turn_array(stored, orientation) == expected).all()
        height, width = displayed_size(tf.constant(5), tf.constant(7), tf.constant(orientation))
        assert (height, width) == expected.shape[:2]


def test_a_window_shows_the_same_before_and_after() -> None:
    stored = np.arange(5 * 7 * 3, dtype=np.uint8).reshape(5, 7, 3)
    orientations = np.arange(1, 9, dtype=np.int32)
    window = np.array([1, 2, 3, 2], np.int32)  # Fits into both 5 x 7 and 7 x 5.
    many = to_stored(tf.constant(np.tile(window, (8, 1))), tf.fill([8], 5), tf.fill([8], 7), tf.constant(orientations))
    for orientation, from_many in zip(orientations, many.numpy(), strict=True):
        y, x, height, width = to_stored(tf.constant(window), 5, 7, tf.constant(orientation)).numpy()
        assert (from_many == (y, x, height, width)).all()
        part = turn_array(stored[y : y + height, x : x + width], orientation)
        assert (part == turn_array(stored, orientation)[1:4, 2:4]).all(), orientation
