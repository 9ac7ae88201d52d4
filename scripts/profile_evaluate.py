"""Shows where `job=evaluate` spends its time, on images of the digits' size.

    python scripts/profile_evaluate.py [--images 5000] [--model lenet] [--rounds 3] [OVERRIDE ...]

The images are JPEGs of 28 x 28 pixels, made of scikit-learn's digits, each moved a little. The network has its initial
values: that changes no speed. Wall time is what a user waits: while the main thread waits for a batch, images are being
read and decoded. Processor time, of all threads, is the better judge on a machine that others use as well. The first
table is of what is done for each image, or with the results of all of them; below it stands what a job does once,
however many images there are. The round of the median share is shown.
"""

from __future__ import annotations

import _venv  # isort: skip  # noqa: F401  # First: it may go on with another interpreter.

import argparse
import collections
import contextlib
import functools
import gc
import io
import logging
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import numpy as np
from hydra import compose, initialize_config_dir
from hydra.core.config_store import ConfigStore
from PIL import Image
from sklearn.datasets import load_digits

from slimexp.config import CONFIG_DIR, Config
from slimexp.evaluation import Accumulator
from slimexp.jobs import build, evaluate, record
from slimexp.jobs.evaluation import Evaluator
from slimexp.pipeline import Feed
from slimexp.tracking import Tracker
from slimexp.training.checkpoints import Checkpoints
from slimexp.training.classifier import choose_image_size
from slimexp.training.inference import Inference
from slimexp.validation import validate

_GOAL = 0.8
_WAITING, _NETWORK = "waiting for batches: reading, decoding", "network"


def write_images(folder: Path, count: int) -> Path:
    """Writes `count` digits and a list of them; returns the list."""
    digits = load_digits()
    random = np.random.default_rng(0)
    lines = []
    for number in range(count):
        which = number % len(digits.target)
        small = Image.fromarray(np.rint(digits.images[which] * (255 / 16)).astype(np.uint8))
        pixels = np.asarray(small.resize((28, 28), Image.Resampling.BICUBIC))
        moved = np.roll(pixels, tuple(random.integers(-2, 3, 2)), axis=(0, 1))
        Image.fromarray(moved).save(folder / f"{number}.jpg", quality=95)
        lines.append(f"{number}.jpg {digits.target[which]}\n")
    path = folder / "list.txt"
    path.write_text("".join(lines), encoding="utf-8")
    return path


def make_config(folder: Path, image_list: Path, model: str, overrides: list[str]) -> Config:
    """Returns the configuration of an evaluation of a checkpoint that it writes."""
    ConfigStore.instance().store(name="schema", node=Config)
    listed = [f"dataset.train_list={image_list}", f"dataset.eval_list={image_list}", "dataset.num_classes=10"]
    listed += ["model.image_size=28"] if model in ("lenet", "cifarnet") else []
    fixed = [f"evaluation.checkpoint={folder}/checkpoints", f"tracking.uri=sqlite:///{folder}/mlflow.db"]
    fixed += [f"run_dir={folder}/evaluate"]
    with initialize_config_dir(str(CONFIG_DIR), version_base="1.3"):
        composed = compose(
            "config",
            ["job=evaluate", "dataset=listfile", f"model={model}", *listed, *fixed, *overrides],
        )
    config = validate(composed, start_dir=folder)
    size_px = choose_image_size(build.network(config), config.model.image_size, None)
    classifier = build.classifier(config, num_classes=10, image_size=size_px)
    classifier.build()
    values = {name: variable.numpy() for name, variable in classifier.store.variables.items()}
    Checkpoints(folder / "checkpoints").save(0, values)
    return config


def now() -> np.ndarray:
    """Returns wall time and processor time, in seconds."""
    return np.array([time.perf_counter(), time.process_time()])


class Clock:
    """Adds up the seconds that functions take, those that they call included; of a function's first call apart."""

    def __init__(self) -> None:
        self.secs: dict[str, np.ndarray] = collections.defaultdict(lambda: np.zeros(2))  # Wall and processor time.
        self.calls: dict[str, int] = collections.Counter()
        self.first: dict[str, np.ndarray] = {}

    def reset(self) -> None:
        """Forgets what was measured."""
        for values in (self.secs, self.calls, self.first):
            values.clear()

    def watch(self, owner: Any, name: str) -> None:
        """Measures a function of a class or module from now on, as `Owner.name`."""
        function = getattr(owner, name)
        key = f"{owner.__name__.rpartition('.')[2]}.{name}"

        @functools.wraps(function)
        def watched(*args: Any, **kwargs: Any) -> Any:
            began = now()
            try:
                return function(*args, **kwargs)
            finally:
                spent = now() - began
                self.first.setdefault(key, spent)
                self.secs[key] = self.secs[key] + spent
                self.calls[key] += 1

        setattr(owner, name, watched)


