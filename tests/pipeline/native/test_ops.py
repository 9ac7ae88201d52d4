"""The native op against TensorFlow's own ops and Pillow."""

from __future__ import annotations

import gc
import io
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image, ImageOps

from slimexp.pipeline.native import ops

pytestmark = pytest.mark.usefixtures("native")

Encode = Callable[..., bytes]
Window = tuple[int, int, int, int]

# The weights of a row's taps are rounded to 1/16384.
_TOLERANCE = 0.02


def make(
    contents: Sequence[bytes],
    windows: Sequence[Window],
    *,
    size_px: int = 32,
    flips: Sequence[bool] | None = None,
    orientations: Sequence[int] | None = None,
    colors: Any = None,
    **options: Any,
) -> tuple[np.ndarray, list[bool]]:
    """Runs the op on plain values, with the orientations that the headers name unless they are given."""
    data = tf.constant(list(contents))
    images, done = ops.decode_windows(
        data,
        tf.constant(list(windows), tf.int32, [len(contents), 4]),
        ops.read_headers(data)[1] if orientations is None else tf.constant(list(orientations), tf.int32),
        tf.constant(list(flips or [False] * len(contents))),
        colors,
        **{"threads": 2, "pool": "test", "size_px": size_px, **options},
    )
    return images.numpy(), done.numpy().tolist()


def decode(contents: bytes, ratio: int = 1) -> np.ndarray:
    """Decodes a whole picture with TensorFlow, as carefully as it can; int [height, width, 3]."""
    return tf.io.decode_jpeg(contents, channels=3, ratio=ratio, dct_method="INTEGER_ACCURATE").numpy()


def cut(picture: np.ndarray, window: Window) -> np.ndarray:
    y, x, height, width = window
    return picture[y : y + height, x : x + width]


def resize(picture: np.ndarray, size_px: int = 32) -> np.ndarray:
    images = tf.constant(picture[None], tf.float32)
    return tf.raw_ops.ResizeBilinear(images=images, size=[size_px, size_px], half_pixel_centers=True)[0].numpy()


def with_sampling(contents: bytes, luma: int) -> bytes:
    """Changes a JPEG's sampling factors; its blocks then lie in other places, as another picture."""
    at = contents.index(b"\xff\xc0")
    changed = bytearray(contents)
    changed[at + 11] = luma
    return bytes(changed)


def with_orientation(encode: Encode, picture: np.ndarray, orientation: int, **options: Any) -> bytes:
    exif = Image.Exif()
    exif[0x0112] = orientation
    return encode(picture, exif=exif, **options)


def test_exif_behind_the_tables_does_not_count(photo: np.ndarray, encode: Encode) -> None:
    turned = with_orientation(encode, photo, 6)
    exif = turned[turned.find(b"\xff\xe1") : turned.find(b"\xff\xdb")]
    plain = encode(photo)
    late = [plain.replace(marker, exif + marker, 1) for marker in (b"\xff\xc0", b"\xff\xc4", b"\xff\xda")]
    sizes, orientations = ops.read_headers(tf.constant([turned, *late]))
    assert orientations.numpy().tolist() == [6, 1, 1, 1]
    assert [tuple(size) for size in sizes.numpy().tolist()[1:]] == [photo.shape[:2]] * 3


