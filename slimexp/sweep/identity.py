"""What makes a job the same job: its configuration without places and names; and what it is called in its sweep."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from slimexp.config import Config, show
from slimexp.validation import flatten

__all__ = ["changed_keys", "hash_of", "identity", "job_name", "short_keys", "sweep_name", "swept_values"]

# Where things lie, what they are called and how the sweep is run: a job with other values of these is the same job.
_APART = (
    *("run_dir", "output_root", "dry_run", "sweep.", "tracking.", "trainer.resume", "trainer.max_to_keep"),
    *("dataset.cache_dir", "pipeline.cache_dir", "pipeline.name"),
)
# Their values say by themselves what they are values of.
_PLAIN = ("model", "dataset", "optimizer", "experiment", "learning_rate", "preprocessing", "pipeline", "restore")
# Say little without their group.
_VAGUE = ("initial", "end", "name", "capacity", "secs")


def identity(config: Config) -> dict[str, Any]:
    """Returns the settings that a job is known by, flat, as JSON holds them."""
    values = {key: value for key, value in flatten(config).items() if not key.startswith(_APART)}
    return dict(json.loads(json.dumps(values, default=show, sort_keys=True)))


def hash_of(values: Mapping[str, Any]) -> str:
    """Returns the hash of an `identity`, 16 hexadecimal digits."""
    text = json.dumps(values, sort_keys=True, ensure_ascii=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def changed_keys(before: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    """Says in which settings two identities differ, e.g. `model.weight_decay 4e-05 -> 0.0`."""
    keys = [key for key in {**before, **now} if before.get(key) != now.get(key)]
    shown = [f"{key} {before.get(key, 'unset')} -> {now.get(key, 'unset')}" for key in keys[:5]]
    return ", ".join([*shown, *([f"and {len(keys) - 5} more"] if len(keys) > 5 else [])])


def swept_values(overrides: Iterable[str], keys: Sequence[str]) -> dict[str, str]:
    """Returns the values that a job's overrides give the swept keys, as text, without Hydra's quotes."""
    values = {}
    for override in overrides:
        key, _, value = override.lstrip("+~").partition("=")
        if key in keys:
            quoted = len(value) > 1 and value[0] == value[-1] and value[0] in "'\""
            values[key] = value[1:-1] if quoted else value
    return values


def job_name(model: str, swept: Mapping[str, str], all_keys: Sequence[str]) -> str:
    """Returns what tells a job from the others of its sweep, after its network: `vgg16 threads=8`."""
    labels = short_keys(all_keys)
    parts = [value if key in _PLAIN else f"{labels[key]}={value}" for key, value in swept.items() if key != "model"]
    return " ".join([swept.get("model", model), *parts])


def sweep_name(model: str, keys: Sequence[str]) -> str:
    """Returns what a sweep is called: its network, unless that is swept, and the keys, e.g. `vgg16 threads`."""
    labels = short_keys(keys)
    return " ".join([*([] if "model" in keys else [model]), *(labels[key] for key in keys)])


def short_keys(keys: Sequence[str]) -> dict[str, str]:
    """Returns for each key as many of its last parts as tell it from the others: `threads`, `read.capacity`."""
    named = {key: key.removesuffix("._target_") for key in keys}
    labels = {}
    for key, name in named.items():
        parts = name.split(".")
        for count in range(2 if parts[-1] in _VAGUE else 1, len(parts) + 1):
            label = ".".join(parts[-count:])
            if sum(other == label or other.endswith(f".{label}") for other in named.values()) == 1:
                break
        labels[key] = label
    return labels
