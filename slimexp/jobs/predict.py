"""The job `predict`: says what is on images, by a run's weights, a checkpoint's, or an export.

It leaves a file, and no run in the tracking store: looking at a photo is no experiment.
"""

from __future__ import annotations

import dataclasses
import logging
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

import numpy as np
import tensorflow as tf
from rich.console import Console
from rich.table import Table

from slimexp.config import Config
from slimexp.config.export import PredictFormat
from slimexp.errors import UserError
from slimexp.export.inputs import find_inputs
from slimexp.export.manifest import SAVED_MODEL, Manifest, find_export
from slimexp.export.predictions import Prediction, Predictions, make_prediction, writing
from slimexp.export.reading import AllBadError, BadFiles, FileReader, as_split
from slimexp.export.scoring import SavedModelScorer, load_scorer, probabilities
from slimexp.jobs import build
from slimexp.jobs.lock import exclusive
from slimexp.jobs.starting import turn_first_pixels
from slimexp.jobs.trained import load_trained, pipeline_settings
from slimexp.pipeline import Feed, PipelineSettings
from slimexp.pipeline.preprocessing.base import PreprocessingLike, WindowPreprocessing
from slimexp.training.devices import make_strategy
from slimexp.training.inference import Inference
from slimexp.training.signals import StopSignals

__all__ = ["predict", "run"]

_log = logging.getLogger("slimexp")
_KEY = "predict.model"
# Up to so many images are shown on the screen as well.
_SHOWN = 10
_REPORT_SECS = 15.0
# A path of this name is the screen.
_SCREEN = "-"


@dataclasses.dataclass(frozen=True)
class _Model:
    """What predicts.

    Attributes:
        logits: From a batch of the pipeline to logits, float [B, C].
        classes: The C names.
        task: `single` or `multi`.
        preprocessing: That of evaluation.
        settings: Of the pipeline.
    """

    logits: Callable[[Mapping[str, tf.Tensor]], np.ndarray]
    classes: Sequence[str]
    task: str
    preprocessing: PreprocessingLike
    settings: PipelineSettings


def run(config: Config, overrides: Sequence[str] = ()) -> None:
    """Predicts for the files that `predict.input` means.

    Args:
        config: Checked; that of the run whose checkpoint it is, where it is a run's.
        overrides: What the command changed.

    Raises:
        UserError: If model or input cannot be used, or none of the files is an image that can be read.
        Interrupted: After a signal, at once; what was written so far stays in a file named `.partial`.
    """
    folder = Path(config.run_dir)
    folder.mkdir(parents=True, exist_ok=True)  # Within the folder of the run that was trained.
    with StopSignals() as signals, exclusive(folder):
        predict(config, signals)


def predict(config: Config, signals: StopSignals) -> tuple[int, int]:
    """Predicts, writes the results, and says where they are.

    Returns:
        The number of files that there is a prediction for, and that of the others.
    """
    chosen = config.predict
    if chosen.model is None:
        raise UserError(f"{_KEY}=null: say by what to predict: a run's folder, a checkpoint, or an export's folder.")
    if chosen.input is None:
        raise UserError(
            "predict.input=null: say what to look at: an image, a folder, a pattern ('photos/**/*.jpg') or a list file."
        )
    output, kind = _output(config)
    paths = find_inputs(chosen.input, image_dir=chosen.image_dir)
    signals.check()
    export = find_export(chosen.model)
    model = _of_checkpoint(config, chosen.model) if export is None else _of_export(config, export)
    top_k = min(chosen.top_k, len(model.classes))
    shown: list[Prediction] = []
    bad: list[Prediction] = []
    num_good = num_bad = 0
    try:
        with writing(output) as file:
            writer = Predictions(
                file, kind, class_names=model.classes, task=model.task, top_k=top_k, all_scores=chosen.all_scores
            )
            for path, logits, error in _looked_at(config, model, paths, signals):
                if logits is None:
                    prediction = Prediction(path, error=error)
                    num_bad += 1
                    bad += [prediction] if len(bad) < _SHOWN else []
                else:
                    # Of the logits by any model in the same way, so that rounding makes no difference.
                    prediction = make_prediction(
                        path,
                        probabilities(logits[np.newaxis], model.task)[0],
                        model.classes,
                        logits=logits,
                        task=model.task,
                        top_k=top_k,
                        threshold=chosen.threshold,
                    )
                    num_good += 1
                shown += [prediction] if len(shown) <= _SHOWN else []
                writer.write(prediction)
    except BrokenPipeError:  # Whoever read from the screen has seen enough.
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115  # Python flushes it at the end.
        return num_good, num_bad
    _say(output, shown if len(paths) <= _SHOWN else [], bad, num_good, num_bad)
    if not num_good:
        raise UserError(
            f"predict.input={chosen.input}: none of {num_bad} files could be read, the first: "
            f"{bad[0].path!r}: {bad[0].error}."
        )
    return num_good, num_bad


