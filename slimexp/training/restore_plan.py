"""Which variable gets its value from where: a pure function of the names and shapes on both sides and the rules."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence

from slimexp.errors import UserError
from slimexp.training.name_map import NameRule, map_names
from slimexp.training.scopes import in_scopes, resolve_scopes

__all__ = ["STATUSES", "Plan", "Row", "Rules", "is_training_state", "make_plan"]

Shape = tuple[int, ...]

RESTORED, EXCLUDED, MISSING, DIFFERS, UNUSED, STATE = STATUSES = (
    "restored",
    "excluded",
    "missing in the checkpoint",
    "shape differs",
    "unused",
    "training state",
)


@dataclasses.dataclass(frozen=True)
class Rules:
    """What to restore, and under which names.

    Attributes:
        include: Scopes of the model; empty means all of it.
        exclude: Scopes of the model that keep their initial values; `heads` for those that the network declares.
        name_map: From the model's names to the checkpoint's.
        ignore_missing: Let variables that the checkpoint lacks keep their initial values.
    """

    include: Sequence[str] = ()
    exclude: Sequence[str] = ()
    name_map: Sequence[NameRule] = ()
    ignore_missing: bool = False


@dataclasses.dataclass(frozen=True)
class Row:
    """One variable of the model, of the checkpoint, or of both.

    Attributes:
        variable: Its name in the model; None if it is in the checkpoint only.
        status: One of `STATUSES`.
        source: Its name in the checkpoint; the one looked for if it is missing; None if it is excluded
            and not there.
        shape: In the model.
        source_shape: In the checkpoint.
    """

    variable: str | None
    status: str
    source: str | None
    shape: Shape | None
    source_shape: Shape | None

    @property
    def num_elements(self) -> int:
        shape = self.shape if self.shape is not None else self.source_shape
        return math.prod(shape or ())


@dataclasses.dataclass(frozen=True)
class Plan:
    """The restore table: the model's variables in their order, then what else is in the checkpoint."""

    rows: Sequence[Row]

    def of(self, status: str) -> list[Row]:
        """Returns the rows of one status."""
        return [row for row in self.rows if row.status == status]

    @property
    def num_wanted(self) -> int:
        """The number of the model's variables that are not excluded."""
        return sum(row.variable is not None and row.status != EXCLUDED for row in self.rows)

    @property
    def match_rate(self) -> float:
        """The share of the wanted variables that are restored, in 0..1."""
        return len(self.of(RESTORED)) / max(self.num_wanted, 1)

    @property
    def sources(self) -> dict[str, str]:
        """Name in the model -> name in the checkpoint, of what is restored."""
        return {str(row.variable): str(row.source) for row in self.of(RESTORED)}


def is_training_state(name: str, names: Mapping[str, object]) -> bool:
    """Tells whether a checkpoint's variable belongs to its training: the step, or a slot of its optimizer.

    A slot lies below the variable that it is of: `net/weights/Momentum` below `net/weights`.
    """
    last = name.rpartition("/")[2]
    return last in ("global_step", "beta1_power", "beta2_power", "save_counter") or name.rpartition("/")[0] in names


def make_plan(
    model: Mapping[str, Shape],
    checkpoint: Mapping[str, Shape],
    rules: Rules,
    *,
    heads: Sequence[str] = (),
    network: str = "the model",
) -> Plan:
    """Decides for each variable what happens to it.

    Args:
        model: Names and shapes of the model's variables, moving averages among them.
        checkpoint: Names and shapes of the checkpoint's.
        rules: What was asked for.
        heads: The scopes that the network declares as its heads.
        network: Its name, for messages.

    Raises:
        UserError: For a scope or pattern that matches nothing, with the nearest; if nothing is left to restore.
    """
    include = resolve_scopes("restore.include", rules.include, model, heads=heads, network=network)
    exclude = resolve_scopes("restore.exclude", rules.exclude, model, heads=heads, network=network)
    mapped = map_names(model, rules.name_map)
    rows = []
    for name, shape in model.items():
        source = mapped[name]
        if (include and not in_scopes(name, include)) or in_scopes(name, exclude):
            rows.append(Row(name, EXCLUDED, source if source in checkpoint else None, shape, checkpoint.get(source)))
        elif source not in checkpoint:
            rows.append(Row(name, MISSING, source, shape, None))
        else:
            status = RESTORED if checkpoint[source] == shape else DIFFERS
            rows.append(Row(name, status, source, shape, checkpoint[source]))
    if all(row.status == EXCLUDED for row in rows):
        raise UserError(
            f"restore.include=[{','.join(rules.include)}] restore.exclude=[{','.join(rules.exclude)}]: of the "
            f"{len(rows)} variables of {network} none is left to restore. Exclude less, or leave out "
            "restore.checkpoint to start from initial values."
        )
    used = {row.source for row in rows}
    for name in sorted(checkpoint.keys() - used):
        status = STATE if is_training_state(name, checkpoint) else UNUSED
        rows.append(Row(None, status, name, None, checkpoint[name]))
    return Plan(rows)
