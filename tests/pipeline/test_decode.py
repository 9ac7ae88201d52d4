from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image

from slimexp.pipeline.decode import decode_whole, decode_window

WINDOW = (50, 100, 120, 200)  # y, x, height, width


def window_of(contents: bytes, window: tuple[int, ...] = WINDOW) -> np.ndarray:
    return decode_window(tf.constant(contents), lambda height, width: tf.constant(window)).numpy()


def cut(picture: np.ndarray) -> np.ndarray:
    y, x, height, width = WINDOW
    return picture[y : y + height, x : x + width]


def opened(contents: bytes) -> np.ndarray:
    import io

    return np.asarray(Image.open(io.BytesIO(contents)).convert("RGB"))


@pytest.mark.parametrize("progressive", [False, True])
def test_a_jpeg_window_is_the_cut_of_the_whole(photo: np.ndarray, encode: Callable, progressive: bool) -> None:
    contents = encode(photo, quality=90, progressive=progressive)
    whole = tf.io.decode_jpeg(contents, channels=3).numpy()
    found = window_of(contents).astype(int)
    assert np.abs(found - cut(whole)).max() <= 16  # At the rim, where colour is smoothed.
    assert (found[2:-2, 2:-2] == cut(whole)[2:-2, 2:-2]).all()
    full_colour = encode(photo, quality=90, subsampling=0)
    assert (window_of(full_colour) == cut(tf.io.decode_jpeg(full_colour, channels=3).numpy())).all()


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
    with pytest.raises(tf.errors.InvalidArgumentError, match="Invalid JPEG data"):
        window_of(contents, (0, 0, 8, 8))


def test_bytes_after_the_end_marker_do_no_harm(photo: np.ndarray, encode: Callable) -> None:
    contents = encode(photo, quality=90)
    assert (window_of(contents + b"\0" * 99) == cut(tf.io.decode_jpeg(contents, channels=3).numpy())).all()


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
        "png 16 bit": (Image.fromarray(photo[:, :, 0].astype(np.uint16) * 257), "PNG", {}),
        "gif": (image, "GIF", {}),
        "gif animated": (image, "GIF", animated),
        "bmp": (image, "BMP", {}),
        "bmp grey": (image.convert("L"), "BMP", {}),
        "bmp palette": (image.quantize(16), "BMP", {}),
        "bmp 32 bit": (image.convert("RGBA"), "BMP", {}),
        "webp": (image, "WEBP", {"lossless": True}),
        "webp alpha": (see_through, "WEBP", {"lossless": True, "exact": True}),
        "webp alpha animated": (see_through, "WEBP", {"lossless": True, "exact": True, **animated}),
        "jpeg grey": (image.convert("L"), "JPEG", {}),
    }


def test_other_formats_are_told_by_their_contents(photo: np.ndarray, encode: Callable) -> None:
    for name, (image, kind, options) in pictures(photo).items():
        contents = encode(image, kind, **options)
        expected = np.dstack([photo[:, :, 0]] * 3) if name == "png 16 bit" else opened(contents)
        found = window_of(contents)
        assert found.dtype == np.uint8, name
        assert np.abs(found.astype(int) - cut(expected)).max() <= (16 if kind == "JPEG" else 0), name
        assert decode_whole(tf.constant(contents)).shape == photo.shape, name


def test_cmyk_is_converted(photo: np.ndarray, encode: Callable) -> None:
    contents = encode(Image.fromarray(photo).convert("CMYK"), quality=95)
    assert np.abs(window_of(contents).astype(int) - cut(photo)).mean() < 6


@pytest.mark.parametrize("contents", [b"", b"\xff", b"GIF89a", b"BM", b"RIFF", b"hello, world", b"\0" * 100])
def test_what_is_no_picture_fails(contents: bytes) -> None:
    with pytest.raises((tf.errors.OpError, UnicodeDecodeError)):
        window_of(contents)


def test_an_opaque_animated_webp_is_refused(photo: np.ndarray, encode: Callable) -> None:
    # TensorFlow would return it with its colours out of step.
    image = Image.fromarray(photo)
    contents = encode(image, "WEBP", save_all=True, append_images=[image.rotate(180)], kmin=1, kmax=2)
    contents = contents[:20] + bytes([contents[20] & ~0x10]) + contents[21:]
    with pytest.raises(tf.errors.InvalidArgumentError, match="WebP Animation must be 4 channel"):
        window_of(contents)


def test_a_run_length_encoded_bmp_is_refused(photo: np.ndarray, encode: Callable) -> None:
    contents = bytearray(encode(Image.fromarray(photo).quantize(16), "BMP"))
    contents[30] = 1  # The header's compression.
    with pytest.raises(tf.errors.InvalidArgumentError, match="run-length"):
        window_of(bytes(contents))


def test_the_same_inside_a_dataset(photo: np.ndarray, encode: Callable) -> None:
    encoded = [encode(photo), encode(photo, "PNG"), encode(Image.fromarray(photo).quantize(9), "BMP")]
    dataset = tf.data.Dataset.from_tensor_slices(encoded)
    dataset = dataset.map(lambda contents: decode_window(contents, lambda h, w: tf.constant(WINDOW)))
    for contents, found in zip(encoded, dataset, strict=True):
        assert (found.numpy() == window_of(contents)).all()