@pytest.fixture(scope="module")
def kinds(photo: np.ndarray, encode: Encode) -> dict[str, bytes]:
    """JPEGs of every kind that the op takes."""
    square = photo[:128, 100:228]
    odd = photo[:131, :203]
    return {
        "4:2:0": encode(odd),
        "4:4:4": encode(odd, subsampling=0),
        "4:2:2": encode(odd, subsampling=1),
        "4:4:0": with_sampling(encode(square, subsampling=1), 0x12),
        "4:1:1": with_sampling(encode(square), 0x41),
        "4:1:0 upright": with_sampling(encode(square), 0x14),
        "grey": encode(Image.fromarray(odd).convert("L")),
        "RGB": encode(odd, keep_rgb=True),
        "progressive": encode(odd, progressive=True),
        "progressive 4:4:4": encode(odd, progressive=True, subsampling=0),
        "restart markers": encode(odd, restart_marker_blocks=3),
        "Huffman tables of its own": encode(odd, optimize=True, quality=100),
        "bytes after the end": encode(odd) + b"\0" * 100,
        "bytes between segments": encode(odd).replace(b"\xff\xda", b"\0\0\xff\xda", 1),
        "one pixel": encode(photo[:1, :1]),
        "one row": encode(photo[:1, :90]),
        "one column": encode(photo[:77, :1]),
    }


