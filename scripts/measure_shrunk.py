"""Measures what pipeline.cache=shrunk gives in speed, what it takes of the disk, and what it costs in image quality.

    python scripts/measure_shrunk.py FOLDER [--photos 300] [--rounds 3] [--threads 2] [--short_sides 512 384 768]

FOLDER is searched for JPEGs, which should be large. Each image is a window of 0.08 to 1 of its photo's area, decoded
and resized to 224 x 224 by TensorFlow's ops.

Speed is images per second and per second of CPU time, in turn: without the cache, the first epoch (an empty folder),
the second one of the same run, and the first one of a later run. The medians of the rounds are printed, and the median
of the rounds' ratios.

Quality is the PSNR against the window of the original in full, resized with antialiasing, over all windows and over
those that have fewer pixels in the small photo than the image made from it, which are enlarged.
"""

from __future__ import annotations

import _venv  # isort: skip  # noqa: F401  # First: it may go on with another interpreter.

import argparse
import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import numpy as np
import tensorflow as tf
from PIL import Image

from slimexp.pipeline.copies.cache import ShrunkCache
from slimexp.pipeline.copies.recipe import shrink
from slimexp.pipeline.images.decode import decode_window
from slimexp.pipeline.images.jpeg_header import read_jpeg_header

SIZE_PX = 224
NAMES_AT_A_TIME = 64
SEED = 0


def draw_window(height: tf.Tensor, width: tf.Tensor, number: tf.Tensor) -> tf.Tensor:
    """Draws a window of 0.08 to 1 of the area with an aspect ratio of 3/4 to 4/3, as near as it fits."""
    uniforms = tf.random.stateless_uniform([4], [tf.cast(SEED, tf.int64), number])
    height, width = tf.cast(height, tf.float32), tf.cast(width, tf.float32)
    area = (0.08 + 0.92 * uniforms[0]) * height * width
    ratio = 0.75 + uniforms[1] * (4 / 3 - 0.75)
    rows, columns = tf.minimum(tf.sqrt(area / ratio), height), tf.minimum(tf.sqrt(area * ratio), width)
    return tf.cast(tf.stack([uniforms[2] * (height - rows), uniforms[3] * (width - columns), rows, columns]), tf.int32)


def make_image(contents: tf.Tensor, number: tf.Tensor) -> tf.Tensor:
    """Makes the finished image, as the pipeline does."""
    window = decode_window(contents, lambda height, width: draw_window(height, width, number), size_px=SIZE_PX)
    return tf.image.resize(window, [SIZE_PX, SIZE_PX])


def epoch(paths: list[str], cache: ShrunkCache | None, threads: int) -> tuple[float, float]:
    """Reads all photos once; returns seconds and CPU seconds."""
    names = tf.data.Dataset.from_tensor_slices(paths).batch(NAMES_AT_A_TIME)
    names = (names.map(cache.locate) if cache else names).unbatch().enumerate()
    read: Callable[[tf.Tensor], tf.Tensor] = cache.read if cache else tf.io.read_file

    def finish(number: tf.Tensor, name: tf.Tensor) -> tf.Tensor:
        return make_image(read(name), number)

    images = names.map(finish, num_parallel_calls=threads, deterministic=True).batch(32)
    options = tf.data.Options()
    options.threading.private_threadpool_size = threads + 1
    options.threading.max_intra_op_parallelism = 1
    options.autotune.enabled = False
    iterator = iter(images.with_options(options))
    started, cpu_started = time.perf_counter(), time.process_time()
    for _ in iterator:
        pass
    return time.perf_counter() - started, time.process_time() - cpu_started


