from __future__ import annotations

import functools
import io
import struct
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image, ImageOps

from slimexp.pipeline.images import decode
from slimexp.pipeline.images.decode import decode_window

WINDOW = (50, 100, 120, 200)  # y, x, height, width


@functools.cache
def decoder(**options: Any) -> Any:
    return tf.function(lambda contents, window: decode_window(contents, lambda height, width: window, **options))


def window_of(contents: bytes, window: tuple[int, ...] = WINDOW, **options: Any) -> np.ndarray:
    return decoder(**options)(tf.constant(contents), tf.constant(window)).numpy()


def cut(picture: np.ndarray, window: tuple[int, ...] = WINDOW) -> np.ndarray:
    y, x, height, width = window
    return picture[y : y + height, x : x + width]


def opened(contents: bytes) -> np.ndarray:
    image = Image.open(io.BytesIO(contents))
    return np.asarray(ImageOps.exif_transpose(image).convert("RGB"))


def with_orientation(orientation: int) -> Image.Exif:
    exif = Image.Exif()
    exif[0x0112] = orientation
    exif[0x010F] = "a camera"
    return exif


@pytest.mark.parametrize("progressive", [False, True])
def test_a_jpeg_window_is_the_cut_of_the_whole(photo: np.ndarray, encode: Callable, progressive: bool) -> None:
    contents = encode(photo, quality=90, progressive=progressive)
    whole = opened(contents)
    found = window_of(contents).astype(int)
    assert np.abs(found - cut(whole)).max() <= 16  # At the rim, where colour is smoothed.
    assert (found[2:-2, 2:-2] == cut(whole)[2:-2, 2:-2]).all()
    full_colour = encode(photo, quality=90, subsampling=0)
    assert (window_of(full_colour) == cut(opened(full_colour))).all()


def test_the_window_is_chosen_by_the_header(photo: np.ndarray, encode: Callable) -> None:
    def choose(height: tf.Tensor, width: tf.Tensor) -> tf.Tensor:
        return tf.stack([height - 7, width - 5, 7, 5])

    for kind in ("JPEG", "PNG"):
        contents = encode(photo[:90, :130], kind)
        found = decode_window(tf.constant(contents), choose).numpy()
        assert found.shape == (7, 5, 3)
        assert np.abs(found.astype(int) - opened(contents)[83:90, 125:130]).max() <= 24


@pytest.mark.parametrize("missing_bytes", [1, 2, 500, 30_000])
def test_a_jpeg_cut_short_fails_for_every_window(photo: np.ndarray, encode: Callable, missing_bytes: int) -> None:
    contents = encode(photo, quality=90)[:-missing_bytes]
    for options in ({}, {"exif": False}, {"size_px": 8}):
        with pytest.raises(tf.errors.InvalidArgumentError, match="cut short"):
            window_of(contents, (0, 0, 8, 8), **options)


def test_bytes_after_the_end_marker_do_no_harm(photo: np.ndarray, encode: Callable) -> None:
    contents = encode(photo, subsampling=0)
    assert (window_of(contents + b"\0" * 99) == cut(opened(contents))).all()


def pictures(photo: np.ndarray) -> dict[str, tuple[Image.Image, str, dict]]:
    image = Image.fromarray(photo)
    turned = image.rotate(180)
    see_through = image.convert("RGBA")
    see_through.putalpha(image.convert("L"))
    animated = {"save_all": True, "append_images": [turned]}
    return {
        "png": (image, "PNG", {}),
        "png grey": (image.convert("L"), "PNG", {}),
        "png palette": (image.quantize(16), "PNG", {}),
        "png one bit": (image.convert("1"), "PNG", {}),
        "png palette alpha": (image.quantize(16), "PNG", {"transparency": 3}),
        "png alpha": (see_through, "PNG", {}),
        "png grey alpha": (see_through.convert("LA"), "PNG", {}),
        "png animated": (image, "PNG", animated),
        "gif": (image, "GIF", {}),
        "gif animated": (image, "GIF", animated),
        "bmp": (image, "BMP", {}),
        "gif alpha": (image.quantize(16), "GIF", {"transparency": 3}),
        "bmp one bit": (image.convert("1"), "BMP", {}),
        "bmp grey": (image.convert("L"), "BMP", {}),
        "bmp palette": (image.quantize(16), "BMP", {}),
        "bmp 32 bit": (image.convert("RGBA"), "BMP", {}),
        "webp": (image, "WEBP", {"lossless": True}),
        "webp lossy": (image, "WEBP", {}),
        "webp animated": (image, "WEBP", {"lossless": True, **animated}),
        "webp alpha": (see_through, "WEBP", {"lossless": True, "exact": True}),
        "webp alpha animated": (see_through, "WEBP", {"lossless": True, "exact": True, **animated}),
        "tiff": (image, "TIFF", {}),
        "tiff of two pages": (image, "TIFF", {"compression": "tiff_lzw", **animated}),
        "tiff cmyk": (image.convert("CMYK"), "TIFF", {}),
        "jpeg 2000": (image, "JPEG2000", {}),
        "avif": (image, "AVIF", {}),
        "pnm": (image, "PPM", {}),
        "jpeg grey": (image.convert("L"), "JPEG", {}),
        "jpeg cmyk": (image.convert("CMYK"), "JPEG", {"subsampling": 0}),
        "jpeg of two pictures": (image, "MPO", {"subsampling": 0, **animated}),
    }