def _looked_at(
    config: Config, model: _Model, paths: Sequence[bytes], signals: StopSignals
) -> Iterator[tuple[str, np.ndarray | None, str | None]]:
    """Yields path, logits and error of each file, in order; either of the last two is None."""
    split = as_split(paths, "predict.input")
    reader = FileReader()
    bad_files = BadFiles(split, reader)
    feed = Feed(
        split,
        preprocessing=model.preprocessing,
        settings=model.settings,
        seed=config.seed,
        is_training=False,
        strategy=tf.distribute.get_strategy(),
        read_file=reader,
        check_stop=signals.check,
        skipped=bad_files,
    )
    done, said = 0, time.monotonic()
    turn_first_pixels(config.run_dir)
    with feed:
        try:
            for batch in feed:
                logits = model.logits(batch)
                signals.check()
                # The last batch is filled up with copies.
                for row in range(min(len(logits), len(paths) - done)):
                    error = bad_files.reason(done)
                    yield split.path(done), None if error else logits[row], error
                    done += 1
                if time.monotonic() > said + _REPORT_SECS:
                    said = time.monotonic()
                    _log.info("%d of %d files.", done, len(paths))
        except AllBadError:
            for index in range(done, len(paths)):
                yield split.path(index), None, bad_files.reason(index)


def _of_checkpoint(config: Config, path: str) -> _Model:
    strategy = make_strategy()
    trained = load_trained(config, path, key=_KEY, strategy=strategy)
    inference = Inference(trained.classifier, strategy)
    return _Model(
        logits=lambda batch: inference.step(batch)["logits"],
        classes=trained.classes.names,
        task=trained.classes.task,
        preprocessing=trained.preprocessing,
        settings=_settings(config),
    )


def _of_export(config: Config, folder: Path) -> _Model:
    """Returns the model of an export, which needs nothing but its own folder."""
    manifest = Manifest.read(folder, key=_KEY)
    scorer = load_scorer(folder, manifest, key=_KEY)
    decoding = manifest.decoding
    config = dataclasses.replace(
        config,
        preprocessing=dict(manifest.preprocessing),
        dataset={"exif": decoding["exif"]},
        pipeline=dataclasses.replace(config.pipeline, scaled_decode=decoding["scaled_decode"]),
    )
    size_px = manifest.model["image_size"]
    try:
        preprocessing = build.preprocessing(config, size_px=size_px, is_training=False)
    except UserError as error:
        model = scorer.model if isinstance(scorer, SavedModelScorer) else None
        if not hasattr(model, "finish"):
            raise UserError(
                f"{_KEY}={folder}: its preprocessing cannot be made here: {error}\nPut its code where Python finds it "
                f"(PYTHONPATH); only a {SAVED_MODEL}/ with the signature image_bytes carries it."
            ) from error
        _log.info("The preprocessing is the one within %s, as %s", SAVED_MODEL, error)
        preprocessing = _Carried(model, size_px) if decoding["scaled_decode"] else _CarriedWhole(model, size_px)
    _log.info("Using the export of %s.", manifest.checkpoint["path"])
    return _Model(
        logits=lambda batch: scorer.logits(batch["image"]),
        classes=manifest.classes,
        task=manifest.task,
        preprocessing=preprocessing,
        settings=_settings(config),
    )


