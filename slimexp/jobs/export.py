"""The job `export`: makes a model for others of a checkpoint, checks it against evaluation, and hands it over."""

from __future__ import annotations

import contextlib
import datetime
import logging
import os
import shutil
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from slimexp.config import Config
from slimexp.config.export import ExportFormat
from slimexp.errors import UserError
from slimexp.export.check import TOLERANCE, Sample, compare
from slimexp.export.freezing import freeze
from slimexp.export.graphs import InferenceGraph, inference_graph
from slimexp.export.install import discard, install, locked, make_folder, present, restore, workplace
from slimexp.export.log_model import log_model
from slimexp.export.manifest import EXTRA, FROZEN_GRAPH, LABELS, MANIFEST, SAVED_MODEL, TFLITE, Manifest
from slimexp.export.module import IMAGE_BYTES, IMAGES, ExportedModel, why_no_bytes
from slimexp.export.scoring import FrozenScorer, SavedModelScorer, TfliteScorer, plain_path
from slimexp.export.summary import summary
from slimexp.jobs.export_sample import take_sample
from slimexp.jobs.lock import exclusive
from slimexp.jobs.record import earlier_run, recorded, refuse_other_job
from slimexp.jobs.starting import turn_first_pixels
from slimexp.jobs.targets import arguments
from slimexp.jobs.trained import Trained, load_trained, pipeline_settings, source_tags
from slimexp.pipeline.preprocessing.base import WindowPreprocessing
from slimexp.pipeline.steps import inner_of
from slimexp.tracking import Tracker, provenance
from slimexp.tracking.location import resolve_uri
from slimexp.training.signals import StopSignals

__all__ = ["export", "run"]

_log = logging.getLogger("slimexp")
_KEY = "export.checkpoint"
# The sample goes through in batches of this size.
_BATCH = 8


def run(config: Config, overrides: Sequence[str] = ()) -> None:
    """Exports the checkpoint that `export.checkpoint` names.

    Args:
        config: Checked; that of the run whose checkpoint it is, where it is a run's.
        overrides: What the command changed, for the run's name.

    Raises:
        UserError: If the checkpoint does not fit, or the export is not what evaluation is; nothing of it is left then,
            and the run is recorded as FAILED.
    """
    folder = Path(config.run_dir)
    folder.mkdir(parents=True, exist_ok=True)  # Within the folder of the run that was trained.
    with StopSignals() as signals, exclusive(folder):
        refuse_other_job(config, earlier_run(folder))
        with recorded(config, overrides, None, {}, signals) as tracker:
            export(config, tracker, signals)


def export(config: Config, tracker: Tracker, signals: StopSignals) -> Path:
    """Builds the export beside its place, checks it, and moves it there.

    Returns:
        Its folder.
    """
    if config.export.checkpoint is None:
        raise UserError(
            f"{_KEY}=null: say what to export: run_dir=FOLDER for a run of job=train, or {_KEY}=PATH of a checkpoint."
        )
    _check_tracking(config)
    folder = Path(config.export.dir or config.run_dir)
    _refuse_earlier(config, folder)
    # On the CPU also where there is a GPU: its sums may be rounded to ten bits, which is no fault of an export.
    with tf.device("/CPU:0"):
        trained = load_trained(
            config, config.export.checkpoint, key=_KEY, strategy=tf.distribute.OneDeviceStrategy("/cpu:0")
        )
        turn_first_pixels(config.run_dir)
        tracker.set_tags(source_tags(trained))
        sample, note = take_sample(config, trained, signals)
        signals.check()
        make_folder(folder)
        is_own = os.path.samefile(folder, config.run_dir)  # Which is locked already.
        if is_own:
            restore(folder)
        with contextlib.nullcontext() if is_own else locked(folder):
            _refuse_earlier(config, folder)  # Another process may have made one meanwhile.
            place = workplace(folder)
            try:
                manifest = _build(config, trained, sample, place, signals, notes=[note] if note else [])
                signals.check()
                install(place, folder)
            finally:
                discard(place, folder)
    for name in (MANIFEST, LABELS):
        tracker.log_artifact(folder / name)
    lines = summary(folder, manifest)
    if config.tracking.log_model:
        lines.append(_log_model(config, folder, manifest, tracker))
    if config.export.dir is not None:
        lines.append(f"Run folder:  {config.run_dir}")
    if tracker.run_id:
        lines.append(f"MLflow run:  {tracker.run_id} in experiment {config.tracking.experiment}")
    signals.hold()
    print("\n".join(lines), flush=True)
    return folder


