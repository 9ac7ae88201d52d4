"""Measures how fast list files are read, and how much memory that takes.

    python scripts/measure_listfile.py [NUM_LINES [NUM_CLASSES]]

The lists are written to a temporary folder, all lines different. Each list is read in a fresh process; seconds include
the check of every line but not that of the image files; the memory is how much the process's peak grew, which includes
what is returned (paths, labels, line numbers).
"""

from __future__ import annotations

import multiprocessing
import os
import resource
import sys
import tempfile
import time

import numpy as np

from slimexp.dataset import load_listfile

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
    """Reads a list and prints what that cost."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    begin = time.perf_counter()
    dataset = load_listfile(
        train_list=path,
        task=KINDS[kind],
        num_classes=None if kind.endswith("name") else num_classes,
        check_files=False,
    )
    seconds = time.perf_counter() - begin
    grown_mb = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    assert len(dataset.train) == num_lines
    print(f"{kind:40} {num_lines:>10} lines  {seconds:6.2f} s  {grown_mb:7.0f} MB", flush=True)


def main() -> None:
    num_lines = int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000
    num_classes = int(sys.argv[2]) if len(sys.argv) > 2 else 20
    spawn = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "train.txt")
        for kind in KINDS:
            # A process of its own, as a peak never falls.
            for work in (write_list, measure):
                process = spawn.Process(target=work, args=(path, kind, num_lines, num_classes), name=work.__name__)
                process.start()
                process.join()
                if process.exitcode:
                    sys.exit(process.exitcode)


if __name__ == "__main__":
    main()