def measure_speed(paths: list[str], rounds: int, threads: int) -> None:
    """Prints the table of speeds."""
    steps = ("without", "first epoch", "second epoch", "later run")
    secs = np.zeros([rounds, len(steps), 2])
    for round_number in range(rounds + 1):  # The first, to warm up, isn't counted.
        with tempfile.TemporaryDirectory() as folder:
            cache = ShrunkCache(folder)
            caches = (None, cache, cache, ShrunkCache(folder))
            for step, used in enumerate(caches):
                taken = epoch(paths, used, threads)
                if round_number:
                    secs[round_number - 1, step] = taken
            summary = cache.summary()
    per_sec = len(paths) / secs
    print(f"{len(paths)} photos, {threads} threads, median of {rounds} rounds")
    print("| | images/s | images per CPU second | against the first epoch | against none |")
    print("|---|---|---|---|---|")
    for step, name in enumerate(steps):
        medians = np.median(per_sec[:, step], axis=0)
        ratios = [np.median(per_sec[:, step, 1] / per_sec[:, other, 1]) for other in (1, 0)]
        print(f"| {name} | {medians[0]:.0f} | {medians[1]:.0f} | {ratios[0]:.2f} | {ratios[1]:.2f} |")
    print(summary)


def psnr(image: np.ndarray, reference: np.ndarray) -> float:
    """Returns the peak signal-to-noise ratio in dB."""
    return 10 * np.log10(255**2 / np.mean((image.astype(np.float64) - reference) ** 2))


_make_image_in_graph = tf.function(make_image)


def compare(contents: bytes, original: Image.Image, numbers: range) -> list[tuple[float, bool]]:
    """Returns the PSNR of images from a photo or its small copy, and which of them were enlarged."""
    header = read_jpeg_header(contents)
    scales = original.width / header.width, original.height / header.height
    results = []
    for number in numbers:
        y, x, rows, columns = draw_window(tf.constant(header.height), tf.constant(header.width), number).numpy()
        # The same part of the original, to fractions of its pixels.
        box = (x * scales[0], y * scales[1], (x + columns) * scales[0], (y + rows) * scales[1])
        reference = np.asarray(original.resize((SIZE_PX, SIZE_PX), Image.Resampling.BILINEAR, box=box))
        image = _make_image_in_graph(tf.constant(contents), tf.constant(number, tf.int64)).numpy()
        results.append((psnr(image, reference), min(rows, columns) < SIZE_PX))
    return results


def measure_quality(paths: list[str], short_sides: list[int]) -> None:
    """Prints the table of qualities and file sizes."""
    print(f"{len(paths)} photos, 4 windows each")
    print("| | KB a photo | PSNR in dB | of windows that are not enlarged | of enlarged ones | share of these |")
    print("|---|---|---|---|---|---|")
    for short_side in (None, *short_sides):
        results: list[tuple[float, bool]] = []
        num_bytes = 0
        for first, path in enumerate(paths):
            contents = Path(path).read_bytes()
            with Image.open(path) as file:
                original = file.convert("RGB")
            if short_side is not None:
                small = shrink(contents, read_jpeg_header(contents), short_side=short_side)
                assert small is not None, path
                contents = small
            num_bytes += len(contents)
            results += compare(contents, original, range(4 * first, 4 * first + 4))
        values, enlarged = (np.array(column) for column in zip(*results, strict=True))
        groups = (values, values[~enlarged], values[enlarged])
        cells = " | ".join(f"{group.mean():.1f}" if group.size else "-" for group in groups)
        name = "without" if short_side is None else f"short side {short_side}"
        print(f"| {name} | {num_bytes / len(paths) / 1024:.0f} | {cells} | {enlarged.mean():.0%} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--photos", type=int, default=300)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--short_sides", type=int, nargs="+", default=[512, 384, 768])
    args = parser.parse_args()
    paths = sorted(str(path.resolve()) for path in args.folder.rglob("*.jpg"))[: args.photos]
    if not paths:
        parser.error(f"{args.folder} has no *.jpg.")
    measure_quality(paths[:50], args.short_sides)
    print()
    measure_speed(paths, args.rounds, args.threads)


if __name__ == "__main__":
    main()
