"""Restores a trainer's model from a checkpoint by rules: plan, table, check, values."""

from __future__ import annotations

import logging
from collections.abc import Callable

from slimexp.training.checkpoint_file import CheckpointFile
from slimexp.training.restore_plan import Plan, Rules, make_plan
from slimexp.training.restore_report import check_plan, describe_plan
from slimexp.training.trainer import Trainer

__all__ = ["restore_model"]

_log = logging.getLogger("slimexp")


def restore_model(
    trainer: Trainer, checkpoint: CheckpointFile, rules: Rules, *, keep: Callable[[Plan], None] = lambda plan: None
) -> Plan:
    """Gives the model's variables, moving averages among them, the values of a checkpoint.

    The optimizer's slots and the global step are the trainer's own: the checkpoint's are neither used nor asked for.

    Args:
        trainer: On one device or mirrored.
        checkpoint: Where the values are.
        rules: Which of them, and under which names.
        keep: Gets the plan before it is checked, to keep the whole table.

    Returns:
        The plan that was carried out.

    Raises:
        UserError: If the rules or the checkpoint do not fit the model; nothing has changed then.
    """
    classifier = trainer.classifier
    heads, network = classifier.head_scopes, classifier.network.__name__
    plan = make_plan(classifier.shapes(), checkpoint.shapes(), rules, heads=heads, network=network)
    _log.info("Restoring from %s: %s", checkpoint.describe(), describe_plan(plan))
    keep(plan)
    check_plan(plan, rules, origin=checkpoint.path, heads=heads, network=network)
    names = {source: name for name, source in plan.sources.items()}
    trainer.assign((names[source], value) for source, value in checkpoint.read(names))
    return plan
