"""Describes the data of a run to MLflow, which shows them in its UI's column "Dataset"."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from slimexp.tracking.masking import mask_text
from slimexp.tracking.params import shorten

__all__ = ["describe_dataset", "to_input"]

# MLflow's limits (mlflow.utils.validation): 500 characters for a name, 36 for a digest.
_MAX_NAME_LENGTH, _MAX_DIGEST_LENGTH = 500, 36
_MAX_SOURCE_LENGTH = 5000
# So many classes are counted one by one in what the UI shows.
_MAX_CLASSES = 1000
_CONTEXT_TAG = "mlflow.data.context"


def describe_dataset(
    *,
    name: str,
    context: str,
    digest: str,
    source: str,
    num_examples: int,
    num_classes: int,
    task: str,
    counts: Mapping[str, int] | None,
) -> dict[str, str]:
    """Describes one split.

    Args:
        name: The dataset's name, e.g. `digits`.
        context: What it is for: `train` or `eval`.
        digest: Of its examples, at most 36 characters.
        source: The list file, folder or pattern that it comes from.
        num_examples: How many images.
        num_classes: How many classes or labels.
        task: `single` or `multi`.
        counts: Images a class, or positive ones a label, by name; None where only reading would tell.

    Returns:
        Text by key: `name`, `context`, `digest`, and JSON in `source`, `schema` and `profile`.
    """
    profile: dict[str, Any] = {"num_rows": num_examples, "num_classes": num_classes, "task": task}
    if counts is not None:
        profile["class_counts"] = dict(list(counts.items())[:_MAX_CLASSES])
        if len(counts) > _MAX_CLASSES:
            profile["class_counts_shown"] = f"the first {_MAX_CLASSES} of {len(counts)}"
    uri = Path(source).as_uri() if Path(source).is_absolute() else source
    label = {"single": "class number", "multi": "1 = positive, -1 = negative, 0 = don't care"}.get(task, task)
    return {
        "name": shorten(name, _MAX_NAME_LENGTH),
        "context": context,
        "digest": digest[:_MAX_DIGEST_LENGTH],
        "source": json.dumps({"uri": shorten(mask_text(uri), _MAX_SOURCE_LENGTH)}, ensure_ascii=False),
        "schema": json.dumps({"image": "JPEG and its like, RGB", "label": label}),
        "profile": json.dumps(profile, ensure_ascii=False),
    }


def to_input(described: Mapping[str, str]) -> Any:
    """Returns MLflow's `DatasetInput` for what `describe_dataset` returned."""
    from mlflow.entities import Dataset, DatasetInput, InputTag

    dataset = Dataset(
        name=described["name"],
        digest=described["digest"],
        source_type="local",
        source=described["source"],
        schema=described["schema"],
        profile=described["profile"],
    )
    return DatasetInput(dataset, [InputTag(_CONTEXT_TAG, described["context"])])
