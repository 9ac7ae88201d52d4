"""Turns a nested configuration into what a tracking store takes: flat keys, legal names, text of bounded length."""

from __future__ import annotations

import enum
import hashlib
import json
import os
import posixpath
import re
from collections.abc import Mapping, Sequence
from typing import Any

from slimexp.tracking.masking import MASK, is_secret_key, mask_text

__all__ = ["MAX_KEY_LENGTH", "MAX_PARAM_LENGTH", "MAX_TAG_LENGTH", "flatten", "legal_key", "shorten"]

# MLflow's limits (mlflow.utils.validation): a longer key is refused, a longer param is cut without a sign.
MAX_KEY_LENGTH = 250
MAX_PARAM_LENGTH = 6000
# 8000 since MLflow 2.21; a server older than that refuses what is over 5000.
MAX_TAG_LENGTH = 5000

_ILLEGAL = re.compile(r"[^/\w.\- :]")


def flatten(config: Mapping[str, Any]) -> dict[str, str]:
    """Flattens a nested configuration to `{"pipeline.threads": "8", ...}`.

    Values read as they would be typed in an override: `null`, `true`, `[0, 7]`. Secrets are masked, characters that
    MLflow refuses in a key become `_`, what is too long is shortened with a note of its full length. Two keys that
    become equal by this are kept apart with `_2`, `_3`, ...

    Args:
        config: Nested mappings; leaves may be any value, lists are leaves.

    Returns:
        Keys and values as MLflow takes them, in the order of `config`.
    """
    flat: dict[str, str] = {}
    for key, value in _leaves(config, ()):
        name = legal_key(key)
        unique, count = name, 1
        while unique in flat:
            count += 1
            unique = f"{name[: MAX_KEY_LENGTH - 8]}_{count}"
        secret = is_secret_key(key) and value not in (None, "", False)
        flat[unique] = MASK if secret else shorten(mask_text(_text(value)), MAX_PARAM_LENGTH)
    return flat


def legal_key(key: str) -> str:
    """Returns the name under which MLflow takes a param, metric or tag; a legal name comes back unchanged."""
    legal = _ILLEGAL.sub("_", key)
    # MLflow uses names as paths: `a//b`, `./a`, `../a` and `/a` are refused. It allows a colon except on Windows.
    parts = ["_" * len(part) if part in (".", "..") else part for part in legal.split("/") if part]
    legal = posixpath.join(*parts) if parts else "_"
    if os.name == "nt":
        legal = legal.replace(":", "_")
    if len(legal) > MAX_KEY_LENGTH:
        # The digest keeps long keys with a common start apart.
        legal = f"{legal[: MAX_KEY_LENGTH - 9]}-{hashlib.sha256(key.encode()).hexdigest()[:8]}"
    return legal


def shorten(text: str, limit: int) -> str:
    """Cuts a text to `limit` characters; a cut one ends with a note of its full length."""
    if len(text) <= limit:
        return text
    note = f" ... ({len(text)} characters)"
    return text[: limit - len(note)] + note


def _leaves(node: Mapping[str, Any], path: tuple[str, ...]) -> list[tuple[str, Any]]:
    leaves: list[tuple[str, Any]] = []
    for key, value in node.items():
        here = (*path, str(key))
        if isinstance(value, Mapping) and value:
            leaves.extend(_leaves(value, here))
        else:
            leaves.append((".".join(here), value))
    return leaves


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, bool) or value is None:
        return {True: "true", False: "false", None: "null"}[value]
    if isinstance(value, enum.Enum):
        return str(value.value)
    if isinstance(value, Mapping) or (isinstance(value, Sequence) and not isinstance(value, bytes)):
        plain = _plain(value)
        if isinstance(plain, list) and not any(isinstance(item, (dict, list)) for item in plain):
            return "[" + ", ".join(item if isinstance(item, str) else _text(item) for item in plain) + "]"
        return json.dumps(plain, ensure_ascii=False)
    return str(value)


def _plain(value: Any) -> Any:
    """Returns nested lists and dicts of JSON's own types, with the secrets inside masked."""
    if isinstance(value, Mapping):
        return {str(k): MASK if is_secret_key(str(k)) and v else _plain(v) for k, v in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, (str, bytes)):
        return [_plain(item) for item in value]
    return value if isinstance(value, (str, bool, int, float)) or value is None else str(value)