class _CarriedWhole:
    """The preprocessing that a SavedModel carries with it."""

    num_draws = 0

    def __init__(self, model: Any, size_px: int) -> None:
        self.size_px = size_px
        self._model = model

    def window(self, height: tf.Tensor, width: tf.Tensor, draws: tf.Tensor) -> tf.Tensor:
        return self._model.window(height, width)

    def finish(self, image: tf.Tensor, draws: tf.Tensor) -> tf.Tensor:
        return self._model.finish(image)


class _Carried(_CarriedWhole, WindowPreprocessing):
    """The same of one that takes large photos at a smaller scale."""


def _settings(config: Config) -> PipelineSettings:
    """Returns the pipeline's numbers.

    `pipeline.decoder=auto` means TensorFlow's ops here, which an export has inside: so an image's scores are the same
    on any machine, by a checkpoint, an export, or its SavedModel alone.
    """
    settings = pipeline_settings(config, batch_size=config.predict.batch_size)
    return dataclasses.replace(settings, decoder="tensorflow") if settings.decoder == "auto" else settings


def _output(config: Config) -> tuple[Path | None, str]:
    """Returns the file to write, None for the screen, and its format."""
    chosen, kind = config.predict, config.predict.format
    if chosen.output is None:
        suffix = PredictFormat.csv.value if kind is PredictFormat.auto else kind.value
        return Path(config.run_dir) / f"predictions.{suffix}", suffix
    path = Path(chosen.output)
    is_screen = path.name == _SCREEN
    if path.is_dir():
        raise UserError(f"predict.output={path}: is a folder; name a file, e.g. {path / 'predictions.csv'}.")
    if kind is PredictFormat.auto:
        suffixes = {".csv": "csv", ".jsonl": "jsonl", ".ndjson": "jsonl"}
        found = "csv" if is_screen else suffixes.get(path.suffix.lower())
        if found is None:
            raise UserError(
                f"predict.output={path}: the suffix says nothing about the format; name it .csv or .jsonl, or set "
                "predict.format."
            )
        return None if is_screen else path, found
    return None if is_screen else path, kind.value


def _say(
    output: Path | None, shown: Sequence[Prediction], bad: Sequence[Prediction], num_good: int, num_bad: int
) -> None:
    """Says what came of it, and shows what there is of few; where the results go to the screen, beside them."""
    stream = sys.stderr if output is None else sys.stdout
    if shown and output is not None:
        _show_table(shown, stream)
    lines = [f"  {prediction.path!r}: {prediction.error}" for prediction in bad]
    lines += ["  ..."] * (len(lines) < num_bad)
    total = num_good + num_bad
    done = f"Predicted {num_good} of {total} {'file' if total == 1 else 'files'}"
    done += f"; {num_bad} could not be read, see the column `error`" if num_bad else ""
    lines.append(f"{done}{'.' if output is None else f': {output}'}")
    print("\n".join(lines), file=stream, flush=True)


def _show_table(shown: Sequence[Prediction], stream: IO[str]) -> None:
    """Prints the best classes of each file; a star marks the labels that count as predicted."""
    table = Table(box=None, pad_edge=False)
    for column in ("file", "class", "score"):
        table.add_column(column, justify="right" if column == "score" else "left", no_wrap=True)
    for prediction in shown:
        name = Path(prediction.path).name
        if prediction.error is not None:
            table.add_row(name, "(cannot be read)", "")
        for place, (best, score) in enumerate(prediction.best):
            sign = " *" if prediction.labels is not None and best in prediction.labels else ""
            table.add_row("" if place else name, best, f"{score:.4f}{sign}")
    Console(markup=False, highlight=False, file=stream, soft_wrap=True).print(table)