def _refuse_earlier(config: Config, folder: Path) -> None:
    """Refuses to replace an export that nobody has said may go."""
    there = present(folder)
    if there and not config.export.overwrite:
        raise UserError(
            f"export.dir={folder}: there is an export already ({', '.join(there)}). Choose another folder, or let it "
            "be replaced with export.overwrite=true."
        )


def _check_tracking(config: Config) -> None:
    """Refuses what could only be found out when all the work is done."""
    tracking = config.tracking
    if tracking.registered_model is not None and not tracking.log_model:
        raise UserError(
            f"tracking.registered_model={tracking.registered_model}: what is registered is a logged model; set "
            "tracking.log_model=true as well."
        )
    if tracking.log_model and ExportFormat.saved_model not in config.export.formats:
        raise UserError("tracking.log_model=true: logs the SavedModel; add saved_model to export.formats.")
    if tracking.log_model and tracking.backend.value == "none":
        raise UserError("tracking.log_model=true: with tracking=none there is no run to log the model in.")


def _build(
    config: Config, trained: Trained, sample: Sample, place: Path, signals: StopSignals, *, notes: list[str]
) -> Manifest:
    """Writes all parts of the export into its workplace and checks them, as they are on the disk."""
    formats = [kind.value for kind in config.export.formats]
    classes, classifier = trained.classes, trained.classifier
    reason = why_no_bytes(trained.preprocessing)
    if reason is not None:
        notes.append(f"no signature {IMAGE_BYTES}: {reason}")
        _log.warning("The export has no signature %s, only %s: %s.", IMAGE_BYTES, IMAGES, reason)
    settings = pipeline_settings(config)
    # Others may count on the window's pixels one by one, and get them so in evaluation too.
    scaled = settings.scaled_decode and isinstance(inner_of(trained.preprocessing), WindowPreprocessing)
    model = ExportedModel(
        lambda images: classifier(images, is_training=False)[0],
        variables=list(classifier.store.variables.values()),
        class_names=classes.names,
        task=classes.task,
        image_size=trained.image_size,
        preprocessing=None if reason is not None else trained.preprocessing,
        exif=settings.exif,
        scaled=scaled,
    )
    labels = "".join(f"{name}\n" for name in classes.names)
    (place / LABELS).write_text(labels, encoding="utf-8")
    of_images: dict[str, Callable[[np.ndarray], np.ndarray]] = {}
    of_bytes: dict[str, Callable[[Sequence[bytes]], np.ndarray]] = {}
    signatures = frozen = tflite = None

    if SAVED_MODEL in formats or "tflite" in formats:
        model.save(place / SAVED_MODEL, assets={LABELS: labels})
        signatures = {name: _signature(function) for name, function in model.signatures().items()}
        scorer = SavedModelScorer(place / SAVED_MODEL)
        of_images[f"{SAVED_MODEL} {IMAGES}"] = scorer.of_images
        if reason is None:
            of_bytes[f"{SAVED_MODEL} {IMAGE_BYTES}"] = scorer.of_bytes
    signals.check()
    if "frozen_graph" in formats:
        graph, frozen = _freeze(trained, place / FROZEN_GRAPH)
        of_images["frozen_graph"] = FrozenScorer(
            place / FROZEN_GRAPH, input=f"{graph.input}:0", scores=f"{graph.scores}:0"
        ).of_images
    signals.check()
    if "tflite" in formats:
        with plain_path(place / SAVED_MODEL) as path:
            converted = tf.lite.TFLiteConverter.from_saved_model(path, signature_keys=[IMAGES]).convert()
        (place / TFLITE).write_bytes(converted)
        assert signatures is not None
        tflite = {IMAGES: signatures[IMAGES]}
        of_images["tflite"] = TfliteScorer(place / TFLITE).of_images
    signals.check()
    differences = compare(sample, of_images, of_bytes)
    if ExportFormat.saved_model not in config.export.formats and SAVED_MODEL in os.listdir(place):
        shutil.rmtree(place / SAVED_MODEL)  # It was the way to another format.
        signatures = None
        differences = {name: value for name, value in differences.items() if not name.startswith(SAVED_MODEL)}

    found = provenance.collect(sys.argv, os.getcwd())
    code = found["code"]
    manifest = Manifest(
        model={
            "name": config.model.name,
            "network": config.model.network["_target_"],
            "image_size": trained.image_size,
            "parameters": classifier.num_parameters(),
        },
        task=classes.task,
        classes=list(classes.names),
        saved_model=signatures,
        frozen_graph=frozen,
        tflite=tflite,
        preprocessing=_option(config.preprocessing),
        decoding={"exif": "apply" if settings.exif else "ignore", "scaled_decode": scaled},
        checkpoint={"path": trained.checkpoint.prefix, "step": trained.step, "weights": trained.weights},
        code=None if code is None else {key: code[key] for key in ("commit", "branch", "dirty")},
        versions={"python": found["python"], **found["versions"]},
        check={
            "images": len(sample),
            "files": len(sample.decodable),
            "split": sample.split,
            "tolerance": TOLERANCE,
            "max_difference": differences,
        },
        created=datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        notes=notes,
    )
    (place / MANIFEST).write_text(manifest.text(), encoding="utf-8")
    if signatures is not None:  # A SavedModel is often copied alone.
        (place / SAVED_MODEL / EXTRA / MANIFEST).write_text(manifest.text(), encoding="utf-8")
    return manifest