def test_other_formats_are_told_by_their_contents(photo: np.ndarray, encode: Callable) -> None:
    for name, (image, kind, options) in pictures(photo).items():
        contents = encode(image, kind, **options)
        found = window_of(contents)
        assert found.dtype == np.uint8, name
        # Pillow and TensorFlow round the product of colour and black differently.
        assert np.abs(found.astype(int) - cut(opened(contents))).max() <= ("cmyk" in name), name


def test_old_bmps(photo: np.ndarray) -> None:
    pixels = photo[::-1, :, ::-1].tobytes()  # Rows of 1920 bytes, from the bottom up, blue first.
    os2 = b"BM" + struct.pack("<IHHIIHHHH", 26 + len(pixels), 0, 0, 26, 12, 640, 427, 1, 24) + pixels
    assert (window_of(os2) == cut(photo)).all()
    palette = bytes([0, 0, 0, 0, 10, 20, 30, 0])  # blue, green, red, 0
    runs = bytes([3, 1, 1, 0, 0, 0, 4, 1, 0, 1])  # 3 of colour 1 and 1 of colour 0; the next row, 4 of colour 1.
    header = struct.pack("<IiiHHIIiiII", 40, 4, 2, 1, 8, 1, len(runs), 0, 0, 2, 2)
    contents = b"BM" + struct.pack("<IHHI", 62 + len(runs), 0, 0, 62) + header + palette + runs
    assert window_of(contents, (0, 0, 2, 4))[:, :, 0].tolist() == [[30, 30, 30, 30], [30, 30, 30, 0]]


@pytest.mark.parametrize("head", ["jfif", "exif", "jfif exif", "icc exif", "icc"])
def test_orientations_wherever_exif_stands(photo: np.ndarray, encode: Callable, head: str) -> None:
    plain = encode(photo, subsampling=0)
    tables = plain.find(b"\xff\xdb")
    icc = b"\xff\xe2\0\x40" + b"ICC_PROFILE\0" + bytes(50)
    for orientation in range(1, 9):
        for block in (with_orientation(orientation).tobytes(), in_other_byte_order(orientation)):
            exif = b"\xff\xe1" + (len(block) + 2).to_bytes(2, "big") + block
            parts = {"jfif": plain[2:tables], "exif": exif, "icc": icc}
            contents = plain[:2] + b"".join(parts[part] for part in head.split()) + plain[tables:]
            found = window_of(contents)
            assert (found == cut(opened(contents))).all(), orientation
            assert (window_of(contents, exif=False) == cut(photo_of(plain))).all()


def photo_of(contents: bytes) -> np.ndarray:
    return np.asarray(Image.open(io.BytesIO(contents)))


def in_other_byte_order(orientation: int) -> bytes:
    exif = with_orientation(orientation)
    exif.endian = "<"
    return exif.tobytes()


@pytest.mark.parametrize("kind", ["PNG", "WEBP", "TIFF"])
def test_orientations_of_other_formats(photo: np.ndarray, encode: Callable, kind: str) -> None:
    for orientation in (1, 3, 6):
        contents = encode(
            photo, kind, exif=with_orientation(orientation), **({"lossless": True} if kind == "WEBP" else {})
        )
        assert (window_of(contents) == cut(opened(contents))).all()
    assert kind == "TIFF" or (window_of(contents, exif=False) == cut(photo)).all()


