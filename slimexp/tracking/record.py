"""run.json: what a run is, in its own folder. With `metrics.jsonl` it is all that a store has to be told later."""

from __future__ import annotations

import json
import logging
import os
import threading
import time
import uuid
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

__all__ = ["RECORD_FILE", "RunRecord", "new_key", "now_ms", "read_record"]

_LOG = logging.getLogger(__name__)

RECORD_FILE = "run.json"

_KINDS: dict[str, tuple[type, str]] = {
    **dict.fromkeys(("backend", "uri", "experiment", "run_id", "run_name", "key", "process"), (str, "a text")),
    **dict.fromkeys(("status", "message"), (str, "a text")),
    **dict.fromkeys(("started_ms", "ended_ms", "resume"), (int, "a whole number")),
    **dict.fromkeys(("tags", "params", "unsent"), (dict, "a JSON object")),
    **dict.fromkeys(("artifacts", "datasets"), (list, "a JSON list")),
}


class RunRecord:
    """The content of `run.json`, written anew, whole or not at all, with each change; from two threads at once.

    Its keys: `backend`, `uri` (the password masked), `experiment`, `run_id` (None before a store has given one),
    `run_name`, `key` (tells the run from all others), `process` (whose it is while it is RUNNING), `status`,
    `message`, `started_ms` and `ended_ms` (Unix milliseconds), `tags` (as a store should have them), `params` (those of
    the last start), `artifacts` (the path, relative where it lies in the run's folder, and its folder in the store),
    `datasets`, `unsent` (what the store did not take, None if nothing), and `resume` (the step, while a store does not
    know yet that the run goes on).
    """

    def __init__(self, path: Path | None, content: Mapping[str, Any]) -> None:
        """Writes nothing yet.

        Args:
            path: The file; None for a run without a folder.
            content: See the class.
        """
        self.path = path
        self.content = dict(content)
        self._lock = threading.Lock()

    def update(self, **changes: Any) -> None:
        """Replaces values by key."""
        with self._lock:
            self.content.update(changes)
            self._write()

    def merge(self, key: str, values: Mapping[str, Any]) -> None:
        """Adds to the mapping under a key."""
        with self._lock:
            self.content[key] = {**self.content.get(key, {}), **values}
            self._write()

    def append(self, key: str, value: Any) -> None:
        """Adds to the list under a key, unless it is there."""
        with self._lock:
            if value not in self.content.setdefault(key, []):
                self.content[key] = [*self.content[key], value]
                self._write()

    def add_artifact(self, path: Path, folder: str | None) -> None:
        """Notes a file or folder that belongs to the run."""
        if self.path is not None:
            inside = path.relative_to(self.path.parent) if path.is_relative_to(self.path.parent) else path
            self.append("artifacts", [str(inside), folder])

    def _write(self) -> None:
        if self.path is None:
            return
        temporary = self.path.with_name(f"{self.path.name}.{os.getpid()}.tmp")
        try:
            text = json.dumps(self.content, ensure_ascii=False, indent=1)
            temporary.write_text(text + "\n", encoding="utf-8", errors="backslashreplace")
            os.replace(temporary, self.path)
        except OSError as error:
            _LOG.warning("%s cannot be written: %s.", self.path, error.strerror or error)


def read_record(path: Path) -> dict[str, Any]:
    """Reads a `run.json`.

    Raises:
        FileNotFoundError: If there is none.
        OSError: If it cannot be read.
        ValueError: If it is no JSON object, or a value in it is not of its kind; the message says which.
    """
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error
    if not isinstance(content, dict):
        raise ValueError("it holds no JSON object")
    for key, (kind, name) in _KINDS.items():
        value = content.get(key)
        if value is not None and (not isinstance(value, kind) or isinstance(value, bool)):
            raise ValueError(f'"{key}" is {str(json.dumps(value))[:100]} and should be {name}')
        if isinstance(value, dict) and key in ("tags", "params"):
            for inner, text in value.items():
                if not isinstance(text, str):
                    raise ValueError(f'"{inner}" in "{key}" is {json.dumps(text)[:100]} and should be a text')
    missed = (content.get("unsent") or {}).get("artifacts", [])
    if not isinstance(missed, list) or not all(map(_is_text, missed)):
        raise ValueError(f'"unsent" is {json.dumps(content["unsent"])[:100]} and should have a list of paths')
    for key, check in _LISTS.items():
        for item in content.get(key) or ():
            if not check(item):
                raise ValueError(f'"{key}" has {json.dumps(item)[:100]} in it, which is none')
    return content


def _is_artifact(item: Any) -> bool:
    return (
        isinstance(item, list)
        and len(item) == 2
        and isinstance(item[0], str)
        and (item[1] is None or isinstance(item[1], str))
    )


def _is_dataset(item: Any) -> bool:
    return isinstance(item, dict) and {"name", "digest"} <= item.keys() and all(map(_is_text, item.values()))


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


_LISTS: dict[str, Callable[[Any], bool]] = {"artifacts": _is_artifact, "datasets": _is_dataset}


def new_key() -> str:
    """Returns a name that no other run has."""
    return uuid.uuid4().hex


def now_ms() -> int:
    """Returns the time in Unix milliseconds."""
    return int(1000 * time.time())