def _freeze(trained: Trained, path: Path) -> tuple[InferenceGraph, dict[str, Any]]:
    """Writes the frozen graph; returns the graph that it came from, and its description."""
    classifier, classes = trained.classifier, trained.classes
    graph = inference_graph(
        lambda images: classifier.trace(images, is_training=False), image_size=trained.image_size, task=classes.task
    )
    assert graph.scores is not None
    variables = classifier.store.variables
    frozen = freeze(
        graph.definition,
        [graph.logits, graph.scores],
        lambda names: ((name, variables[name].numpy()) for name in names),
        available=variables,
        origin=trained.checkpoint.prefix,
    )
    path.write_bytes(frozen.SerializeToString())

    def described(node: str, shape: Sequence[int | None]) -> dict[str, Any]:
        return {"node": node, "tensor": f"{node}:0", "dtype": "float32", "shape": list(shape)}

    size, count = trained.image_size, len(classes.names)
    return graph, {
        "inputs": {"images": described(graph.input, [None, size, size, 3])},
        "outputs": {"logits": described(graph.logits, [None, count]), "scores": described(graph.scores, [None, count])},
    }


def _signature(function: Any) -> dict[str, Any]:
    (_, inputs), outputs = function.structured_input_signature, function.structured_outputs
    inputs = inputs or {spec.name: spec for spec in function.structured_input_signature[0]}
    return {
        "inputs": {name: {"dtype": spec.dtype.name, "shape": spec.shape.as_list()} for name, spec in inputs.items()},
        "outputs": {name: {"dtype": spec.dtype.name, "shape": spec.shape.as_list()} for name, spec in outputs.items()},
    }


def _option(option: Any) -> dict[str, Any]:
    """Returns a checked option as what JSON can hold."""
    target = option["_target_"] if isinstance(option, dict) else option._target_
    return {"_target_": target, **arguments(option)}


def _log_model(config: Config, folder: Path, manifest: Manifest, tracker: Tracker) -> str:
    if tracker.run_id is None:
        raise UserError(
            "tracking.log_model=true: the tracking store does not answer, so there is no run to log the model in. The "
            f"export is complete: {folder}."
        )
    uri = resolve_uri(config.tracking.uri, Path.cwd()).uri
    name = config.tracking.registered_model
    logged = log_model(folder, manifest, tracking_uri=uri, run_id=tracker.run_id, registered_name=name)
    return f"MLflow model: {logged}"