class Result(NamedTuple):
    """Seconds of one evaluation, wall and processor time: what grows with the images, and what is done once."""

    parts: dict[str, np.ndarray]
    once: dict[str, np.ndarray]

    @property
    def shares(self) -> np.ndarray:
        """The share of network and decoder in what is done for the images, in wall time and in processor time."""
        return (self.parts[_WAITING] + self.parts[_NETWORK]) / sum(self.parts.values())

    @property
    def shares_of_all(self) -> np.ndarray:
        """The same of the whole job, imports left out."""
        return (self.parts[_WAITING] + self.parts[_NETWORK]) / (sum(self.parts.values()) + sum(self.once.values()))

    def print(self) -> None:
        """Prints both tables."""
        for title, seconds in (("For the images", self.parts), ("Once", self.once)):
            whole = sum(seconds.values())
            print(f"{title:42} {whole[0]:7.2f} s          {whole[1]:7.2f} s of processor time")
            for part, spent in seconds.items():
                columns = (
                    f"{secs:7.2f} s {share:6.1f} %" for secs, share in zip(spent, 100 * spent / whole, strict=True)
                )
                print(f"  {part:40} {'  '.join(columns)}")


def measure(config: Config, clock: Clock) -> Result:
    """Runs one evaluation."""
    gc.collect()  # What earlier ones left; a job has none before it.
    clock.reset()
    printed = io.StringIO()
    began = now()
    with contextlib.redirect_stdout(printed):
        evaluate.run(config)
    total = now() - began
    assert "Evaluated " in printed.getvalue()
    secs, first = clock.secs, clock.first["Inference.step"]
    # In the first call the network is traced.
    tracing = first - (secs["Inference.step"] - first) / max(clock.calls["Inference.step"] - 1, 1)
    parts = {
        _WAITING: secs["Feed.__next__"],
        _NETWORK: secs["Inference.step"] - tracing,
        "collecting results, batch by batch": secs["Accumulator.update"],
        "metrics": secs["Accumulator.summarize"],
        "tables and figures": secs["Evaluator.write_report"],
    }
    once = {
        "opening the MLflow store": secs["record.start_tracking"],
        "reading the list": secs["build.dataset"],
        "restoring": secs["evaluate.load_weights"],
        "building the pipeline": secs["Feed.__init__"],
        "tracing the network": tracing,
        "sending the last results to MLflow": secs["Tracker.finish"],
    }
    once["everything else"] = total - sum(parts.values()) - sum(once.values())
    return Result(parts, once)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--images", type=int, default=5000)
    parser.add_argument("--model", default="lenet")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("overrides", nargs="*")
    arguments = parser.parse_args()
    logging.basicConfig(level=logging.WARNING, format="%(message)s")
    clock = Clock()
    for owner, name in (
        *((Feed, name) for name in ("__init__", "__next__")),
        (Inference, "step"),
        *((Accumulator, name) for name in ("update", "summarize")),
        *((Evaluator, name) for name in ("evaluate", "write_report")),
        *((record, "start_tracking"), (build, "dataset"), (evaluate, "load_weights"), (Tracker, "finish")),
    ):
        clock.watch(owner, name)
    results = []
    with tempfile.TemporaryDirectory() as name, _working_folder(name):
        folder = Path(name)
        config = make_config(folder, write_images(folder, arguments.images), arguments.model, arguments.overrides)
        for _ in range(arguments.rounds):
            results.append(measure(config, clock))
    print(f"{arguments.images} images, {arguments.model}, {os.cpu_count()} cores")
    result = sorted(results, key=lambda result: result.shares[1])[len(results) // 2]
    result.print()
    print(f"Network and decoder in {len(results)} rounds, asked for are {100 * _GOAL:.0f} %:")
    for number, title in enumerate(("wall time", "processor time")):
        shares = ", ".join(f"{100 * result.shares[number]:.1f} %" for result in results)
        print(f"  {title:15} {shares}; {100 * result.shares_of_all[number]:.1f} % with what is done once")
    sys.exit(0 if result.shares[1] >= _GOAL else 1)


@contextlib.contextmanager
def _working_folder(folder: str) -> Iterator[None]:
    before = os.getcwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)


if __name__ == "__main__":
    main()
