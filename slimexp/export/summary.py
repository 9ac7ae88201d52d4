"""Says in words what an export is, and how to use it."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from slimexp.export.manifest import FROZEN_GRAPH, SAVED_MODEL, TFLITE, Manifest
from slimexp.export.module import IMAGE_BYTES, IMAGES
from slimexp.shown import shown_python

__all__ = ["summary"]


def summary(folder: Path, manifest: Manifest) -> list[str]:
    """Returns lines on an export: what it was made of, how it was checked, its inputs and outputs, what to do next.

    Args:
        folder: Where it is.
        manifest: What its `export.json` says.
    """
    check = manifest.check
    worst = max(check["max_difference"].values())
    step = manifest.checkpoint["step"]
    lines = [
        "",
        f"Export:      {folder}",
        f"Of:          {manifest.checkpoint['path']}" + ("" if step is None else f", step {step}"),
        f"Checked:     {check['images']} images ({check['split']}), the scores are evaluation's to {worst:.1g}"
        + ("" if check["files"] == check["images"] else f"; {check['files']} of them also from their files' bytes"),
    ]
    for name, signature in (manifest.saved_model or {}).items():
        lines.append(f"{SAVED_MODEL}/:  {name}: {_shown(signature['inputs'])} -> {_shown(signature['outputs'])}")
    if manifest.frozen_graph is not None:
        graph = manifest.frozen_graph
        nodes = ", ".join(f"{name} {entry['tensor']}" for name, entry in graph["outputs"].items())
        (source,) = graph["inputs"].values()
        lines.append(f"{FROZEN_GRAPH}: {source['tensor']} {_shape(source)} -> {nodes}")
    if manifest.tflite is not None:
        lines.append(f"{TFLITE}: signature {IMAGES}")
    lines += [f"Note:        {note}" for note in manifest.notes]
    lines.append("Use it:")
    if manifest.saved_model is not None or manifest.frozen_graph is not None:
        # Quoted for Hydra as well, where the folder's name needs that.
        model = str(folder)
        if not re.fullmatch(r"[\w./:-]+", model, re.ASCII):
            model = '"' + model.replace("\\", "\\\\").replace('"', '\\"') + '"'
        model = shlex.quote(f"predict.model={model}")
        lines.append(f"  {shown_python()} -m slimexp job=predict {model} predict.input=photo.jpg")
    if IMAGE_BYTES in (manifest.saved_model or {}):
        photo = "tf.constant([open('photo.jpg', 'rb').read()])"
        lines += [
            f"  model = tf.saved_model.load({str(folder / SAVED_MODEL)!r})",
            f"  model.signatures['{IMAGE_BYTES}']({IMAGE_BYTES}={photo})['scores']",
        ]
    elif manifest.saved_model is None and manifest.frozen_graph is None:
        lines.append(
            f"  tf.lite.Interpreter({str(folder / TFLITE)!r}).get_signature_runner('{IMAGES}')({IMAGES}=...)['scores']"
        )
    return lines


def _shown(entries: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} {_shape(entry)}" for name, entry in entries.items())


def _shape(entry: Mapping[str, Any]) -> str:
    sides = ", ".join("n" if side is None else str(side) for side in entry["shape"])
    return f"{entry['dtype']} [{sides}]"
