"""Shows that the pipeline's memory stays flat, and depends neither on the list's length nor on huge pictures too much.

    python scripts/measure_memory.py [NUM_IMAGES]

Takes 20,000 images (or as many as asked for) from training streams, epoch after epoch, each stream in a fresh process:
a list of 200 JPEGs, a list of 1,000,000 names of the same 200, and records of them, by both decoders. For each it
prints the resident memory after half of the images, its largest deviation from then on, and what paths, labels and
line numbers take. It fails if the deviation is over 2 %, or if the long list costs more than its own size beside the
short one, and 2 % of all.

Then eight JPEGs of 12000 x 12000 pixels go through eight threads, ordinary ones and progressive ones. That is to take
less than 2 GB at any moment, all of the process included.
"""

from __future__ import annotations

import _venv  # isort: skip  # noqa: F401  # First: it may go on with another interpreter.

import io
import multiprocessing
import os
import resource
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
from PIL import Image
from sklearn.datasets import load_sample_images

from slimexp.dataset import load_tfrecord
from slimexp.dataset.split import Split
from slimexp.pipeline import Feed, PipelineSettings
from slimexp.pipeline.preprocessing import InceptionPreprocessing

_NUM_FILES = 200
_LONG = 1_000_000
_TOLERANCE = 0.02
_BATCH = 32
_LARGE_SIDE_PX, _NUM_LARGE, _MOST_LARGE_BYTES = 12_000, 8, 2e9


def write_pictures(folder: Path) -> list[bytes]:
    """Writes JPEGs of 320 x 240, and two shards of records with the same."""
    paths = []
    for shard in range(2):
        with tf.io.TFRecordWriter(str(folder / f"train-{shard}")) as writer:
            for number in range(shard, _NUM_FILES, 2):
                photo = Image.fromarray(load_sample_images().images[number % 2])
                buffer = io.BytesIO()
                photo.rotate(number).resize((320, 240)).save(buffer, "JPEG", quality=90)
                path = folder / f"{number:04d}.jpg"
                path.write_bytes(buffer.getvalue())
                paths.append(str(path).encode())
                features = {
                    "image/encoded": tf.train.Feature(bytes_list=tf.train.BytesList(value=[buffer.getvalue()])),
                    "image/class/label": tf.train.Feature(int64_list=tf.train.Int64List(value=[number % 5])),
                }
                writer.write(tf.train.Example(features=tf.train.Features(feature=features)).SerializeToString())
    return paths


def make_split(folder: Path, kind: str) -> Any:
    """Returns the examples of one kind of stream."""
    if kind == "records":
        return load_tfrecord(root=str(folder), file_pattern="train-*", num_classes=5, cache_dir=str(folder)).train
    names = sorted(str(path).encode() for path in folder.glob("*.jpg"))
    count = _NUM_FILES if kind == "list" else _LONG
    # Names of their own, as those of a real list are.
    place, files = os.path.dirname(names[0]), [os.path.basename(name) for name in names]
    paths = [os.path.join(place, b"." * (i % 2), files[i % _NUM_FILES]) for i in range(count)]
    return Split("train", paths, np.zeros(count, np.int32), "list", np.arange(count))


