"""Measures what tracking costs a training step: each store against `tracking=none`, taking turns.

    python scripts/measure_tracking.py [--stores sqlite,down,slow] [--steps 400] [--rounds 5] [--model lenet]

A net trains on the digits and logs every step, in blocks: a block without a store, one with each store, and again. The
time that counts is that of the steps; opening the store before and sending what is left after them are shown beside it.
Wall time tells what a user waits; processor time, of all threads of this process, is the better judge on a machine that
others use as well. The ratios are those of neighbouring blocks, medians of all rounds.

`sqlite` is a database in a file, `down` an address where nothing listens, `slow` an `mlflow server` behind a proxy that
holds each answer back for two seconds.
"""

from __future__ import annotations

import _venv  # isort: skip  # noqa: F401  # First: it may go on with another interpreter.

import argparse
import contextlib
import logging
import os
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

from hydra import compose, initialize_config_dir
from hydra.core.config_store import ConfigStore

from slimexp.config import CONFIG_DIR, Config
from slimexp.jobs import build
from slimexp.jobs.train import make_trainer
from slimexp.pipeline import Feed
from slimexp.pipeline.stats import as_metrics
from slimexp.tracking import Tracker
from slimexp.training.classifier import choose_image_size
from slimexp.training.devices import make_strategy
from slimexp.validation import validate

_SLOW_SECS = 2.0


class Block(NamedTuple):
    """What a block of steps took, in seconds: the steps on the clock and in processor time, then before and after."""

    wall: float
    cpu: float
    opening: float
    closing: float


class Training:
    """A net that can be trained on, some steps at a time."""

    def __init__(self, model: str, folder: Path) -> None:
        ConfigStore.instance().store(name="schema", node=Config)
        with initialize_config_dir(str(CONFIG_DIR), version_base="1.3"):
            composed = compose("config", [f"model={model}", f"run_dir={folder}/run", "trainer.max_steps=1000000"])
        self.config = config = validate(composed, start_dir=folder)
        data = build.dataset(config)
        size_px = choose_image_size(build.network(config), config.model.image_size, data.image_side_px)
        strategy = make_strategy()
        self._trainer = make_trainer(config, data, size_px, 1_000_000, strategy)
        self._feed = Feed(
            data.train,
            preprocessing=build.preprocessing(config, size_px=size_px, is_training=True),
            settings=build.pipeline_settings(config),
            seed=0,
            is_training=True,
            strategy=strategy,
        )

    def block(self, uri: str | None, steps: int, folder: Path) -> Block:
        """Trains some steps, each of them logged to the store; None is `tracking=none`."""
        began = time.perf_counter()
        tracker = Tracker.start(
            backend="none" if uri is None else "mlflow",
            uri=uri,
            experiment="measure",
            run_name="block",
            run_dir=folder,
            tags={},
            params={"model": self.config.model.name},
        )
        opened, cpu = time.perf_counter(), time.process_time()
        for _ in range(steps):
            values = self._trainer.train_step(next(self._feed))
            metrics = {f"train/{key}": float(value) for key, value in values.items()}
            stats = self._feed.monitor.interval() if self._feed.monitor is not None else None
            if stats is not None:
                metrics.update(as_metrics(stats))
            tracker.log_metrics(self._trainer.step, metrics)
        ended, cpu = time.perf_counter(), time.process_time() - cpu
        tracker.finish()
        return Block(ended - opened, cpu, opened - began, time.perf_counter() - ended)


def main() -> None:
    """Reads the command line, measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--stores", default="sqlite,down,slow")
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--model", default="lenet")
    options = parser.parse_args()
    logging.disable(logging.WARNING)
    with tempfile.TemporaryDirectory() as name, contextlib.ExitStack() as stack:
        folder = Path(name)
        uris: dict[str, str | None] = {"none": None}
        for store in options.stores.split(","):
            uris[store] = stack.enter_context(_store(store, folder))
        training = Training(options.model, folder)
        found: dict[str, list[Block]] = {store: [] for store in uris}
        for number in range(options.rounds + 1):
            for store, uri in uris.items():
                run_dir = folder / f"{store}-{number}"
                run_dir.mkdir()
                block = training.block(uri, options.steps, run_dir)
                if number:  # The first round warms up.
                    found[store].append(block)
    _print(found, options.steps)


def _print(found: dict[str, list[Block]], steps: int) -> None:
    titles = ("steps/s", "ms/step", "cpu ms", "x wall", "x cpu", "open s", "close s")
    print(f"{'store':8s} " + " ".join(f"{title:>9s}" for title in titles))
    for store, blocks in found.items():
        wall = statistics.median(block.wall for block in blocks)
        cpu = statistics.median(block.cpu for block in blocks)
        ratios = [
            statistics.median(
                getattr(block, kind) / getattr(base, kind) for block, base in zip(blocks, found["none"], strict=True)
            )
            for kind in ("wall", "cpu")
        ]
        closing = statistics.median(block.closing for block in blocks)
        opening = statistics.median(block.opening for block in blocks)
        print(
            f"{store:8s} {steps / wall:9.1f} {1e3 * wall / steps:9.3f} {1e3 * cpu / steps:9.3f} "
            f"{ratios[0]:9.3f} {ratios[1]:9.3f} {opening:9.2f} {closing:9.2f}"
        )


@contextlib.contextmanager
def _store(name: str, folder: Path) -> Iterator[str]:
    if name == "sqlite":
        yield f"sqlite:///{folder}/mlflow.db"
    elif name == "down":
        yield "http://127.0.0.1:9"
    elif name == "slow":
        with _server(folder) as port:
            yield f"http://127.0.0.1:{_slow_port(port)}"
    else:
        raise SystemExit(f"--stores {name}: choose from sqlite, down and slow.")


@contextlib.contextmanager
def _server(folder: Path) -> Iterator[int]:
    """Runs an `mlflow server`; yields its port."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "mlflow", "server", "--workers", "1", "--port", str(port)]
    command += ["--backend-store-uri", f"sqlite:///{folder}/server.db", "--artifacts-destination", f"{folder}/files"]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    process = subprocess.Popen(command, cwd=folder, start_new_session=True, **quiet)
    try:
        deadline = time.monotonic() + 120
        while time.monotonic() < deadline:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
                break
            time.sleep(0.2)
        yield port
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _slow_port(target: int) -> int:
    """Opens a port whose answers come from another one, each piece of them late."""
    listener = socket.create_server(("127.0.0.1", 0))

    def hand_on(source: socket.socket, sink: socket.socket, delay_secs: float) -> None:
        with contextlib.suppress(OSError), sink:
            while data := source.recv(1 << 16):
                time.sleep(delay_secs)
                sink.sendall(data)
            # Closing alone says nothing to the other side while a thread waits for what it sends.
            sink.shutdown(socket.SHUT_RDWR)

    def accept() -> None:
        while True:
            client, _ = listener.accept()
            server = socket.create_connection(("127.0.0.1", target))
            threading.Thread(target=hand_on, args=(client, server, 0.0), daemon=True).start()
            threading.Thread(target=hand_on, args=(server, client, _SLOW_SECS), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    return listener.getsockname()[1]


if __name__ == "__main__":
    main()
