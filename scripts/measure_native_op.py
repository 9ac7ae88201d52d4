"""Measures the native decoder: how close its images are to a careful resize, and how many it makes.

    python scripts/measure_native_op.py PHOTOS [--size_px 224] [--windows 200] [--seconds 5] [--threads 2]

PHOTOS is a folder with JPEGs, best as large as a camera takes them. The first table gives the PSNR in dB, mean and
worst tenth, of each way's image against a full decode with an antialiased bilinear resize, by the scale at which the
window can be decoded; windows of an eighth to the whole of the picture's area. The second line gives images for each
second of processor time.
"""

from __future__ import annotations

import _venv  # isort: skip  # noqa: F401  # First: it may go on with another interpreter.

import argparse
import collections
import time
from pathlib import Path

import numpy as np
import tensorflow as tf

from slimexp.pipeline.native import build, ops

_BATCH = 32


def main() -> None:
    """Reads the command line, measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("photos", type=Path)
    parser.add_argument("--size_px", type=int, default=224)
    parser.add_argument("--windows", type=int, default=200)
    parser.add_argument("--seconds", type=float, default=5)
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    path, reason = build.ensure()
    if path is None:
        raise SystemExit(f"The native decoder is not there: {reason}")
    paths = sorted(path for path in options.photos.rglob("*") if path.suffix.lower() in (".jpg", ".jpeg"))
    contents = [path.read_bytes() for path in paths[:2000]]
    sizes = ops.read_headers(tf.constant(contents), exif=False)[0].numpy()
    usable = [(data, *size) for data, size in zip(contents, sizes.tolist(), strict=True) if min(size) > 0]
    if not usable:
        raise SystemExit(f"There is no JPEG in {options.photos} that the native decoder takes.")
    rng = np.random.default_rng(0)
    measure_quality(usable, options.size_px, options.windows, rng)
    measure_speed(usable, options.size_px, options.seconds, options.threads, rng)


def draw_window(height: int, width: int, rng: np.random.Generator) -> tuple[int, int, int, int]:
    """Draws y, x, height and width of a window of an eighth to the whole of the area, sides 3:4 to 4:3."""
    ratio = rng.uniform(3 / 4, 4 / 3)
    highest = min(height, width / ratio)
    rows = rng.uniform(min(highest, (height * width / 8 / ratio) ** 0.5), highest)
    h, w = max(1, int(rows)), max(1, min(width, int(rows * ratio)))
    return int(rng.integers(0, height - h + 1)), int(rng.integers(0, width - w + 1)), h, w


def measure_quality(usable: list[tuple[bytes, int, int]], size_px: int, count: int, rng: np.random.Generator) -> None:
    """Prints the table of PSNR."""
    found: dict[int, dict[str, list[float]]] = collections.defaultdict(lambda: collections.defaultdict(list))
    for _ in range(count):
        data, height, width = usable[rng.integers(len(usable))]
        window = draw_window(height, width, rng)
        shorter = min(window[2:])
        ratio = max(ratio for ratio in (1, 2, 4, 8) if ratio == 1 or shorter // ratio >= size_px)
        y, x, h, w = window
        whole = tf.io.decode_jpeg(data, channels=3, dct_method="INTEGER_ACCURATE")[y : y + h, x : x + w]
        careful = tf.image.resize(whole, [size_px] * 2, antialias=True)
        scaled = [y // ratio, x // ratio, max(1, h // ratio), max(1, w // ratio)]
        ways = {
            "native": _native([data], [window], size_px, 1)[0][0],
            "TensorFlow": _resize(tf.image.decode_and_crop_jpeg(data, window, channels=3), size_px),
            "TensorFlow, ratio=": _resize(
                tf.image.decode_and_crop_jpeg(data, scaled, channels=3, ratio=ratio), size_px
            ),
        }
        for way, image in ways.items():
            error = float(tf.reduce_mean((image - careful) ** 2))
            found[ratio][way].append(10 * np.log10(255**2 / max(error, 1e-9)))
    print("scale  windows  " + "  ".join(f"{way:>20s}" for way in ("native", "TensorFlow", "TensorFlow, ratio=")))
    for ratio in sorted(found):
        columns = [f"{np.mean(values):13.1f} ({np.percentile(values, 10):4.1f})" for values in found[ratio].values()]
        print(f"  1/{ratio}  {len(next(iter(found[ratio].values()))):7d}  " + "  ".join(columns))


def measure_speed(
    usable: list[tuple[bytes, int, int]], size_px: int, seconds: float, threads: int, rng: np.random.Generator
) -> None:
    """Prints images for each second of the processor, of the op's threads and of the whole process."""
    batches = []
    for _ in range(max(8, len(usable) // _BATCH)):
        chosen = [usable[rng.integers(len(usable))] for _ in range(_BATCH)]
        windows = [draw_window(height, width, rng) for _, height, width in chosen]
        batches.append((tf.constant([data for data, _, _ in chosen]), tf.constant(windows, tf.int32)))
    call = tf.function(lambda data, windows: _native(data, windows, size_px, threads, pool="speed"))
    for data, windows in batches[:2]:
        call(data, windows)
    before, cpu, wall, images = ops.pool_stats("speed"), time.process_time(), time.monotonic(), 0
    assert before is not None
    while time.monotonic() - wall < seconds:
        data, windows = batches[images // _BATCH % len(batches)]
        call(data, windows)[0].shape.assert_is_compatible_with([_BATCH, size_px, size_px, 3])
        images += _BATCH
    after, cpu = ops.pool_stats("speed"), time.process_time() - cpu
    assert after is not None
    pool = (after.images - before.images) / (after.cpu_secs - before.cpu_secs)
    print(f"{images / cpu:.0f} images for each second of the processor; {pool:.0f} counting the op's threads alone")


def _native(
    data: list[bytes] | tf.Tensor, windows: object, size_px: int, threads: int, pool: str = "quality"
) -> tuple[tf.Tensor, tf.Tensor]:
    data = tf.convert_to_tensor(data)
    # As stored, as TensorFlow takes it.
    orientations = tf.ones(tf.shape(data), tf.int32)
    flips = tf.zeros(tf.shape(data), tf.bool)
    return ops.decode_windows(data, windows, orientations, flips, size_px=size_px, threads=threads, pool=pool)


def _resize(image: tf.Tensor, size_px: int) -> tf.Tensor:
    return tf.raw_ops.ResizeBilinear(images=image[None], size=[size_px] * 2, half_pixel_centers=True)[0]


if __name__ == "__main__":
    main()
