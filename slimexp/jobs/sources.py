"""Looks for the checkpoints that a job is to read. No TensorFlow: a wrong path is known before anything heavy loads."""

from __future__ import annotations

from pathlib import Path

from slimexp.config import Config
from slimexp.export.manifest import find_export
from slimexp.training.checkpoint_place import latest_checkpoint, locate_checkpoint
from slimexp.validation import flatten

__all__ = ["find_sources"]


def find_sources(config: Config) -> None:
    """Checks that there are checkpoints where the keys of a job say.

    Args:
        config: Checked. A job that is given none has its own message for that.

    Raises:
        UserError: If there is none.
    """
    for key in _keys(config):
        path = flatten(config).get(key)
        if path is not None and not (key == "predict.model" and find_export(path)):
            locate_checkpoint(path, key=key)


def _keys(config: Config) -> list[str]:
    if config.job.name == "inspect":
        return ["inspect.checkpoint", "inspect.other"]
    if config.job.name == "train":
        # A run that goes on does so from its own.
        goes_on = latest_checkpoint(Path(config.run_dir) / "checkpoints") is not None
        return [] if goes_on else ["restore.checkpoint"]
    if config.job.reads is None or (config.job.name == "evaluate" and config.evaluation.follow):
        return []
    return [config.job.reads]
