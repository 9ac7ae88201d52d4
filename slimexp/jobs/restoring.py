"""Restoring within a job: from the configuration to the rules, and the table on record."""

from __future__ import annotations

import logging
from pathlib import Path

from slimexp.config import Config
from slimexp.evaluation.tables import write_csv
from slimexp.tracking import Tracker
from slimexp.training.checkpoint_file import CheckpointFile
from slimexp.training.name_map import NameRule
from slimexp.training.restore import restore_model
from slimexp.training.restore_plan import Plan, Rules
from slimexp.training.restore_report import plan_rows
from slimexp.training.trainer import Trainer

__all__ = ["RESTORE_TABLE", "find_checkpoint", "restore", "restore_rules", "say_goes_on"]

RESTORE_TABLE = "restore.csv"
_log = logging.getLogger("slimexp")


def find_checkpoint(config: Config) -> CheckpointFile | None:
    """Returns the checkpoint to restore from, if one is set.

    Raises:
        UserError: If it is not there or cannot be read.
    """
    return None if config.restore.checkpoint is None else CheckpointFile(config.restore.checkpoint)


def restore_rules(config: Config) -> Rules:
    """Returns what is to be restored, and under which names."""
    chosen = config.restore
    name_map = [NameRule(rule["pattern"], rule["replace"]) for rule in chosen.name_map]
    return Rules(chosen.include, chosen.exclude, name_map, chosen.ignore_missing)


def restore(config: Config, trainer: Trainer, checkpoint: CheckpointFile, tracker: Tracker) -> Plan:
    """Restores the trainer's model; the table goes to the run's folder and to the tracker, also if it does not fit."""
    path = Path(config.run_dir) / RESTORE_TABLE

    def keep(plan: Plan) -> None:
        write_csv(path, plan_rows(plan))
        tracker.log_artifact(path)
        tracker.set_tags({"restore": f"{len(plan.sources)} of {plan.num_wanted} variables, {checkpoint.prefix}"})

    return restore_model(trainer, checkpoint, restore_rules(config), keep=keep)


def say_goes_on(config: Config, step: int) -> None:
    """Says that a run which goes on has what it restored at its start in its own checkpoint."""
    if config.restore.checkpoint is not None:
        _log.info(
            "restore.checkpoint was restored when this run began; it goes on from its own checkpoint of step %d, and "
            "nothing is restored again.",
            step,
        )
