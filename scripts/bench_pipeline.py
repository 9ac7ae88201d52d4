#!/usr/bin/env python3
"""Runs the input pipeline against other loaders and against what libjpeg-turbo can do at best, side by side.

    scripts/bench_pipeline.py --bench ../shared/bench --corpora perf/c500 perf/c1600 [--rounds 5] [--threads 2]
    scripts/bench_pipeline.py --parts ...    what each part costs that a bare recipe lacks (TensorFlow's ops)

`--bench` is a folder with the peers (`peers/*.py`, each prints a line of JSON) and `peers/limit.c`, which is compiled.
A corpus is a folder with `list.txt` and `images/`, as its `gen_corpus.py` makes. A peer whose environment is missing
is left out: `--python-torch`, `--python-tf1` and `--python-ffcv` name the interpreters of those that need their own.

Everything works alike: batches of 32 at 224, a random window of 0.08 to 1 of the area, a mirror, minus the mean colour.
Ours runs as training uses it: with its monitor, in its fixed order, with augmentation that follows from the seed. The
rounds are the outer loop, so that what else the machine does hits all alike, and ratios are formed within a round.
Images per CPU-second hardly move when the machine is busy; images per second do.
"""

from __future__ import annotations

import _venv  # isort: skip  # noqa: F401  # First: it may go on with another interpreter.
import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from rich.console import Console
from rich.table import Table

_LIMIT, _RECIPE = "limit", "tf.data, decode_and_crop"

# What a part of ours costs: the same without it.
_OURS = {
    "slimexp, native": {"decoder": "native"},
    "slimexp, tensorflow": {"decoder": "tensorflow"},
    "slimexp, native, no monitor": {"decoder": "native", "without": ["monitor"]},
    "slimexp, tensorflow, no monitor": {"decoder": "tensorflow", "without": ["monitor"]},
}

# `--parts`: TensorFlow's ops without what a bare recipe does not have either, by itself and all together.
_PARTS = {
    "the monitor": "monitor",
    "the fixed order": "order",
    "draws that follow from the seed": "draws",
    "the accurate transform (DCT)": "dct",
    "pictures that are no JPEG, EXIF, and decoding large photos smaller": "formats",
    "the prefetch queue": "prefetch",
}

