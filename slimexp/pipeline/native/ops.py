"""The native op from Python: the headers of a batch of JPEGs, and the batch's finished images.

Where a window is decoded at its full size, the images are those of a careful full decode cut to the window and resized
by `tf.raw_ops.ResizeBilinear`, to 0.02 of a grey level. How close they are to a careful full decode with an antialiased
resize, PSNR in dB, mean and worst tenth, by the scale at which a window can be decoded, next to the two ways of
TensorFlow's ops (`scripts/measure_native_op.py` on 300 photo-like JPEGs of 1600 x 1200, 200 windows, 224 pixels):

    scale  windows   native       decode_and_crop_jpeg   the same with ratio=
    1/2        138   41.0 (36.5)  34.7 (31.1)            33.0 (27.6)
    1/4         62   42.3 (38.4)  31.3 (27.8)            27.6 (22.6)

Decoding at a smaller scale is itself a careful way of shrinking, so it loses nothing here. With `ratio=` the window is
in whole pixels of the small picture, which shifts it; the native op keeps the fraction.
"""

from __future__ import annotations

import ctypes
import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import tensorflow as tf

from slimexp.pipeline.native import build

__all__ = ["PoolStats", "available", "decode_windows", "load", "pool_stats", "read_headers"]


@dataclasses.dataclass(frozen=True)
class PoolStats:
    """What a pool of threads did since it began.

    Attributes:
        images: The images made, the ones left included.
        cpu_secs: The processor time that making them took, summed over the threads.
        wall_secs: The time that passed meanwhile, summed over the threads; what it is more was spent waiting for a
            processor core.
        waiting: The images that are finished while their batch is not.
        threads: The pool's threads.
    """

    images: int
    cpu_secs: float
    wall_secs: float
    waiting: int
    threads: int


def load(path: Path | None = None) -> None:
    """Loads the library, once for the process; the functions below do so by themselves.

    Args:
        path: The library; by default the one in the cache.

    Raises:
        build.BuildError: If it has not been built, with the reason.
        tf.errors.NotFoundError: If it can't be loaded.
    """
    _load(path)


def available() -> bool:
    """Returns whether the library is there and can be loaded; nothing is built."""
    try:
        _load(None)
    except (build.BuildError, tf.errors.OpError, OSError):
        return False
    return True


# Called while a function is traced: AutoGraph is to leave alone what looks for the library.
@tf.autograph.experimental.do_not_convert
def read_headers(contents: tf.Tensor, *, exif: bool = True) -> tuple[tf.Tensor, tf.Tensor]:
    """Reads the sizes of JPEGs out of their headers.

    Args:
        contents: string [n], the bytes of image files.
        exif: Whether to heed the orientation that EXIF names.

    Returns:
        Sizes, int32 [n, 2], height and width as displayed, that is after the orientation; 0, 0 for what
        `decode_windows` does not take: what is no JPEG of 8 bits and of one or three channels, baseline or
        progressive, or has lost its end. And orientations, int32 [n], 1..8, EXIF 2.3, tag 0x0112; 1 where there is
        none, where it is damaged, and throughout without `exif`.
    """
    return _load(None)[0].slimexp_jpeg_header(contents=contents, exif=exif)


@tf.autograph.experimental.do_not_convert
def decode_windows(
    contents: tf.Tensor,
    windows: tf.Tensor,
    orientations: tf.Tensor,
    flips: tf.Tensor,
    colors: tf.Tensor | None = None,
    *,
    scale: tf.Tensor | float = 1.0,
    offset: tf.Tensor | Sequence[float] = (0.0, 0.0, 0.0),
    size_px: int,
    threads: int,
    pool: str,
    color_orders: Sequence[str] = (),
    max_pixels: int = 0,
    dtype: tf.DType = tf.float32,
) -> tuple[tf.Tensor, tf.Tensor]:
    """Makes finished images of the windows of JPEGs, on a pool of threads.

    A window is resized bilinearly, with half-pixel centres, two taps a side and no antialiasing, as
    `tf.raw_ops.ResizeBilinear` resizes a cut-out; one that is at least 2, 4 or 8 times `size_px` in both directions is
    decoded at a half, a quarter or an eighth of its size before. Then the colours are distorted, if asked for, and the
    value v, 0..255, becomes `v * scale + offset`.

    Args:
        contents: string [n], the bytes of image files.
        windows: int32 [n, 4], y, x, height and width in pixels of the picture as displayed.
        orientations: int32 [n], 1..8, from `read_headers`.
        flips: bool [n], whether to mirror left and right, after the orientation.
        colors: None, or float32 [n, 5]: the number of one of `color_orders`; what brightness adds, in units of the full
            range; the factor of saturation; what hue adds, in turns, -1..1; the factor of contrast. As
            `tf.image.adjust_brightness` and its like do them on values of 0..1, clipped to 0..1 at the end.
        scale: float32 [].
        offset: float32 [3], of each channel.
        size_px: The images' side.
        threads: The pool's threads.
        pool: The pool's name. Calls with the same name and number of threads share a pool, and the oldest call is
            served first. It ends when no such op is left.
        color_orders: Which distortions there are, in which order: strings of the letters b (brightness), s
            (saturation), h (hue), c (contrast), each at most 16 long.
        max_pixels: Pictures of more pixels are left; 0: no limit.
        dtype: float32; uint8: rounded and clamped to 0..255; or bfloat16.

    Returns:
        Images, [n, size_px, size_px, 3], RGB; and whether each was made, bool [n]. What `read_headers` gives no size
        for is left, whatever its window is, and so is what is found damaged: its values are zeros.

    Raises:
        tf.errors.InvalidArgumentError: (When run) If shapes don't go together, a window is not within its picture, an
            orientation is not 1..8, or there is no such colour order.
    """
    return _load(None)[0].slimexp_decode_jpeg_window(
        contents=contents,
        windows=windows,
        orientations=orientations,
        flips=flips,
        colors=tf.zeros([0, 5]) if colors is None else colors,
        scale=tf.cast(scale, tf.float32),
        offset=tf.cast(offset, tf.float32),
        size=size_px,
        threads=threads,
        pool=pool,
        color_orders=list(color_orders),
        max_pixels=max_pixels,
        dtype=dtype,
    )


def pool_stats(pool: str) -> PoolStats | None:
    """Returns what the pool of that name did; None if there is none (yet, or any more)."""
    values = (ctypes.c_int64 * 5)()
    if not _load(None)[1].slimexp_pool_stats(pool.encode(), values):
        return None
    images, cpu_ns, wall_ns, waiting, threads = values
    return PoolStats(images, cpu_ns / 1e9, wall_ns / 1e9, waiting, threads)


_loaded: tuple[Any, ctypes.CDLL] | None = None


def _load(path: Path | None) -> tuple[Any, ctypes.CDLL]:
    """Returns the ops and the library's plain functions."""
    global _loaded
    if _loaded is None:
        if path is None:
            path, reason = build.find()
            if path is None:
                raise build.BuildError(f"the native op is not there: {reason}")
        module = tf.load_op_library(str(path))
        library = ctypes.CDLL(str(path))
        library.slimexp_pool_stats.argtypes = [ctypes.c_char_p, ctypes.POINTER(ctypes.c_int64)]
        library.slimexp_pool_stats.restype = ctypes.c_int
        _loaded = module, library
    return _loaded
