"""What a benchmark leaves: numbers, a table, a figure, a verdict, and settings for `pipeline=tuned`."""

from __future__ import annotations

import dataclasses
import enum
import json
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from slimexp.config import Config, show
from slimexp.evaluation.tables import replace_file, write_csv
from slimexp.pipeline.doctor.figures import plot_pipeline
from slimexp.pipeline.doctor.rates import Rate
from slimexp.pipeline.doctor.verdict import Verdict
from slimexp.pipeline.stats import PipelineStats
from slimexp.sweep import membership
from slimexp.sweep.results import BENCHMARK_FILE
from slimexp.sweep.tuned import adopt_tuned, describe_machine, tuned_text, write_tuned
from slimexp.tracking import Tracker
from slimexp.tracking.masking import mask_command
from slimexp.validation import flatten

__all__ = ["Measured", "describe_place", "record", "report"]

# The measurements in the order of the table; the names are those of the metrics, `benchmark/NAME_images_per_sec`.
_TITLES = {
    "read": "read, files in the page cache",
    "read_cold": "read, files not in the page cache",
    "read_decode": "read + decode, by TensorFlow",
    "finish": "preprocess decoded windows, by TensorFlow",
    "preprocess": "decode + preprocess + batch, from memory",
    "batch": "batch finished images",
    "pipeline": "the whole pipeline",
    "pipeline_cold": "the whole pipeline, files not in the page cache",
    "network": "the network, on one batch over and over",
    "training": "pipeline and network together",
}


_FILE_COLUMNS = 120


@dataclasses.dataclass(frozen=True)
class Measured:
    """What a benchmark has found.

    Attributes:
        rates: Images a second by measurement.
        reasons: Why a measurement could not be made, by its name.
        stats: What the pipeline's monitor saw while the network was fed.
        verdict: What holds a run back.
        place: Machine, dataset and model, see `describe_place`.
    """

    rates: Mapping[str, Rate]
    reasons: Mapping[str, str]
    stats: PipelineStats
    verdict: Verdict
    place: Mapping[str, Any]


def describe_place(config: Config, num_images: int, image_size: int) -> dict[str, Any]:
    """Returns what a benchmark's figures hold for: `host`, `cpu`, `num_cpus`, and `dataset` and `model` in words."""
    dataset = config.dataset["name"] if isinstance(config.dataset, dict) else config.dataset.name
    return {
        **describe_machine(),
        "dataset": f"{dataset} ({num_images:,} images)",
        "model": f"{config.model.name} at {image_size} px",
    }


def record(config: Config, overrides: Sequence[str], tracker: Tracker, measured: Measured) -> list[Path]:
    """Writes the result to the run's folder and hands it to the tracker.

    Returns:
        The files.
    """
    folder, rates, stats = Path(config.run_dir), measured.rates, measured.stats
    settings = _settings(config, overrides)
    metrics: dict[str, float] = {}
    for name, rate in rates.items():
        metrics[f"benchmark/{name}_images_per_sec"] = rate.median
        metrics[f"benchmark/{name}_spread"] = rate.spread
    metrics["benchmark/input_wait_frac"] = stats.wait_frac
    metrics["benchmark/cpu_frac"] = stats.cpu_frac
    metrics.update({f"benchmark/{stage.name}_busy_frac": stage.busy_frac for stage in stats.stages})
    metrics.update({f"benchmark/{queue.name}_queue_fill_frac": queue.fill_frac for queue in stats.queues})
    numbers = {key: value for key, value in settings.items() if type(value) in (int, float)}
    tracker.log_metrics(0, {**metrics, **numbers})

    content = {
        "settings": settings,
        "rates": {name: dataclasses.asdict(rate) for name, rate in rates.items()},
        "stats": dataclasses.asdict(stats),
        "verdict": dataclasses.asdict(measured.verdict),
        "pipeline": _plain(dataclasses.asdict(config.pipeline)),
        "where": dict(measured.place),
    }
    replace_file(folder / BENCHMARK_FILE, lambda path: path.write_text(json.dumps(content, indent=1) + "\n"))
    rows = [{"measurement": name, **dataclasses.asdict(rate)} for name, rate in rates.items()]
    table = folder / "benchmark.csv"
    write_csv(table, rows)
    figure = folder / "figures" / "pipeline.png"
    plot_pipeline(figure, stats, measured.verdict, rates)
    for path in (folder / BENCHMARK_FILE, table):
        tracker.log_artifact(path)
    tracker.log_artifact(figure, "figures")
    return [table, figure]


