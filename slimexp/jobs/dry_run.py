"""Checks all of a job that can be checked without running it; nothing is trained, recorded or left behind."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from slimexp.config import Config, show
from slimexp.dataset.split import Dataset
from slimexp.errors import UserError
from slimexp.export.inputs import find_inputs
from slimexp.export.manifest import Manifest, find_export
from slimexp.jobs import build
from slimexp.jobs.auto import AUTO
from slimexp.jobs.record import earlier_run, refuse_other_job, resume_step
from slimexp.jobs.restoring import find_checkpoint, restore_rules
from slimexp.jobs.targets import call
from slimexp.jobs.train import count_steps
from slimexp.jobs.trained import load_trained
from slimexp.pipeline.doctor.cpus import available_cpus, whole_cpus
from slimexp.training.checkpoint_file import CheckpointFile
from slimexp.training.checkpoints import Checkpoints
from slimexp.training.classifier import choose_image_size
from slimexp.training.devices import count_replicas, make_strategy
from slimexp.training.model_table import ModelTable, model_table
from slimexp.training.restore_plan import make_plan
from slimexp.training.restore_report import check_plan
from slimexp.training.scopes import resolve_scopes
from slimexp.validation import flatten

__all__ = ["Rehearsal"]

_T = TypeVar("_T")


class Rehearsal:
    """Goes through what jobs do before their first step. What several share, as data or networks, is built once."""

    def __init__(self) -> None:
        self._kept: dict[str, Any] = {}

    def check(self, config: Config) -> str:
        """Checks one job.

        Args:
            config: Checked, as for running it.

        Returns:
            What it would do, in a line.

        Raises:
            UserError: For the first thing that would end it.
        """
        if config.job.reads is not None:
            return _of_trained(config)
        build.check_targets(config)
        if config.job.name == "inspect" and config.inspect.checkpoint is not None:
            keys = ("inspect.checkpoint", "inspect.other")
            paths = {key: flatten(config)[key] for key in keys}
            return "; ".join(CheckpointFile(path, key=key).describe() for key, path in paths.items() if path)
        data = self._dataset(config)
        image_size = choose_image_size(build.network(config), config.model.image_size, data.image_side_px)
        for is_training in (True, False):
            build.preprocessing(config, size_px=image_size, is_training=is_training)
        model = self._model(config, data, image_size)
        evaluated = "none" if data.eval is None else f"{len(data.eval):,}"
        parts = [
            f"{len(data.train):,} images to train on and {evaluated} to evaluate on, of {image_size} x {image_size}",
            f"{model.table.num_values:,} values in {len(model.table.rows)} variables",
        ]
        if config.job.name in ("train", "benchmark"):
            parts.append(self._training(config, data, model))
        return "; ".join(parts)

    def _training(self, config: Config, data: Dataset, model: _Model) -> str:
        settings = build.pipeline_settings(_without_auto(config))
        replicas = count_replicas(config.trainer.strategy.value, config.trainer.num_clones)
        settings.check(len(data.train), replicas, is_training=True, is_sequential=data.train.is_sequential)
        build.loss_settings(config, data)
        last_step = count_steps(config, len(data.train))
        steps_per_epoch = len(data.train) / config.pipeline.batch_size
        call(
            "learning_rate",
            config.learning_rate,
            ignore=("name",),
            steps_per_epoch=steps_per_epoch,
            total_steps=last_step,
        )
        resolve_scopes(
            "restore.trainable_scopes",
            config.restore.trainable_scopes,
            [row.name for row in model.table.rows if row.is_trainable],
            heads=model.heads,
            network=model.name,
            kind="trainable variable",
        )
        run_dir = Path(config.run_dir)
        earlier = earlier_run(run_dir)
        refuse_other_job(config, earlier)
        if config.job.name == "benchmark":
            return f"{config.benchmark.rounds} rounds of {config.benchmark.secs:g} s a measurement"
        steps = f"to step {last_step:,}, {last_step / steps_per_epoch:,.1f} epochs"
        first_step = resume_step(config, Checkpoints(run_dir / "checkpoints"), earlier)
        if first_step is not None:
            return f"from its checkpoint of step {first_step:,} {steps}"
        pretrained = find_checkpoint(config)
        if pretrained is None:
            return steps
        rules = restore_rules(config)
        shapes = {row.name: row.shape for row in model.table.rows}
        plan = make_plan(shapes, pretrained.shapes(), rules, heads=model.heads, network=model.name)
        check_plan(plan, rules, origin=pretrained.path, heads=model.heads, network=model.name)
        return f"{len(plan.sources)} of {plan.num_wanted} variables from {pretrained.path}; {steps}"

    def _dataset(self, config: Config) -> Dataset:
        return self._keep(["dataset", flatten(config.dataset)], lambda: build.dataset(config))

    def _model(self, config: Config, data: Dataset, image_size: int) -> _Model:
        def make() -> _Model:
            classifier = build.classifier(config, num_classes=data.num_classes, image_size=image_size)
            return _Model(classifier.network.__name__, tuple(classifier.head_scopes), model_table(classifier))

        return self._keep(["model", flatten(config.model), data.num_classes, image_size], make)

    def _keep(self, key: object, make: Callable[[], _T]) -> _T:
        text = json.dumps(key, default=show, sort_keys=True)
        if text not in self._kept:
            self._kept[text] = make()
        kept: _T = self._kept[text]
        return kept


@dataclasses.dataclass(frozen=True)
class _Model:
    name: str
    heads: tuple[str, ...]
    table: ModelTable


def _without_auto(config: Config) -> Config:
    """Returns the configuration with a count in the place of those that are measured when the job begins."""
    counts: dict[str, Any] = {
        name: whole_cpus(available_cpus()) for name in ("threads", "readers") if getattr(config.pipeline, name) == AUTO
    }
    return dataclasses.replace(config, pipeline=dataclasses.replace(config.pipeline, **counts)) if counts else config


def _of_trained(config: Config) -> str:
    """Loads what a job is to work on, a checkpoint or an export's description, and looks for its images."""
    assert config.job.reads is not None
    key, path = config.job.reads, flatten(config).get(config.job.reads)
    if path is None:
        raise UserError(f"{key}=null: job={config.job.name} needs something to work on; set {key}=PATH.")
    parts = []
    if config.job.name == "predict":
        if config.predict.input is None:
            raise UserError("predict.input=null: say what to look at, e.g. predict.input=photos.")
        found = find_inputs(config.predict.input, image_dir=config.predict.image_dir)
        parts.append(f"{len(found):,} files in {config.predict.input}")
    export = find_export(path) if config.job.name == "predict" else None
    if export is not None:
        Manifest.read(export, key=key)
        return "; ".join([*parts, f"the export in {export}"])
    evaluates = config.job.name == "evaluate"
    if evaluates:
        build.check_targets(config)
    trained = load_trained(config, path, key=key, strategy=make_strategy(), needs_data=evaluates)
    return "; ".join(
        [*parts, f"{trained.checkpoint.describe()}, images of {trained.image_size} x {trained.image_size}"]
    )