def measure(folder: Path, kind: str, decoder: str, num_images: int, results: Any) -> None:
    """Takes images and puts the resident memory, at the start, at its least and its most, in MiB."""
    split = make_split(folder, kind)
    settings = PipelineSettings(threads=2, readers=2, batch_size=_BATCH, decoder=decoder)
    seen = []
    with Feed(
        split, preprocessing=InceptionPreprocessing(160, is_training=True), settings=settings, seed=0, is_training=True
    ) as feed:
        for batch in range(num_images // _BATCH):
            next(feed)
            # Until then the C library's pools of freed memory grow, which each thread has of its own.
            if batch >= num_images // _BATCH // 2 and batch % 10 == 0:
                seen.append(_resident_mib())
    results.put((seen[0], min(seen), max(seen)))


def _resident_mib() -> float:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20


def _own_mib(folder: Path) -> float:
    """Returns what the long list's paths take: here, as Python's bytes, and once more in TensorFlow."""
    split = make_split(folder, "long list")
    # Allocators round up to 16 bytes, and malloc keeps as many beside. 22 characters fit into a `tstring` itself.
    python = sum(-(-sys.getsizeof(path) // 16) * 16 + 8 for path in split.paths)
    inside = sum(24 + (-(-(len(path) + 1) // 16) * 16 + 16 if len(path) > 22 else 0) for path in split.paths)
    return (python + inside + 2 * split.labels.nbytes + split.lines.nbytes) / 2**20


def write_large(folder: Path, *, progressive: bool) -> Path:
    """Writes the eight large JPEGs, of 20 MB each, and returns their folder."""
    folder = folder / ("progressive" if progressive else "ordinary")
    folder.mkdir()
    noise = np.random.default_rng(0).integers(0, 256, (500, 500, 3), np.uint8)
    picture = Image.fromarray(noise).resize((_LARGE_SIDE_PX, _LARGE_SIDE_PX))
    buffer = io.BytesIO()
    picture.save(buffer, "JPEG", quality=85, progressive=progressive)
    for number in range(_NUM_LARGE):
        (folder / f"{number}.jpg").write_bytes(buffer.getvalue())
    return folder


def measure_large(folder: Path, decoder: str, results: Any) -> None:
    """Takes each of the large pictures four times and puts the most memory that this process had, in bytes."""
    paths = sorted(str(path).encode() for path in folder.iterdir())
    settings = PipelineSettings(threads=_NUM_LARGE, readers=_NUM_LARGE, batch_size=_NUM_LARGE, decoder=decoder)
    with Feed(
        Split("train", paths, np.zeros(_NUM_LARGE, np.int32), "list"),
        preprocessing=InceptionPreprocessing(224, is_training=True),
        settings=settings,
        seed=0,
        is_training=True,
    ) as feed:
        for _ in range(4):
            next(feed)
    results.put(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024))


def _in_a_process(function: Any, *args: Any) -> Any:
    """Returns what a function puts into the queue that it gets as its last argument, in a fresh process."""
    spawn = multiprocessing.get_context("spawn")
    results = spawn.Queue()
    process = spawn.Process(target=function, args=(*args, results))
    process.start()
    process.join()
    if process.exitcode:
        sys.exit(process.exitcode)
    return results.get()


def main() -> int:
    num_images = int(sys.argv[1]) if len(sys.argv) > 1 else 20_000
    faults = []
    starts: dict[tuple[str, str], float] = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_pictures(folder)
        for decoder in ("tensorflow", "auto"):
            for kind in ("list", "long list", "records"):
                first, least, most = _in_a_process(measure, folder, kind, decoder, num_images)
                starts[decoder, kind] = first
                change = max(most - first, first - least) / first
                print(
                    f"{decoder:10} {kind:10} {first:7.0f} MiB, then {least:.0f} to {most:.0f} ({change:.1%})",
                    flush=True,
                )
                if change > _TOLERANCE:
                    faults.append(f"{decoder}, {kind}: changes by {change:.1%}")
        own = _own_mib(folder)
        for decoder in ("tensorflow", "auto"):
            more = starts[decoder, "long list"] - starts[decoder, "list"]
            print(f"{decoder:10} {_LONG:,} names take {more:.0f} MiB more; they are {own:.0f} MiB")
            if more > own + _TOLERANCE * starts[decoder, "long list"]:
                faults.append(f"{decoder}: the long list takes {more:.0f} MiB, more than its own {own:.0f}")
        for progressive in (False, True):
            large = write_large(folder, progressive=progressive)
            for decoder in ("tensorflow", "auto"):
                most = _in_a_process(measure_large, large, decoder)
                print(f"{decoder:10} {_NUM_LARGE} {large.name} JPEGs of {_LARGE_SIDE_PX} px: {most / 1e9:.2f} GB")
                if most > _MOST_LARGE_BYTES:
                    faults.append(f"{decoder}, {large.name} JPEGs of {_LARGE_SIDE_PX} px: {most / 1e9:.2f} GB")
    print("\n".join(faults) or "Flat, and within 2 GB.")
    return len(faults)


if __name__ == "__main__":
    sys.exit(main())