def report(config: Config, tracker: Tracker, measured: Measured, files: Sequence[Path]) -> None:
    """Prints the result, and where everything is; writes what it advises as `pipeline/tuned.yaml`."""
    rates, folder = measured.rates, Path(config.run_dir)
    _print_table(rates, measured.reasons, config.benchmark.rounds)
    lines = [f"\n{_network_note(rates)}{_cold_note(rates)}{measured.verdict}\n"]
    if measured.verdict.overrides:
        lines.append(f"Tuned:       {_tune(config, measured)}")
    lines.append(f"Run folder:  {folder}")
    lines.append(f"Results:     {', '.join(str(path.relative_to(folder)) for path in files)}")
    if tracker.run_id:
        lines.append(f"MLflow run:  {tracker.run_id} in experiment {config.tracking.experiment}")
        lines.append(f"Compare:     {tracker.ui_command}")
    print("\n".join(lines), flush=True)


def _tune(config: Config, measured: Measured) -> str:
    """Writes the advised settings; a sweep advises for all of its jobs together, so its jobs leave the user's alone."""
    folder = Path(config.run_dir)
    text = tuned_text(
        _plain(dataclasses.asdict(config.pipeline)),
        measured.verdict.overrides,
        where=measured.place,
        rates=measured.rates,
        command=f"python -m slimexp {mask_command(sys.argv[1:])}",
        note=f"measured without {' '.join(measured.verdict.overrides)}, which the verdict advises",
    )
    path = write_tuned(folder, text)
    if membership.current() is not None:
        return str(path.relative_to(folder))
    return adopt_tuned(Path(os.getcwd()), text)


def _plain(values: Any) -> Any:
    """Returns settings as YAML and JSON hold them."""
    if isinstance(values, Mapping):
        return {key: _plain(value) for key, value in values.items()}
    return show(values) if isinstance(values, enum.Enum) else values


def _settings(config: Config, overrides: Sequence[str]) -> dict[str, Any]:
    """Returns the counts of the pipeline and whatever else the command set, by their keys."""
    values = flatten(config)
    asked = [override.lstrip("+~").partition("=")[0] for override in overrides]
    keys = ["pipeline.threads", "pipeline.readers", "pipeline.batch_size", *asked]
    chosen = {key: values.get(key, values.get(f"{key}.name")) for key in keys}
    apart = ("job", "run_dir", "output_root", "tracking", "hydra", "sweep", "dry_run")
    return {key: value for key, value in chosen.items() if value is not None and key.split(".")[0] not in apart}


def _network_note(rates: Mapping[str, Rate]) -> str:
    """Says why the network's own rate is not made use of, where it cannot be true."""
    alone, together = rates["network"].median, rates["training"].median
    if alone >= together:
        return ""
    return (
        f"The network alone came to {alone:,.0f} images/s and together with the pipeline to {together:,.0f}: other "
        "programs disturbed the measurement, or its rounds are too short. The slower figure is not made use of.\n"
    )


def _cold_note(rates: Mapping[str, Rate]) -> str:
    """Says what a first epoch, or data larger than the memory, does to the verdict."""
    if "pipeline_cold" not in rates or rates["pipeline_cold"].median >= 0.85 * rates["training"].median:
        return ""
    return (
        f"While files are not in the page cache, as in a first epoch, {rates['pipeline_cold'].median:,.0f} images/s "
        "come at most; more pipeline.readers or a faster disk help then. After that:\n"
    )


def _print_table(rates: Mapping[str, Rate], reasons: Mapping[str, str], rounds: int) -> None:
    table = Table(box=None, pad_edge=False)
    table.add_column("")
    table.add_column("images/s", justify="right")
    table.add_column(f"of {rounds} rounds" if rounds > 1 else "", justify="right")
    for name, title in _TITLES.items():
        if name in rates:
            rate = rates[name]
            spread = f"{rate.low:,.0f} to {rate.high:,.0f}" if rounds > 1 else ""
            table.add_row(title, f"{rate.median:,.0f}", spread)
        elif name in reasons:
            table.add_row(title, "-", reasons[name])
    console = Console()
    # Where the output goes into a file, lines need not end at the 80 columns that rich assumes.
    (console if console.is_terminal else Console(width=_FILE_COLUMNS)).print(table)
