"""Measures steps of one's own, the same one written four ways: TensorFlow, NumPy, a Python loop over pixels, a C++ op.

    python scripts/measure_steps.py [PHOTOS] [--size_px 224] [--threads 2] [--secs 2] [--rounds 3]

The first table is of the step alone, on finished images in memory. With PHOTOS, a folder of JPEGs, a second one is of
the whole pipeline with the step in it, made by TensorFlow's ops and with the native op in front of the step. Processor
time counts all threads; turns are taken, and medians given, so that a busy machine does not favour one.
"""

from __future__ import annotations

import _venv  # isort: skip  # noqa: F401  # First: it may go on with another interpreter.

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import tensorflow as tf

from scripts.examples import steps as examples
from slimexp.dataset.split import Split
from slimexp.errors import UserError
from slimexp.pipeline import PipelineSettings, build_dataset
from slimexp.pipeline.native import build
from slimexp.pipeline.native.build_op import build_op
from slimexp.pipeline.preprocessing import VggPreprocessing
from slimexp.pipeline.steps import Step, SteppedPreprocessing, load_op

_BATCH = 32
# A pixel loop takes so long that a batch of them would be all there is to see.
_LOOP = "NumPy, loop over pixels"

Measure = Callable[[float], tuple[float, float]]


def main() -> None:
    """Reads the command line, measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("photos", type=Path, nargs="?")
    parser.add_argument("--size_px", type=int, default=224)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--secs", type=float, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    steps = make_steps()
    alone = {name: _alone(step, options.size_px, options.threads) for name, step in steps.items()}
    print(f"The step alone, {options.size_px} x {options.size_px}, {options.threads} threads:")
    found = _take_turns(alone, options.rounds, options.secs)
    base = found.pop("nothing")[1]
    least = found["NumPy"][1] - base
    for name, (rate, cpu_secs) in found.items():
        own = cpu_secs - base
        print(
            f"  {name:24s} {own * 1e6:10,.0f} us of processor time, {own / least:7.2f} x NumPy; {rate:8,.0f} images/s"
        )
    if options.photos is None:
        return
    del steps[_LOOP]
    paths = sorted(path for path in options.photos.rglob("*") if path.suffix.lower() in (".jpg", ".jpeg"))[:1024]
    split = Split("train", [str(path).encode() for path in paths], np.zeros(len(paths), np.int32), str(options.photos))
    decoders = ["tensorflow", *(["native"] if build.ensure()[0] else [])]
    whole = {
        f"{name}, {decoder}": _whole(split, step, decoder, options.size_px, options.threads)
        for name, step in steps.items()
        for decoder in decoders
    }
    print(f"The whole pipeline, {len(paths)} photos, images for each second of processor time, and a second:")
    for name, (rate, cpu_secs) in _take_turns(whole, options.rounds, options.secs).items():
        print(f"  {name:24s} {1 / cpu_secs:8,.0f} {rate:8,.0f}")


def make_steps() -> dict[str, Step | None]:
    """Returns the step in each of its ways; without the C++ one where it cannot be built."""
    keys = {"most": 0.5}
    steps: dict[str, Step | None] = {
        "nothing": None,
        "TensorFlow": Step("TensorFlow", examples.fade, keys, num_draws=1),
        "NumPy": Step("NumPy", examples.fade_numpy, keys, num_draws=1, is_numpy=True),
        _LOOP: Step(_LOOP, examples.fade_numpy_loop, keys, num_draws=1, is_numpy=True),
    }
    try:
        source = Path(__file__).resolve().parent / "examples" / "fade_op.cc"
        library = build_op([source], Path(tempfile.mkdtemp()) / "fade.so")
        steps["C++ op"] = Step("C++ op", load_op("C++ op", str(library), "fade"), keys, num_draws=1)
    except UserError as error:
        print(f"Without the C++ op: {error}")
    return steps


def _alone(step: Step | None, size_px: int, threads: int) -> Measure:
    random = np.random.RandomState(0)
    images = tf.constant(random.uniform(-1, 1, [16, size_px, size_px, 3]), tf.float32)
    dataset = tf.data.Dataset.range(np.iinfo(np.int64).max)
    size = 1 if step is not None and step.key == _LOOP else _BATCH

    def apply(number: tf.Tensor) -> tf.Tensor:
        # A copy, as an image from a pipeline is nobody else's; what it costs is part of "nothing" too.
        image = images[number % 16]
        # One value of it: the image's size would be known without making it.
        return (image if step is None else step(image, tf.fill([1], 0.5)))[0, 0, 0]

    dataset = dataset.map(apply, num_parallel_calls=threads, deterministic=True).batch(size)
    return _measure(_with_threads(dataset, threads + 1), size)


def _whole(split: Split, step: Step | None, decoder: str, size_px: int, threads: int) -> Measure:
    inner = VggPreprocessing(size_px, is_training=True)
    settings = PipelineSettings(threads=threads, readers=2, batch_size=_BATCH, decoder=decoder)
    preprocessing = inner if step is None else SteppedPreprocessing(inner, [step])
    return _measure(
        build_dataset(split, preprocessing=preprocessing, settings=settings, seed=0, is_training=True), _BATCH
    )


def _measure(dataset: tf.data.Dataset, size: int) -> Measure:
    def measure(secs: float) -> tuple[float, float]:
        """Returns images a second, and seconds of processor time an image."""
        elements = iter(dataset)
        for _ in range(4):
            next(elements)
        cpu, start, count = time.process_time(), time.perf_counter(), 0
        while time.perf_counter() - start < secs:
            next(elements)
            count += size
        return count / (time.perf_counter() - start), (time.process_time() - cpu) / count

    return measure


def _take_turns(measures: dict[str, Measure], rounds: int, secs: float) -> dict[str, tuple[float, float]]:
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in measures}
    for _ in range(rounds):
        for name, measure in measures.items():
            found[name].append(measure(secs))
    return {
        name: (statistics.median(rate for rate, _ in values), statistics.median(cpu for _, cpu in values))
        for name, values in found.items()
    }


def _with_threads(dataset: tf.data.Dataset, count: int) -> tf.data.Dataset:
    options = tf.data.Options()
    options.autotune.enabled = False
    options.threading.private_threadpool_size = count
    options.threading.max_intra_op_parallelism = 1
    return dataset.with_options(options)


if __name__ == "__main__":
    main()
