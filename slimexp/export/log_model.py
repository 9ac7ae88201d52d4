"""Logs an export as an MLflow model, with its signature, and registers it where asked for."""

from __future__ import annotations

import contextlib
import importlib.metadata
import io
import os
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from slimexp.errors import UserError
from slimexp.export.manifest import SAVED_MODEL, Manifest
from slimexp.export.module import IMAGE_BYTES

__all__ = ["log_model"]

_MODEL_FILE = Path(__file__).with_name("mlflow_model.py")
# What the model's own file imports, as it is installed here. Named, as finding it out takes MLflow several seconds.
_REQUIREMENTS = ("mlflow", "numpy", "pandas", "tensorflow")


def log_model(
    folder: Path, manifest: Manifest, *, tracking_uri: str, run_id: str, registered_name: str | None = None
) -> str:
    """Logs the SavedModel of an export into a run.

    Args:
        folder: The export.
        manifest: What its `export.json` says.
        tracking_uri: The store, as MLflow takes it.
        run_id: The run.
        registered_name: The name in the model registry; None: it is not registered.

    Returns:
        The model's address, e.g. `models:/m-0123`, and its registered version.

    Raises:
        UserError: If the store does not take it.
    """
    import mlflow
    from mlflow.exceptions import MlflowException
    from mlflow.models import Model

    before = mlflow.get_tracking_uri()
    try:
        mlflow.set_tracking_uri(tracking_uri)
        with _quiet():
            # Left to itself MLflow puts the model into an experiment of its own choice, and its files with it.
            client = mlflow.MlflowClient(tracking_uri)
            run = client.get_run(run_id)
            logged = client.create_logged_model(
                run.info.experiment_id, name="model", source_run_id=run_id, params=run.data.params
            )
            info = Model.log(
                artifact_path=None,
                name="model",
                model_id=logged.model_id,
                flavor=mlflow.pyfunc,
                run_id=run_id,
                registered_model_name=registered_name,
                step=manifest.checkpoint["step"] or 0,
                metadata={"classes": manifest.classes, "task": manifest.task, "checkpoint": dict(manifest.checkpoint)},
                python_model=str(_MODEL_FILE),
                artifacts={"saved_model": str(folder / SAVED_MODEL)},
                signature=_signature(manifest),
                pip_requirements=[f"{name}=={importlib.metadata.version(name)}" for name in _REQUIREMENTS],
            )
    except (MlflowException, OSError) as error:
        line = (str(error).splitlines() or [type(error).__name__])[0]
        raise UserError(
            f"tracking.log_model=true: the tracking store did not take the model: {line}. The export is complete: "
            f"{folder}."
        ) from error
    finally:
        mlflow.set_tracking_uri(before)
    if registered_name is None:
        return str(info.model_uri)
    return f"models:/{registered_name}/{info.registered_model_version} ({info.model_uri})"


def _signature(manifest: Manifest) -> Any:
    from mlflow.models import ModelSignature
    from mlflow.types import ColSpec, ParamSchema, ParamSpec, Schema, TensorSpec
    from mlflow.types.schema import Array, DataType

    scores = ColSpec(Array(DataType.double), name="scores")
    if manifest.task == "multi":
        outputs = [ColSpec(Array(DataType.string), name="classes"), scores]
        params = ParamSchema([ParamSpec("threshold", DataType.double, 0.5)])
    else:
        outputs = [ColSpec(DataType.string, name="class"), ColSpec(DataType.double, name="score"), scores]
        params = None
    if IMAGE_BYTES in (manifest.saved_model or {}):
        inputs = Schema([ColSpec(DataType.binary, name="image")])
    else:
        size = manifest.model["image_size"]
        inputs = Schema([TensorSpec(np.dtype(np.float32), (-1, size, size, 3))])
    return ModelSignature(inputs=inputs, outputs=Schema(outputs), params=params)


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Keeps MLflow's remarks on a new model off the screen; the job says where it is."""
    names = ("MLFLOW_PRINT_MODEL_URLS_ON_CREATION", "MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR")
    before = {name: os.environ.get(name) for name in names}
    os.environ.update(dict.fromkeys(names, "false"))
    try:
        with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
            warnings.simplefilter("ignore")  # Advice to name an example, or types, beside the signature that it has.
            yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
