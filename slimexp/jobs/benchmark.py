"""The job `benchmark`: each stage of the pipeline alone, all together, the network; a table, a verdict, a figure."""

from __future__ import annotations

import functools
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import tensorflow as tf

from slimexp.config import Config
from slimexp.dataset.summary import describe
from slimexp.errors import UserError
from slimexp.jobs import build
from slimexp.jobs.auto import resolve_auto, skips_bad_images
from slimexp.jobs.benchmark_result import Measured, describe_place, record, report
from slimexp.jobs.diagnosis import diagnose
from slimexp.jobs.lock import exclusive
from slimexp.jobs.record import earlier_run, log_data, recorded
from slimexp.jobs.starting import turn_first_pixels
from slimexp.jobs.train import make_trainer
from slimexp.pipeline import Feed
from slimexp.pipeline.doctor.measure import StageBench, step_rate, take_turns
from slimexp.pipeline.doctor.verdict import Verdict
from slimexp.pipeline.stats import PipelineStats
from slimexp.tracking import Tracker
from slimexp.training.classifier import choose_image_size
from slimexp.training.devices import make_deterministic, make_strategy
from slimexp.training.schedules import Fixed
from slimexp.training.signals import StopSignals
from slimexp.training.trainer import Trainer

__all__ = ["benchmark", "run"]

_log = logging.getLogger("slimexp")


def run(config: Config, overrides: Sequence[str] = ()) -> None:
    """Measures the pipeline and the network that the configuration describes; nothing is trained.

    Args:
        config: Checked.
        overrides: What the command changed, for the run's name.

    Raises:
        UserError: For what the user can mend; the run is then recorded as FAILED.
        Interrupted: After a signal; the run is then recorded as KILLED.
    """
    folder = Path(config.run_dir)
    with StopSignals() as signals, exclusive(folder):
        earlier = earlier_run(folder)
        if earlier.get("params", {}).get("job.name", config.job.name) != config.job.name:
            raise UserError(
                f"run_dir={folder}: holds a run of job={earlier['params']['job.name']}, whose record this one would "
                "replace. Choose another run_dir, or leave it out for a new one."
            )
        with recorded(config, overrides, None, {}, signals) as tracker:
            _log.info("Run folder: %s", folder)
            benchmark(config, overrides, tracker, signals)


def benchmark(config: Config, overrides: Sequence[str], tracker: Tracker, signals: StopSignals) -> Verdict:
    """Builds what training would build, measures it, and records and prints the result.

    Args:
        config: Checked.
        overrides: What the command changed; numbers among it become metrics of their own.
        tracker: Records the run.
        signals: Obeyed within a second.

    Returns:
        The verdict.
    """
    build.check_targets(config)
    strategy = make_strategy(config.trainer.strategy.value, config.trainer.num_clones)  # Before TensorFlow is in use.
    if config.trainer.deterministic:
        make_deterministic(config.seed)
    turn_first_pixels(config.run_dir)
    data = build.dataset(config)
    _log.info("%s", describe(data))
    log_data(tracker, data)
    image_size = choose_image_size(build.network(config), config.model.image_size, data.image_side_px)
    preprocessing = build.preprocessing(config, size_px=image_size, is_training=True)
    config = resolve_auto(config, data.train, preprocessing, tracker, check_stop=signals.check)
    settings = build.pipeline_settings(config)
    replicas = strategy.num_replicas_in_sync
    settings.check(len(data.train), replicas, is_training=True, is_sequential=data.train.is_sequential)

    bench = StageBench(
        data.train,
        preprocessing=preprocessing,
        settings=settings,
        seed=config.seed,
        skip_bad=skips_bad_images(config),
        # So many that a pipeline which goes through them once, on files out of the page cache, makes some batches.
        most_examples=max(512, 8 * settings.batch_size),
        check_stop=signals.check,
        **build.file_access(build.shrunk_cache(config)),
    )
    # Steps at a rate of 0 cost the same, and the weights stay.
    trainer = make_trainer(config, data, image_size, 1, strategy, schedule=Fixed(initial=0.0))
    network = _Network(
        trainer,
        functools.partial(
            Feed,
            bench.sample.split,
            preprocessing=preprocessing,
            settings=settings,
            seed=config.seed,
            is_training=True,
            strategy=strategy,
            check_stop=signals.check,
            **bench.sample.feed_options,
        ),
        signals.check,
    )
    measurements: dict[str, Callable[[float], float]] = {
        "read": bench.read,
        "read_cold": bench.read_cold,
        "read_decode": bench.read_and_decode,
        "finish": bench.finish,
        "preprocess": bench.preprocess,
        "batch": bench.batch,
        "pipeline": bench.whole,
        "pipeline_cold": bench.whole_cold,
        "network": network.alone,
        "training": network.fed,
    }
    if not config.benchmark.cold:
        measurements = {name: measure for name, measure in measurements.items() if not name.endswith("_cold")}
    _log.info(
        "Measuring %d things, %d times %g s each, on %d images of %.0f KiB.",
        len(measurements),
        config.benchmark.rounds,
        config.benchmark.secs,
        len(bench.sample.held),
        bench.mean_bytes / 1024,
    )
    rates, reasons = take_turns(
        measurements, rounds=config.benchmark.rounds, secs=config.benchmark.secs, between=signals.check
    )
    stats = network.typical()
    found = diagnose(
        config,
        stats,
        tracker,
        network_images_per_sec=rates["network"].median,
        # Our own op does both in one go.
        decode_share=None if bench.is_native else max(0.0, 1 - rates["preprocess"].median / rates["finish"].median),
    )
    measured = Measured(rates, reasons, stats, found, describe_place(config, len(data.train), image_size))
    files = record(config, overrides, tracker, measured)
    report(config, tracker, measured, files)
    return found


class _Network:
    """The network's steps, on one batch over and over and fed by the pipeline."""

    def __init__(self, trainer: Trainer, make_feed: Callable[[], Feed], check_stop: Callable[[], None]) -> None:
        self._trainer = trainer
        self._check_stop = check_stop
        self._make_feed = make_feed
        with make_feed() as feed:
            self._batch = next(feed)
            self._batch_size = feed.batch_size
        self._seen: list[PipelineStats] = []

    def alone(self, secs: float) -> float:
        """Measures forward and backward steps on one batch."""
        return step_rate(lambda: self._step(self._batch), self._batch_size, secs)

    def _step(self, batch: Any) -> Mapping[str, tf.Tensor]:
        self._check_stop()
        return self._trainer.train_step(batch)

    def fed(self, secs: float) -> float:
        """Measures steps on batches from the pipeline, and keeps what its monitor saw."""
        with self._make_feed() as feed:
            # Threads start, queues fill; the monitor measures from the second batch on.
            began = time.perf_counter()
            steps = 0
            while steps < 3 or time.perf_counter() - began < 0.3 * secs:
                values = self._step(next(feed))
                steps += 1
            assert feed.monitor is not None
            feed.monitor.interval()
            start = time.perf_counter()
            steps = 0
            while steps < 2 or time.perf_counter() - start < secs:
                values = self._step(next(feed))
                steps += 1
            for value in values.values():
                value.numpy()
            secs = time.perf_counter() - start
            stats = feed.monitor.interval()
            assert stats is not None
            self._seen.append(stats)
            return steps * self._batch_size / secs

    def typical(self) -> PipelineStats:
        """Returns what the monitor saw in the round of the median rate."""
        ranked = sorted(self._seen, key=lambda stats: stats.images_per_sec)
        return ranked[len(ranked) // 2]