def test_makes_what_tensorflow_makes(kinds: dict[str, bytes]) -> None:
    rng = np.random.default_rng(0)
    for name, contents in kinds.items():
        picture = decode(contents)
        height, width, _ = picture.shape
        (size,), _ = ops.read_headers(tf.constant([contents]))
        assert size.numpy().tolist() == [height, width], name
        windows = [(0, 0, height, width), (0, 0, 1, 1), (height - 1, width - 1, 1, 1), (0, 0, 1, width)]
        windows += [(0, width // 2, height, 1), (height // 2, width // 2, -(-height // 2), -(-width // 2))]
        for _ in range(12):
            y, x = int(rng.integers(height)), int(rng.integers(width))
            windows.append((y, x, int(rng.integers(1, height - y + 1)), int(rng.integers(1, width - x + 1))))
        # Above half of the largest sides, so that nothing is decoded at a smaller scale.
        images, done = make([contents] * len(windows), windows, size_px=110)
        assert all(done), name
        for window, image in zip(windows, images, strict=True):
            np.testing.assert_allclose(
                image, resize(cut(picture, window), 110), atol=_TOLERANCE, err_msg=f"{name} {window}"
            )


@pytest.mark.parametrize("ratio", [2, 4, 8])
def test_decodes_large_windows_at_a_smaller_scale(photo: np.ndarray, encode: Encode, ratio: int) -> None:
    for options in ({}, {"subsampling": 0}, {"progressive": True}, {"subsampling": 1}):
        contents = encode(photo[:421, :635], **options)
        size_px = 200 // ratio
        windows = [
            (y * ratio, x * ratio, h * ratio, w * ratio)
            for y, x, h, w in [(0, 0, size_px, size_px + 3), (2, 1, size_px + 1, size_px), (1, 3, size_px, size_px)]
        ]
        images, done = make([contents] * 3, windows, size_px=size_px)
        assert done == [True] * 3
        small = decode(contents, ratio)
        for window, image in zip(windows, images, strict=True):
            expected = resize(cut(small, tuple(side // ratio for side in window)), size_px)
            np.testing.assert_allclose(image, expected, atol=_TOLERANCE)


def psnr(a: np.ndarray, b: np.ndarray) -> float:
    return float(10 * np.log10(255**2 / np.mean((a.astype(np.float64) - b) ** 2)))


def test_is_close_to_a_careful_resize(photo: np.ndarray, encode: Encode) -> None:
    # Windows that don't lie on the grid of the smaller scale: they must not be shifted.
    picture = np.asarray(Image.fromarray(photo).resize((1280, 854), Image.Resampling.BICUBIC))
    contents = encode(picture, quality=95)
    whole = decode(contents)
    for (y, x, height, width), size_px, least in [
        ((3, 5, 451, 463), 224, 41.0),
        ((7, 9, 463, 455), 112, 35.5),
        ((1, 3, 845, 849), 105, 34.0),
    ]:
        image = make([contents], [(y, x, height, width)], size_px=size_px)[0][0]
        found = {}
        for move in [(0, 0), (1, 0), (-1, 0), (0, 1), (0, -1)]:
            moved = cut(whole, (y + move[0], x + move[1], height, width))
            found[move] = psnr(image, tf.image.resize(moved, [size_px, size_px], antialias=True).numpy())
        assert found[0, 0] == max(found.values()) > least


@pytest.mark.parametrize("flip", [False, True])
@pytest.mark.parametrize("size_px", [120, 50, 16])
def test_orientations_are_pillows(photo: np.ndarray, encode: Encode, flip: bool, size_px: int) -> None:
    # Sides that are multiples of no scale, windows of any place and shape.
    picture = photo[:181, 100:313]
    contents = [with_orientation(encode, picture, orientation, quality=95) for orientation in range(1, 9)]
    displayed = [ImageOps.exif_transpose(Image.open(io.BytesIO(data))) for data in contents]
    sizes, orientations = ops.read_headers(tf.constant(contents))
    assert orientations.numpy().tolist() == list(range(1, 9))
    assert [tuple(size[::-1]) for size in sizes.numpy().tolist()] == [image.size for image in displayed]
    for window in [(0, 0, 181, 181), (13, 9, 160, 171), (21, 30, 150, 133)]:
        windows = [tuple(np.minimum(window, [*image.size[::-1]] * 2).tolist()) for image in displayed]
        images, done = make(contents, windows, size_px=size_px, flips=[flip] * 8)
        assert all(done)
        for image, whole, place in zip(images, displayed, windows, strict=True):
            pixels = cut(np.asarray(whole), place)
            expected = resize(pixels[:, ::-1] if flip else pixels, size_px)
            if size_px == 120:
                np.testing.assert_allclose(image, expected, atol=_TOLERANCE)
            else:
                careful = tf.image.resize(pixels[:, ::-1] if flip else pixels, [size_px] * 2, antialias=True).numpy()
                assert psnr(image, careful) > 30


def test_orientations_of_odd_exif(photo: np.ndarray, encode: Encode) -> None:
    plain = encode(photo[:20, :30])

    def with_exif(tiff: bytes, prefix: bytes = b"Exif\0\0") -> bytes:
        body = prefix + tiff
        return plain[:2] + b"\xff\xe1" + (len(body) + 2).to_bytes(2, "big") + body + plain[2:]

    def directory(order: str, kind: int = 3, value: int = 6, count: int = 1, start: int = 8) -> bytes:
        number = lambda value, length: value.to_bytes(length, order)  # noqa: E731
        head = (b"MM" if order == "big" else b"II") + number(42, 2) + number(start, 4)
        field = number(value, 2) + b"\0\0" if kind == 3 else number(value, 4)
        first = number(0x010F, 2) + number(2, 2) + number(4, 4) + b"cam\0"
        return head + number(2, 2) + first + number(0x0112, 2) + number(kind, 2) + number(count, 4) + field + bytes(4)

    cases = {
        "little": (with_exif(directory("little")), 6),
        "big": (with_exif(directory("big")), 6),
        "a long number": (with_exif(directory("big", kind=4, value=8)), 8),
        "other type": (with_exif(directory("big", kind=2)), 1),
        "out of range": (with_exif(directory("big", value=9)), 1),
        "zero": (with_exif(directory("little", value=0)), 1),
        "several": (with_exif(directory("little", count=2)), 1),
        "directory past the end": (with_exif(directory("little", start=4000)), 1),
        "directory far past the end": (with_exif(directory("little", start=2**32 - 1)), 1),
        "cut": (with_exif(directory("little")[:30]), 1),
        "nothing": (with_exif(b""), 1),
        "no TIFF": (with_exif(b"XX" + directory("big")[2:]), 1),
        "no EXIF": (with_exif(directory("big"), b"http:/"), 1),
        "the second of two": (with_exif(directory("big", value=3), b"http:/")[:2] + with_exif(directory("big"))[2:], 6),
    }
    contents = tf.constant([contents for contents, _ in cases.values()])
    sizes, orientations = ops.read_headers(contents)
    assert dict(zip(cases, orientations.numpy(), strict=True)) == {name: want for name, (_, want) in cases.items()}
    assert sizes.numpy().tolist() == [[30, 20] if want >= 5 else [20, 30] for _, want in cases.values()]
    sizes, orientations = ops.read_headers(contents, exif=False)
    assert orientations.numpy().tolist() == [1] * len(cases)
    assert sizes.numpy().tolist() == [[20, 30]] * len(cases)


def test_leaves_what_it_does_not_take(photo: np.ndarray, encode: Encode) -> None:
    picture = photo[:60, :80]
    good = encode(picture)
    frame = good.index(b"\xff\xc0")
    twelve_bits, arithmetic, no_height = (bytearray(good) for _ in range(3))
    twelve_bits[frame + 4] = 12
    arithmetic[frame + 1] = 0xC9
    no_height[frame + 5 : frame + 7] = 0, 0
    others = {
        "CMYK": encode(Image.fromarray(picture).convert("CMYK")),
        "PNG": encode(picture, "PNG"),
        "WebP": encode(picture, "WEBP"),
        "cut": good[: len(good) // 2],
        "last byte missing": good[:-1],
        "empty": b"",
        "start alone": b"\xff\xd8",
        "start and end": b"\xff\xd8\xff\xd9",
        "text": b"no picture at all",
        "zeros": bytes(1000),
        "12 bits": bytes(twelve_bits),
        "arithmetic coding": bytes(arithmetic),
        "height named later": bytes(no_height),
    }
    contents = [good, *others.values(), good]
    sizes, orientations = ops.read_headers(tf.constant(contents))
    assert dict(zip(others, sizes.numpy()[1:-1].tolist(), strict=True)) == {name: [0, 0] for name in others}
    assert orientations.numpy().tolist() == [1] * len(contents)
    # Their windows may be anything.
    windows = [(0, 0, 60, 80), *[(-5, 7, 0, 1000)] * len(others), (0, 0, 60, 80)]
    images, done = make(contents, windows, offset=[9, 9, 9])
    assert done == [True] + [False] * len(others) + [True]
    np.testing.assert_allclose(images[0], resize(decode(good)) + 9, atol=_TOLERANCE)
    np.testing.assert_array_equal(images[0], images[-1])
    assert not images[1:-1].any()


def test_leaves_damaged_ones(photo: np.ndarray, encode: Encode) -> None:
    good, progressive = encode(photo), encode(photo, progressive=True)
    # Of restart markers some are lost, so that what follows is out of step.
    restarts = encode(photo, restart_marker_blocks=8)
    restarts = restarts[: len(restarts) // 2] + restarts[len(restarts) // 2 + 2000 :]
    no_tables = good.replace(b"\xff\xdb", b"\xff\xef")
    contents = [good[: len(good) // 2] + b"\xff\xd9", progressive[: len(progressive) // 2] + b"\xff\xd9"]
    contents += [restarts, no_tables, good, progressive]
    whole = (0, 0, *photo.shape[:2])
    images, done = make(contents, [whole] * 6, size_px=300)
    assert done == [False] * 4 + [True] * 2
    assert not images[:4].any()
    assert images[4:].any()
    # What lies above the damage can be had of a baseline picture.
    assert make(contents[:2], [(0, 0, 100, 100)] * 2)[1] == [True, False]


def test_too_large_pictures_are_left(photo: np.ndarray, encode: Encode) -> None:
    contents = [encode(photo[:100, :100]), encode(photo[:100, :101])]
    windows = [(0, 0, 50, 50)] * 2
    assert make(contents, windows, max_pixels=10_000)[1] == [True, False]
    assert make(contents, windows)[1] == [True, True]


def test_made_up_size_takes_no_memory(photo: np.ndarray, encode: Encode) -> None:
    # 65,500 x 65,500 pixels would need 12 GB of coefficients.
    changed = bytearray(encode(photo[:64, :64], progressive=True))
    frame = changed.index(b"\xff\xc2")
    changed[frame + 5 : frame + 9] = 0xFF, 0xDC, 0xFF, 0xDC
    assert make([bytes(changed)], [(0, 0, 64, 64)])[1] == [False]


def test_scale_offset_and_dtypes(photo: np.ndarray, encode: Encode) -> None:
    contents, window = encode(photo), (10, 20, 60, 50)
    raw = make([contents], [window])[0][0]
    offset = np.float32([-1, 0.5, 2])
    for orientation in (1, 6):
        raw = make([contents], [window], orientations=[orientation])[0][0]
        options: dict[str, Any] = {"scale": 0.25, "offset": offset, "orientations": [orientation]}
        wanted = raw * np.float32(0.25) + offset
        np.testing.assert_allclose(make([contents], [window], **options)[0][0], wanted, atol=1e-4)
        half = make([contents], [window], dtype=tf.bfloat16, **options)[0][0]
        assert half.dtype == tf.bfloat16.as_numpy_dtype
        np.testing.assert_allclose(half.astype(np.float32), wanted, rtol=2**-8, atol=1e-4)
        options |= {"scale": 3.0, "offset": [-600, 0, 5]}
        whole = make([contents], [window], dtype=tf.uint8, **options)[0][0]
        assert whole.dtype == np.uint8
        assert {0, 255} <= set(whole.ravel().tolist())
        wanted = np.clip(raw * 3 + np.float32([-600, 0, 5]), 0, 255)
        assert np.abs(whole - wanted).max() <= 0.5 + 1e-3


def test_bfloat16_is_rounded_as_tensorflow_rounds(photo: np.ndarray, encode: Encode) -> None:
    contents, window = encode(photo), (0, 0, 300, 400)
    exact = tf.cast(make([contents], [window], offset=[-123.68] * 3)[0], tf.bfloat16).numpy()
    np.testing.assert_array_equal(make([contents], [window], offset=[-123.68] * 3, dtype=tf.bfloat16)[0], exact)


_TF_STEPS: dict[str, Callable[[tf.Tensor, Any], tf.Tensor]] = {
    "b": tf.image.adjust_brightness,
    "s": tf.image.adjust_saturation,
    "h": tf.image.adjust_hue,
    "c": tf.image.adjust_contrast,
}


@pytest.mark.parametrize(
    "orders", [("bs", "sb"), ("bshc", "sbch", "chbs", "hscb"), ("b", "s", "h", "c", ""), ("ccbsshhc",)]
)
def test_colors_are_tf_images(photo: np.ndarray, encode: Encode, orders: tuple[str, ...]) -> None:
    # A picture with grey, black, white and full colours.
    picture = photo[:120, 200:380].copy()
    picture[:20, :20], picture[:20, 20:40], picture[:20, 40:60] = 0, 255, 128
    picture[:20, 60:80], picture[:20, 80:100] = (255, 0, 0), (0, 0, 255)
    contents = encode(picture, quality=100, subsampling=0)
    values = [(0.1, 1.3, 0.1, 1.4), (-0.12, 0.5, -0.2, 0.5), (0.0, 0.0, 1.0, 0.0), (-0.5, 3.0, -1.0, 2.0)]
    rows = [(number, *row) for number in range(len(orders)) for row in values]
    windows = [(0, 0, 120, 180)] * len(rows)
    plain = make([contents], windows[:1], size_px=100)[0][0]
    images, done = make(
        [contents] * len(rows),
        windows,
        size_px=100,
        colors=tf.constant(rows, tf.float32),
        color_orders=orders,
        scale=2 / 255,
        offset=[-1, -1, -1],
        flips=[bool(number % 2) for number in range(len(rows))],
    )
    assert all(done)
    for number, (row, image) in enumerate(zip(rows, images, strict=True)):
        order, parameters = orders[int(row[0])], dict(zip("bshc", row[1:], strict=True))
        expected = tf.constant(plain[:, ::-1] if number % 2 else plain) / 255
        for letter in order:
            expected = _TF_STEPS[letter](expected, parameters[letter])
        expected = tf.clip_by_value(expected, 0, 1) * 2 - 1
        np.testing.assert_allclose(image, expected, atol=2e-3 if len(order) > 4 else 1e-4, err_msg=f"{order} {row}")


def test_rejects_what_does_not_go_together(photo: np.ndarray, encode: Encode) -> None:
    contents = tf.constant([encode(photo)] * 2)
    good: dict[str, Any] = {
        "contents": contents,
        "windows": tf.constant([[0, 0, 9, 9]] * 2),
        "orientations": tf.constant([1, 1]),
        "flips": tf.constant([False, False]),
        "colors": None,
        "size_px": 8,
        "threads": 1,
        "pool": "wrong",
    }
    cases: list[tuple[dict[str, Any], str]] = [
        ({"contents": contents[0]}, "contents must be a vector, and is of shape"),
        (
            {"windows": tf.zeros([3, 4], tf.int32)},
            r"windows must be of shape \[2,4\] with 2 contents, .* shape \[3,4\]",
        ),
        ({"orientations": tf.constant([1])}, r"orientations must be of shape \[2\]"),
        ({"flips": tf.constant([[False, False]])}, r"flips must be of shape \[2\]"),
        ({"colors": tf.zeros([2, 4])}, r"colors must be of shape \[2,5\]"),
        ({"scale": tf.zeros([2])}, r"scale must be of shape \[\]"),
        ({"offset": tf.zeros([4])}, r"offset must be of shape \[3\]"),
        ({"orientations": tf.constant([1, 9])}, r"orientations\[1\] is 9, and must be 1 to 8"),
        (
            {"windows": tf.constant([[0, 0, 9, 9], [420, 0, 8, 9]])},
            r"windows\[1\] is y=420, x=0, height=8, width=9, which",
        ),
        ({"windows": tf.constant([[0, 0, 9, 0], [0, 0, 9, 9]])}, "not within the picture"),
        ({"windows": tf.constant([[2**31 - 1] * 4] * 2)}, "not within the picture"),
        ({"colors": tf.zeros([2, 5])}, r"colors\[0, 0\] is 0, and must be the number of one of the 0 color_orders"),
        ({"colors": tf.constant([[0.0] * 5, [0.5] * 5]), "color_orders": ["b"]}, r"colors\[1, 0\] is 0\.5"),
        ({"color_orders": ["bx"]}, "color_orders has 'bx', and may have up to 16 of the letters b, s, h, c"),
    ]
    for change, message in cases:
        with pytest.raises(tf.errors.InvalidArgumentError, match=message):
            ops.decode_windows(**(good | change))
    with pytest.raises(tf.errors.InvalidArgumentError, match="must be a vector"):
        ops.read_headers(contents[0])


def test_shapes_are_known_while_tracing() -> None:
    @tf.function(input_signature=[tf.TensorSpec([None], tf.string)])
    def run(contents: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        sizes, orientations = ops.read_headers(contents)
        assert sizes.shape.as_list() == [None, 2]
        windows = tf.concat([sizes * 0, sizes], axis=1)
        images, done = ops.decode_windows(
            contents, windows, orientations, tf.zeros_like(orientations, tf.bool), size_px=7, threads=1, pool="traced"
        )
        assert images.shape.as_list() == [None, 7, 7, 3]
        assert done.shape.as_list() == [None]
        return images, done

    images, done = run(tf.zeros([0], tf.string))
    assert images.shape == (0, 7, 7, 3)
    assert done.shape == (0,)


def threads_alive() -> int:
    names = []
    for path in Path("/proc/self/task").glob("*/comm"):
        try:
            names.append(path.read_text().strip())
        except OSError:  # It ended meanwhile.
            continue
    return names.count("slimexp_prep")


def threads_that_stay() -> int:
    """Counts the threads of pools, once those of earlier tests that end are gone."""
    gc.collect()
    counts = [threads_alive()]
    while len(counts) < 20 or len(set(counts[-20:])) > 1:
        time.sleep(0.05)
        counts.append(threads_alive())
    return counts[-1]


@pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="thread names are read from /proc")
def test_pool_lives_as_long_as_the_pipeline(photo: np.ndarray, encode: Encode) -> None:
    contents = [encode(photo[: 50 + number]) for number in range(12)]
    assert ops.pool_stats("mine") is None
    before = threads_that_stay()

    def step(batch: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        sizes, orientations = ops.read_headers(batch)
        windows = tf.concat([sizes * 0, sizes], axis=1)
        flips = tf.zeros_like(orientations, tf.bool)
        return ops.decode_windows(batch, windows, orientations, flips, size_px=64, threads=3, pool="mine")

    dataset = tf.data.Dataset.from_tensor_slices(contents).repeat(10).batch(8).map(step, num_parallel_calls=2)
    iterator = iter(dataset)
    made = [next(iterator)[0].numpy() for _ in range(15)]
    stats = ops.pool_stats("mine")
    assert stats is not None
    assert (stats.images, stats.waiting, stats.threads) == (120, 0, 3)
    assert 0 < stats.cpu_secs <= stats.wall_secs * 1.05 + 0.05
    assert threads_alive() == before + 3
    images = np.concatenate(made)
    for number in range(12):
        np.testing.assert_array_equal(images[number], images[number + 60])
    del iterator, dataset
    deadline = time.monotonic() + 20
    while ops.pool_stats("mine") is not None or threads_alive() > before:
        assert time.monotonic() < deadline, "the threads did not end"
        time.sleep(0.02)


def test_many_calls_at_once(photo: np.ndarray, encode: Encode) -> None:
    contents = [encode(photo[: 30 + 5 * number], progressive=number % 3 == 0) for number in range(16)]
    windows = [(0, 0, 30, 100)] * 16
    expected = make(contents, windows)[0]
    failures: list[str] = []

    def call(number: int) -> None:
        for _ in range(15):
            images, done = make(contents, windows, pool=f"pool {number % 2}", threads=1 + number % 2)
            if not (all(done) and np.array_equal(images, expected)):
                failures.append(f"thread {number}")

    callers = [threading.Thread(target=call, args=(number,)) for number in range(6)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join(60)
    assert failures == []
    assert [ops.pool_stats(f"pool {number}").images for number in (0, 1)] == [720, 720]


_AT_EXIT = """
import os, sys, threading
import tensorflow as tf
from slimexp.pipeline.native import ops
data = open(sys.argv[1], 'rb').read()
def call():
    return ops.decode_windows(tf.constant([data] * 64), tf.constant([[0, 0, 400, 600]] * 64), tf.ones([64], tf.int32),
                              tf.zeros([64], tf.bool), size_px=224, threads=2, pool='p')
call()
child = os.fork()
if child == 0:
    sys.exit(0)  # With all that is done at the end of a process; its copy of the pool has no threads.
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
for _ in range(3):
    threading.Thread(target=call, daemon=True).start()
print('ended')
"""


def test_process_ends_while_images_are_made(photo: np.ndarray, encode: Encode, tmp_path: Path) -> None:
    path = tmp_path / "photo.jpg"
    path.write_bytes(encode(photo, quality=95))
    result = subprocess.run(
        [sys.executable, "-c", _AT_EXIT, str(path)], capture_output=True, text=True, timeout=120, check=False
    )
    assert result.returncode == 0, result.stderr
    assert result.stdout == "ended\n"
