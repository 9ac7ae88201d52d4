"""Measures how fast list files are read, how much memory that takes, and how soon the first batch comes after it.

    python scripts/measure_listfile.py [NUM_LINES [NUM_CLASSES [KIND]]]

The lists are written to a temporary folder, all lines different. Each list is read in a fresh process, in which
TensorFlow is there already; seconds include the check of every line but not that of the image files. The memory is how
much the process's peak grew: for the list it includes what is returned (paths, labels, line numbers). The first batch
is one of 32 from a shuffled training stream; every name leads to the same small JPEG in memory, so that what is
measured is what the length of the list costs.
"""

from __future__ import annotations

import _venv  # isort: skip  # noqa: F401  # First: it may go on with another interpreter.

import multiprocessing
import os
import resource
import sys
import tempfile
import time

import numpy as np
import tensorflow as tf

from slimexp.dataset import load_listfile
from slimexp.pipeline import Feed, PipelineSettings
from slimexp.pipeline.preprocessing import VggPreprocessing

KINDS = {
    "multi-label": "multi",
    "multi-label, quoted paths with blanks": "multi",
    "multi-label, tabs and blanks in paths": "multi",
    "single-label, by index": "single",
    "single-label, by name": "single",
}


def write_list(path: str, kind: str, num_lines: int, num_classes: int) -> None:
    """Writes a list of `num_lines` lines of one of the kinds."""
    rng = np.random.default_rng(0)
    with open(path, "w", encoding="utf-8") as file:
        for i in range(num_lines):
            label = int(rng.integers(num_classes))
            if kind.startswith("multi"):
                positives = np.flatnonzero(rng.random(num_classes) < 0.2).tolist() or [label]
                labels = f"-1:* 1:{','.join(map(str, positives))}"
            else:
                labels = str(label) if kind.endswith("index") else f"class {label}"
            if "quoted" in kind:
                file.write(f'"img/photo {i:07d}.jpg" {labels}\n')
            elif "tabs" in kind:
                file.write(f"img/photo {i:07d}.jpg\t{labels}\n")
            elif kind.endswith("name"):
                file.write(f"img/{i:07d}.jpg\t{labels}\n")
            else:
                file.write(f"img/{i:07d}.jpg {labels}\n")


def measure(path: str, kind: str, num_lines: int, num_classes: int) -> None:
    """Reads a list, takes a first batch, and prints what that cost."""
    picture = tf.io.encode_jpeg(tf.zeros([300, 400, 3], tf.uint8))  # TensorFlow's threads start.

    def read_file(path: tf.Tensor) -> tf.Tensor:
        return tf.where(tf.strings.length(path) > 0, picture, "")

    before = _peak_mb()
    begin = time.perf_counter()
    dataset = load_listfile(
        train_list=path,
        task=KINDS[kind],
        num_classes=None if kind.endswith("name") else num_classes,
        check_files=False,
    )
    loaded = time.perf_counter()
    loaded_mb = _peak_mb()
    assert len(dataset.train) == num_lines
    preprocessing = VggPreprocessing(224, is_training=True)
    settings = PipelineSettings(threads=2, readers=2)
    with Feed(
        dataset.train, preprocessing=preprocessing, settings=settings, seed=0, is_training=True, read_file=read_file
    ) as feed:
        next(feed)
        batch_secs = time.perf_counter() - loaded
        print(
            f"{kind:40} {num_lines:>10} lines  {loaded - begin:6.2f} s  {loaded_mb - before:6.0f} MB;  first batch "
            f"{batch_secs:5.2f} s  {_peak_mb() - loaded_mb:6.0f} MB",
            flush=True,
        )


def _peak_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def main() -> None:
    num_lines = int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000
    num_classes = int(sys.argv[2]) if len(sys.argv) > 2 else 20
    kinds = [kind for kind in KINDS if len(sys.argv) <= 3 or kind == sys.argv[3]]
    spawn = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "train.txt")
        for kind in kinds:
            # A process of its own, as a peak never falls.
            for work in (write_list, measure):
                process = spawn.Process(target=work, args=(path, kind, num_lines, num_classes), name=work.__name__)
                process.start()
                process.join()
                if process.exitcode:
                    sys.exit(process.exitcode)


if __name__ == "__main__":
    main()
