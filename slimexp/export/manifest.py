"""`export.json`: all that someone needs to know to use an export, and the names of its files."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from slimexp.errors import UserError

__all__ = ["EXTRA", "FROZEN_GRAPH", "LABELS", "MANIFEST", "NAMES", "SAVED_MODEL", "TFLITE", "Manifest", "find_export"]

MANIFEST, LABELS = "export.json", "labels.txt"
# Where, within a SavedModel, TensorFlow keeps what it does not read itself.
EXTRA = "assets.extra"
SAVED_MODEL, FROZEN_GRAPH, TFLITE = "saved_model", "frozen_graph.pb", "model.tflite"
# All that an export can consist of.
NAMES = (SAVED_MODEL, FROZEN_GRAPH, TFLITE, LABELS, MANIFEST)
_VERSION = 1


@dataclasses.dataclass(frozen=True)
class Manifest:
    """What `export.json` says.

    Attributes:
        model: `name`, `network` (the function), `image_size` (the images' side in pixels).
        task: `single` (softmax over the classes) or `multi` (a sigmoid for each label).
        classes: The names in the order of the scores.
        saved_model: Signature -> its `inputs` and `outputs`, each name -> `dtype` and `shape`; None: not there.
        frozen_graph: `inputs` and `outputs`, each name -> `node`, `tensor`, `dtype` and `shape`; None: not there.
        tflite: The signature as in `saved_model`; None: not there.
        preprocessing: Its `_target_` and all its values, as in evaluation.
        decoding: `exif` (apply or ignore) and `scaled_decode`.
        checkpoint: `path`, `step`, `weights` (last or averages).
        code: The state of the repository, as `tracking.provenance` describes it; None outside of one.
        versions: Package -> version.
        check: What the comparison with evaluation came to.
        created: When, in ISO 8601.
        notes: What was left out, and why.
    """

    model: Mapping[str, Any]
    task: str
    classes: list[str]
    saved_model: Mapping[str, Any] | None
    frozen_graph: Mapping[str, Any] | None
    tflite: Mapping[str, Any] | None
    preprocessing: Mapping[str, Any]
    decoding: Mapping[str, Any]
    checkpoint: Mapping[str, Any]
    code: Mapping[str, Any] | None
    versions: Mapping[str, str]
    check: Mapping[str, Any]
    created: str
    notes: list[str] = dataclasses.field(default_factory=list)
    version: int = _VERSION

    def text(self) -> str:
        """Returns it as the text of a file."""
        return json.dumps(dataclasses.asdict(self), indent=1, ensure_ascii=False) + "\n"

    @classmethod
    def read(cls, folder: Path, *, key: str = "predict.model") -> Manifest:
        """Reads an export's.

        Raises:
            UserError: If it cannot be read, or is of a later version.
        """
        path = next((path for path in _places(folder) if path.is_file()), folder / MANIFEST)
        try:
            values = json.loads(path.read_text(encoding="utf-8"))
            version = values.get("version", 0)
            if version > _VERSION:
                raise UserError(
                    f"{key}={folder}: {MANIFEST} is of version {version}, and this slimexp knows {_VERSION}; update it."
                )
            known = {field.name for field in dataclasses.fields(cls)}
            return cls(**{name: value for name, value in values.items() if name in known})
        except UserError:
            raise
        except (OSError, ValueError, TypeError, AttributeError) as error:
            raise UserError(
                f"{key}={folder}: {MANIFEST} cannot be used: {error}. Export the model again (job=export)."
            ) from error


def find_export(path: str | Path) -> Path | None:
    """Returns the folder of the export that a path means: itself, or one of the files in it; None if it is none.

    A SavedModel that was copied alone is an export too: it has the description with it.
    """
    path = Path(path)
    return next((folder for folder in (path, path.parent) if any(file.is_file() for file in _places(folder))), None)


def _places(folder: Path) -> tuple[Path, Path]:
    return folder / MANIFEST, folder / EXTRA / MANIFEST
