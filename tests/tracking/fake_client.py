"""A store's client that can be told to fail."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from slimexp.tracking.mlflow_store import Store
from slimexp.tracking.run import OpenRun


class FakeClient:
    """Stands for a store that can be told to fail; `calls` holds what got through."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []
        self.fail: Callable[[str, Any], Exception | None] = lambda name, what: None

    def _do(self, name: str, what: Any) -> None:
        error = self.fail(name, what)
        if error is not None:
            raise error
        self.calls.append((name, what))

    def log_batch(self, run_id: str, **kinds: list[Any]) -> None:
        ((kind, values),) = kinds.items()
        self._do(kind, [(v.key, v.value, *((v.step,) if kind == "metrics" else ())) for v in values])

    def log_artifact(self, run_id: str, path: str, folder: str | None) -> None:
        self._do("artifact", (path, folder))

    def set_terminated(self, run_id: str, status: str, end_ms: int | None) -> None:
        self._do("status", status)

    def got(self, kind: str) -> list[Any]:
        return [what for name, what in self.calls if name == kind]


def make_run(
    client: FakeClient, *, last_steps: dict[str, int] | None = None, tags: dict[str, str] | None = None
) -> OpenRun:
    """Returns the run `r` of its store."""
    return OpenRun(Store(client, "0"), "r", params={}, tags=tags or {}, last_steps=last_steps or {})
