"""Writes the folders that sweeps leave, without running any job."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from slimexp.sweep.jobs import Sweep, SweepJob

PIPELINE = {
    "name": "default",
    "threads": 4,
    "readers": 4,
    "batch_size": 32,
    "shuffle": True,
    "decoder": "auto",
    "scaled_decode": True,
    "cache": "none",
    "cache_short_side": 512,
    "cache_dir": None,
    "cache_max_bytes": 20_000_000_000,
    "queues": {
        "filename": {"capacity": None},
        "read": {"capacity": None, "min_after_dequeue": None},
        "prefetch": {"capacity": None},
        "batch": {"capacity": None},
    },
}
PLACE = {
    "host": "oak",
    "cpu": "AMD EPYC",
    "num_cpus": 4.0,
    "dataset": "digits (1,438 images)",
    "model": "lenet at 28 px",
}


class SyntheticSweep:
    """A sweep's folder that is filled job by job."""

    def __init__(self, folder: Path, **fields: Any) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self.record = Sweep(command=["python", "-m", "slimexp", "-m", "job=benchmark"], status="FINISHED", **fields)
        self.record.write(folder)

    def job(self, swept: Mapping[str, str], status: str = "FINISHED", **fields: Any) -> Path:
        """Adds a job and returns its folder."""
        number = len(self.record.jobs)
        name = " ".join(["lenet", *(f"{key.rpartition('.')[2]}={value}" for key, value in swept.items())])
        overrides = [f"{key}={value}" for key, value in swept.items()]
        values = {"number": number, "dir": str(number), "name": name, "overrides": overrides, "swept": dict(swept)}
        self.record.jobs.append(
            SweepJob(**{**values, "status": status, "run_id": f"id{number}", "secs": 12.5, **fields})
        )
        self.record.write(self.folder)
        folder = self.folder / str(number)
        folder.mkdir(parents=True)
        return folder

    def train(
        self, swept: Mapping[str, str], metrics: Mapping[str, float], speed: float = 500.0, **fields: Any
    ) -> Path:
        """Adds a training job with its last metrics."""
        folder = self.job(swept, **fields)
        rows = [{"train/images_per_sec": speed / 3}, {"train/images_per_sec": speed}, dict(metrics)]
        write_metrics(folder, rows)
        write_record(folder, fields.get("status", "FINISHED"), tags={"bottleneck": "network"})
        return folder

    def benchmark(
        self,
        swept: Mapping[str, str],
        pipeline: float,
        training: float,
        bottleneck: str = "cores",
        network: float = 600.0,
        advice: tuple[str, ...] = (),
        **fields: Any,
    ) -> Path:
        """Adds a job of `job=benchmark` with its result."""
        folder = self.job(swept, overrides=["job=benchmark", *(f"{k}={v}" for k, v in swept.items())], **fields)
        rates = {"read": 20 * pipeline, "preprocess": 1.1 * pipeline, "pipeline": pipeline, "training": training}
        rates["network"] = network
        settings = {key: int(value) if value.isdecimal() else value for key, value in swept.items()}
        pipeline_keys = {key.partition(".")[2]: value for key, value in settings.items() if key.startswith("pipeline.")}
        queues = [("filename", 1.0), ("read", 0.9), ("prefetch", 0.4), ("batch", min(1.0, training / network))]
        content = {
            "settings": {"pipeline.batch_size": 32, **settings},
            "rates": {name: {"median": rate, "low": rate - 5, "high": rate + 5} for name, rate in rates.items()},
            "stats": {"queues": [{"name": name, "fill_frac": fill} for name, fill in queues]},
            "verdict": {"bottleneck": bottleneck, "sentence": "Because.", "overrides": list(advice)},
            "pipeline": {**PIPELINE, **pipeline_keys},
            "where": PLACE,
        }
        (folder / "benchmark.json").write_text(json.dumps(content))
        write_metrics(folder, [{f"benchmark/{name}_images_per_sec": rate for name, rate in rates.items()}])
        write_record(folder, "FINISHED")
        return folder


def write_metrics(folder: Path, rows: list[dict[str, float]]) -> None:
    """Writes a job's `metrics.jsonl`, a row a step."""
    lines = []
    for step, row in enumerate(rows):
        values = {name: "NaN" if math.isnan(value) else value for name, value in row.items()}
        lines.append(json.dumps({"step": step, "time": 1e9 + step, "metrics": values}) + "\n")
    (folder / "metrics.jsonl").write_text("".join(lines))


def write_record(folder: Path, status: str, **content: Any) -> None:
    """Writes a job's `run.json`."""
    (folder / "run.json").write_text(json.dumps({"status": status, **content}))
