"""What a store did not take of a run: counted while it is sent, told when it ends."""

from __future__ import annotations

import dataclasses
import logging
import shlex
import sys
from pathlib import Path

from slimexp.tracking.masking import MASK
from slimexp.tracking.mlflow_store import cause_of
from slimexp.tracking.record import RECORD_FILE

__all__ = ["Refused", "Unsent", "describe_unsent", "sync_command"]

_LOG = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True)
class Unsent:
    """What a store did not take.

    Attributes:
        points: Metric values that are only in `metrics.jsonl`.
        artifacts: Files that are only in the run's folder.
        entries: Params, tags and datasets.
        status: Whether the run's final status did not get through.
        cause: The last error in one line, or an empty text.
        run: Whether the run itself never came into being there.
    """

    points: int = 0
    artifacts: tuple[str, ...] = ()
    entries: int = 0
    status: bool = False
    cause: str = ""
    run: bool = False

    def __bool__(self) -> bool:
        return bool(self.points or self.artifacts or self.entries or self.status or self.run)


class Refused:
    """What a store refuses for good, so that it is not tried again.

    Attributes:
        name: The store's address for messages, without a password.
        points: See `Unsent`, like the next two.
        artifacts: See above.
        entries: See above.
        cause: The last error of any kind in one line, or an empty text.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.points = self.entries = 0
        self.artifacts: list[str] = []
        self.cause = ""
        self._warned: set[str] = set()

    def warn(self, what: str, error: Exception) -> None:
        """Says once for each thing that the store did not take it."""
        self.cause = cause_of(error)
        if what not in self._warned:
            self._warned.add(what)
            _LOG.warning("%s does not take %s: %s", self.name, what, self.cause)


def describe_unsent(unsent: Unsent, *, uri: str | None, metrics_path: Path | None, record_path: Path | None) -> str:
    """Says what a store did not take and how to send it.

    Args:
        unsent: What it did not take.
        uri: The store's address, its password masked.
        metrics_path: The run's `metrics.jsonl`; None for a run without a folder.
        record_path: Its `run.json`, likewise.
    """
    parts = []
    if unsent.run:
        parts.append("it has no run of it")
    if unsent.points:
        parts.append(f"{unsent.points} metric values are only in {metrics_path or 'memory'}")
    if unsent.artifacts:
        parts.append(f"{len(unsent.artifacts)} files were not uploaded")
    if unsent.entries:
        parts.append(f"{unsent.entries} params, tags and datasets were not stored")
    if unsent.status and not unsent.run:
        parts.append("the run still counts as RUNNING there")
    cause = f" ({unsent.cause})" if unsent.cause else ""
    later = ""
    if record_path is not None:
        later = f" To send it when MLflow is back: {sync_command(record_path.parent, uri)}"
        if MASK in (uri or ""):
            later += f" (with its password, which {RECORD_FILE} does not keep; or set MLFLOW_TRACKING_URI to it)"
    return f"MLflow ({uri}) did not take everything{cause}: {'; '.join(parts)}.{later}"


def sync_command(folder: Path, uri: str | None = None) -> str:
    """Returns the shell command that sends what a store has missed of a run.

    Args:
        folder: The run's.
        uri: The store's address as `run.json` has it. Where its password is masked, the command has to give it.
    """
    command = f"{shlex.quote(sys.executable)} -m slimexp.tracking.sync {shlex.quote(str(folder))}"
    return f"{command} --tracking-uri {shlex.quote(uri)}" if uri and MASK in uri else command