@pytest.mark.parametrize(
    ("window", "ratio"), [((50, 100, 120, 200), 1), ((16, 32, 160, 200), 2), ((0, 0, 400, 640), 4)]
)
def test_scaled_decoding_keeps_the_size_asked_for(
    photo: np.ndarray, encode: Callable, window: tuple[int, ...], ratio: int
) -> None:
    y, x, height, width = window
    for orientation in (1, 6):
        contents = encode(photo, subsampling=0, exif=with_orientation(orientation))
        place = window if orientation == 1 else (x, 427 - y - height, width, height)
        found = window_of(contents, place, size_px=80).astype(int)
        assert found.shape[:2] == tuple(side // ratio for side in place[2:])
        means = cut(opened(contents), place).reshape(found.shape[0], ratio, found.shape[1], ratio, 3).mean((1, 3))
        assert np.abs(found - means).mean() < 2  # It is the mean of the larger picture's pixels.
        assert window_of(contents, place, size_px=80, scaled=False).shape[:2] == place[2:]


def test_scaled_windows_stay_inside_at_every_corner(encode: Callable) -> None:
    picture = np.full([37, 53, 3], 99, np.uint8)
    contents = encode(picture)
    for size_px in (1, 2, 3):
        for window in ((0, 0, 37, 53), (36, 52, 1, 1), (20, 30, 17, 23), (1, 1, 36, 52), (35, 3, 2, 50)):
            found = window_of(contents, window, size_px=size_px)
            assert min(found.shape[:2]) >= min(size_px, *window[2:])
            assert (found == 99).all()


def test_large_jpegs_are_decoded_the_same(monkeypatch: pytest.MonkeyPatch, photo: np.ndarray, encode: Callable) -> None:
    decoder.cache_clear()  # The limit is read as the graph is built.
    monkeypatch.setattr(decode, "LARGE_PIXELS", 1000)
    for progressive in (False, True):
        contents = encode(photo, subsampling=0, progressive=progressive)
        assert (window_of(contents) == cut(opened(contents))).all()
        assert window_of(contents, size_px=30).shape == (30, 50, 3)
    bare = without_adobe(encode(Image.fromarray(photo).convert("CMYK"), subsampling=0))
    assert (window_of(bare) == cut(opened(bare))).all()
    decoder.cache_clear()


def test_it_can_be_called_eagerly(photo: np.ndarray, encode: Callable) -> None:
    icc = {"icc_profile": bytes(500)}  # It is looked at in Python.
    for contents in (
        encode(photo),
        encode(photo, **icc),
        encode(photo, exif=with_orientation(6)),
        encode(photo, "GIF"),
    ):
        found = decode_window(tf.constant(contents), lambda height, width: tf.constant(WINDOW))
        assert (found.numpy() == window_of(contents)).all()


def without_adobe(contents: bytes) -> bytes:
    at = contents.find(b"\xff\xee")
    return contents[:at] + contents[at + 2 + int.from_bytes(contents[at + 2 : at + 4], "big") :]


def test_cmyk_is_converted(photo: np.ndarray, encode: Callable) -> None:
    contents = encode(Image.fromarray(photo).convert("CMYK"), quality=95)
    for jpeg in (contents, without_adobe(contents), without_adobe(contents) + b"a trailer"):
        assert np.abs(window_of(jpeg).astype(int) - cut(photo)).mean() < 6


@pytest.mark.parametrize("orientation", [1, 3, 6])
def test_a_picture_cut_short_by_an_end_marker_fails_where_it_is_missing(
    photo: np.ndarray, encode: Callable, orientation: int
) -> None:
    contents = encode(photo, exif=with_orientation(orientation))
    half = contents[: len(contents) // 2] + b"\xff\xd9"
    top, bottom = {
        1: ((0, 0, 90, 600), (420, 0, 7, 600)),
        3: ((337, 0, 90, 600), (0, 0, 7, 600)),
        6: ((0, 337, 600, 90), (0, 0, 600, 7)),
    }[orientation]
    for options in ({}, {"size_px": 4}):
        found = window_of(half, top, **options)
        assert (found == window_of(contents, top, **options)).all()
        for missing in (bottom, (0, 0, *opened(contents).shape[:2])):
            with pytest.raises(tf.errors.InvalidArgumentError, match="cut short: its pixel data end at byte"):
                window_of(half, missing, **options)


@pytest.mark.parametrize("kind", ["progressive", "CMYK", "progressive CMYK", "grey", "optimized", "late"])
def test_what_is_missing_of_jpegs_of_any_kind_is_noticed(photo: np.ndarray, encode: Callable, kind: str) -> None:
    mode = "CMYK" if "CMYK" in kind else "L" if kind == "grey" else "RGB"
    options = {"progressive": True} if "progressive" in kind else {"optimize": kind == "optimized"}
    contents = encode(Image.fromarray(photo).convert(mode), **options)
    if kind == "late":  # Its frame header is not where it is in most.
        contents = contents[:20] + b"\xff\xfe\0\x05abc" + contents[20:]
    whole = (0, 0, *photo.shape[:2])
    assert np.abs(window_of(contents, whole).astype(int) - opened(contents)).max() <= 1
    first = contents.find(b"\xff\xda")
    for tenth in range(1, 10):
        # Of a progressive one, less than the last bit of the detail.
        stop = first + (len(contents) - first) * tenth // (20 if "progressive" in kind else 10)
        with pytest.raises(tf.errors.InvalidArgumentError, match="the JPEG is cut short: it"):
            window_of(contents[:stop] + b"\xff\xd9", whole)


@pytest.mark.parametrize("behind", [b"\xff\xc4", b"\xff\xda"])
def test_exif_behind_the_tables_does_not_count(photo: np.ndarray, encode: Callable, behind: bytes) -> None:
    plain = encode(photo)
    block = with_orientation(6).tobytes()
    at = plain.find(behind)
    contents = plain[:at] + b"\xff\xe1" + (len(block) + 2).to_bytes(2, "big") + block + plain[at:]
    assert (window_of(contents) == window_of(plain)).all()
    trailed = contents + b"a trailer"  # Takes another way through the decoder.
    assert (window_of(trailed) == window_of(plain)).all()


def test_cmyk_with_half_an_adobe_marker_is_refused_rather_than_shown_inverted(
    photo: np.ndarray, encode: Callable
) -> None:
    plain = without_adobe(encode(Image.fromarray(photo).convert("CMYK"), quality=95))
    contents = plain[:2] + b"\xff\xee\0\x08Adobe\x64" + plain[2:]
    with pytest.raises(tf.errors.InvalidArgumentError, match="the JPEG is damaged"):  # Pillow takes no such file.
        window_of(contents)


def test_a_picture_that_ends_in_the_grey_of_missing_data_passes(photo: np.ndarray, encode: Callable) -> None:
    picture = photo.copy()
    picture[200:] = 128
    for contents in (encode(picture), encode(picture, progressive=True), encode(picture, restart_marker_blocks=9)):
        assert (window_of(contents, (300, 0, 127, 640)) == 128).all()


@pytest.mark.parametrize("contents", [b"", b"\xff", b"GIF89a", b"BM", b"RIFF", b"hello, world", b"\0" * 100])
def test_what_is_no_picture_fails(contents: bytes) -> None:
    with pytest.raises((tf.errors.OpError, UnicodeDecodeError)):
        window_of(contents)


@pytest.mark.parametrize("window", [(0, 0, 428, 10), (-1, 0, 5, 5), (0, 640, 5, 5), (0, 0, 0, 5)])
def test_a_window_that_leaves_the_picture_fails(photo: np.ndarray, encode: Callable, window: tuple[int, ...]) -> None:
    for contents in (encode(photo), encode(photo, "PNG")):
        if contents.startswith(b"\x89PNG") and window[2] == 0:
            continue  # An empty cut is one.
        with pytest.raises(tf.errors.InvalidArgumentError):
            window_of(contents, window)


def test_the_same_inside_a_dataset(photo: np.ndarray, encode: Callable) -> None:
    encoded = [encode(photo), encode(photo, "PNG"), encode(photo, exif=with_orientation(6)), encode(photo, "BMP")]
    dataset = tf.data.Dataset.from_tensor_slices(encoded)
    dataset = dataset.map(lambda contents: decode_window(contents, lambda h, w: tf.constant(WINDOW)))
    for contents, found in zip(encoded, dataset, strict=True):
        assert (found.numpy() == window_of(contents)).all()