_PEERS = {
    _RECIPE: ("tf2_tfdata.py", "fused", "here"),
    "tf.data, plain recipe": ("tf2_tfdata.py", "plain", "here"),
    "best of TensorFlow's ops": ("tf2_fast.py", "all", "here"),
    "Keras image_dataset_from_directory": ("keras_dir.py", "", "here"),
    "TF-Slim 1.15, readers that decode": ("tf1_slim.py", "fused", "tf1"),
    "torchvision, PIL": ("torch_loader.py", "pil", "torch"),
    "torchvision, own JPEG": ("torch_loader.py", "tv", "torch"),
    "ffcv": ("ffcv_loader.py", "", "ffcv"),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bench", type=Path, default=Path("../shared/bench"), help="the folder with the peers")
    parser.add_argument("--corpora", type=Path, nargs="+", required=True)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--readers", type=int, default=2)
    parser.add_argument("--secs", type=float, default=5.0, help="of each measurement, after a warm-up")
    parser.add_argument("--parts", action="store_true", help="ours, and ours without one part each, beside the recipe")
    parser.add_argument("--only", nargs="*", help="loaders whose names contain one of these; the limit always runs")
    for name in ("torch", "tf1", "ffcv"):
        parser.add_argument(f"--python-{name}", help=f"interpreter for the {name} peers")
    parser.add_argument("--json", type=Path, help="also append the raw results to this file")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.one:
        print(json.dumps(_measure_ours(args.corpora[0], json.loads(args.one), args)))
        return
    console = Console()
    with tempfile.TemporaryDirectory() as folder:
        limit = _compile_limit(args.bench, Path(folder))
        for corpus in args.corpora:
            results: dict[str, list[dict[str, float]]] = {}
            for number in range(args.rounds):
                for name, command in _commands(args, corpus, limit, Path(folder)).items():
                    result = _run(name, command)
                    if result is not None:
                        results.setdefault(name, []).append(result)
                        console.print(
                            f"{corpus.name} round {number + 1}/{args.rounds}  {name}: "
                            f"{result['images_per_cpu_s']:.0f} images/CPU-s",
                            highlight=False,
                        )
                        if args.json:
                            with open(args.json, "a") as file:
                                file.write(json.dumps({"corpus": corpus.name, "loader": name, **result}) + "\n")
            console.print(_table(corpus, results, args))


def _compile_limit(bench: Path, folder: Path) -> Path:
    limit = folder / "limit"
    source = bench / "peers" / "limit.c"
    command = ["cc", "-O3", "-march=native", "-o", str(limit), str(source), "-ljpeg", "-lpthread", "-lm"]
    subprocess.run(command, check=True)
    return limit


def _commands(args: argparse.Namespace, corpus: Path, limit: Path, folder: Path) -> dict[str, list[str]]:
    paths = folder / f"{corpus.name}.paths"
    lines = (corpus / "list.txt").read_text().splitlines()
    paths.write_text("".join(f"{corpus / 'images' / line.split()[0]}\n" for line in lines))
    commands = {_LIMIT: [str(limit), str(paths), "train", str(args.threads), str(args.secs), "tf"]}
    own = ["--corpora", str(corpus), "--threads", str(args.threads), "--readers", str(args.readers)]
    ours, peers = (_without_parts(), [_RECIPE]) if args.parts else (_OURS, list(_PEERS))
    for name, options in ours.items():
        if _chosen(name, args.only):
            script = os.path.abspath(__file__)
            commands[name] = [sys.executable, script, *own, "--secs", str(args.secs), "--one", json.dumps(options)]
    interpreters = {"here": sys.executable, "torch": args.python_torch, "tf1": args.python_tf1}
    interpreters["ffcv"] = args.python_ffcv
    for name in peers:
        script, mode, kind = _PEERS[name]
        if _chosen(name, args.only) and interpreters[kind]:
            command = [interpreters[kind], str(args.bench / "peers" / script), "--corpus", str(corpus)]
            command += ["--threads", str(args.threads), "--secs", str(args.secs)]
            commands[name] = [*command, *(["--mode", mode] if mode else [])]
    return commands


def _without_parts() -> dict[str, dict[str, object]]:
    ours: dict[str, dict[str, object]] = {"slimexp, tensorflow": {"decoder": "tensorflow"}}
    for name, part in _PARTS.items():
        ours[f"without {name}"] = {"decoder": "tensorflow", "without": [part]}
    return {**ours, "without any of these": {"decoder": "tensorflow", "without": list(_PARTS.values())}}


def _chosen(name: str, only: list[str] | None) -> bool:
    return not only or any(part in name for part in only)


def _run(name: str, command: list[str]) -> dict[str, float] | None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    try:
        return json.loads(done.stdout.strip().splitlines()[-1])
    except (IndexError, json.JSONDecodeError):
        print(f"{name} is left out: exit code {done.returncode}\n{done.stderr[-2000:]}", file=sys.stderr)
        return None


def _measure_ours(corpus: Path, options: dict[str, object], args: argparse.Namespace) -> dict[str, float]:
    """Measures our pipeline in this process."""
    import numpy as np

    from slimexp.dataset.split import Split
    from slimexp.pipeline import Feed, PipelineSettings
    from slimexp.pipeline.preprocessing import InceptionPreprocessing

    class Window(InceptionPreprocessing):
        """Inception's random window and mirror, but minus the mean colour, as the peers do it."""

        def __init__(self) -> None:
            super().__init__(224, is_training=True, area_min=0.08, ratio_max=4 / 3, color="none")
            self.scale = 1.0
            self.offset = -np.array([123.68, 116.779, 103.939], np.float32)

    without = {*options.get("without", ())}
    _leave_out(without)
    lines = (corpus / "list.txt").read_text().splitlines()
    paths = [str(corpus.absolute() / "images" / line.split()[0]).encode() for line in lines]
    for path in paths:
        Path(os.fsdecode(path)).read_bytes()  # Into the page cache.
    split = Split("train", paths, np.zeros(len(paths), np.int32), str(corpus))
    settings = PipelineSettings(threads=args.threads, readers=args.readers, decoder=str(options["decoder"]))
    with Feed(split, preprocessing=Window(), settings=settings, seed=0, is_training=True) as feed:
        end = time.perf_counter() + 3
        while time.perf_counter() < end:
            next(feed)
            if "monitor" in without and feed.monitor is not None:
                feed.monitor.close()
                feed.monitor = None
        images, cpu, start = 0, time.process_time(), time.perf_counter()
        while time.perf_counter() < start + args.secs:
            next(feed)
            images += feed.batch_size
        wall, cpu = time.perf_counter() - start, time.process_time() - cpu
    return {"images_per_s": images / wall, "images_per_cpu_s": images / cpu, "cores_used": cpu / wall}


def _leave_out(without: set[str]) -> None:
    """Changes the pipeline of this process: some parts of it are not what they are for everybody else."""
    import tensorflow as tf

    from slimexp.pipeline import engines, stream
    from slimexp.pipeline.images import decode

    if without & {"monitor", "order"}:
        options_of = stream._options

        def options(num_threads: int) -> tf.data.Options:
            changed = options_of(num_threads)
            changed.autotune.enabled = "monitor" not in without  # The model of it is what the monitor reads.
            changed.deterministic = "order" not in without
            return changed

        stream._options = options
    if without & {"order", "prefetch"}:

        def batches(engine: engines.TensorFlowEngine, files: tf.data.Dataset, *, drop_remainder: bool) -> object:
            settings = engine._settings
            images = files.map(
                lambda contents, index, draws: (engine._make_image(contents, draws), index),
                num_parallel_calls=settings.threads,
                deterministic="order" not in without,
            )
            if "prefetch" not in without:
                images = images.prefetch(settings.queues()["prefetch"].capacity)
            return images.batch(settings.batch_size, drop_remainder=drop_remainder)

        engines.TensorFlowEngine.batches = batches
    if "draws" in without:
        stream.uniform_draws = lambda seeds, count: tf.random.uniform([tf.shape(seeds)[0], count])
    if "dct" in without:
        decode._decode_and_crop = lambda contents, window, *, ratio: tf.image.decode_and_crop_jpeg(
            contents, window, channels=3, ratio=ratio
        )
    if "formats" in without:

        def decode_jpeg(contents: tf.Tensor, choose_window: object, **_: object) -> tf.Tensor:
            height, width, _ = tf.unstack(tf.image.extract_jpeg_shape(contents))
            window = choose_window(height, width)
            return decode._decode_and_crop(contents, window, ratio=1)

        engines.decode_window = decode_jpeg


def _table(corpus: Path, results: dict[str, list[dict[str, float]]], args: argparse.Namespace) -> Table:
    table = Table(title=f"{corpus.name}: {args.threads} threads, medians of {args.rounds} rounds")
    for heading in ("loader", "images/CPU-s", "of the limit", "to the recipe", "images/s", "cores used"):
        table.add_column(heading, justify="left" if heading == "loader" else "right")

    def ratio(name: str, other: str) -> str:
        ours, theirs = results[name], results.get(other, [])
        ratios = [a["images_per_cpu_s"] / b["images_per_cpu_s"] for a, b in zip(ours, theirs, strict=False)]
        if not ratios:
            return "-"
        spread = f" ({min(ratios):.2f}-{max(ratios):.2f})" if len(ratios) > 1 else ""
        return f"{statistics.median(ratios):.3f}{spread}"

    for name, rounds in sorted(results.items(), key=lambda item: -_median(item[1], "images_per_cpu_s")):
        table.add_row(
            name,
            f"{_median(rounds, 'images_per_cpu_s'):.0f}",
            ratio(name, _LIMIT),
            ratio(name, _RECIPE),
            f"{_median(rounds, 'images_per_s'):.0f}",
            f"{_median(rounds, 'cores_used'):.2f}",
        )
    return table


def _median(rounds: list[dict[str, float]], key: str) -> float:
    return statistics.median(result[key] for result in rounds)


if __name__ == "__main__":
    main()
