"""The restore table in words, as rows of a file, and as the error that says how to mend a plan that does not fit."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from slimexp.errors import UserError
from slimexp.training.name_map import show_rules, suggest_rules
from slimexp.training.restore_plan import DIFFERS, EXCLUDED, MISSING, STATE, STATUSES, UNUSED, Plan, Row, Rules
from slimexp.training.scopes import HEADS, in_scopes

__all__ = ["check_plan", "describe_plan", "plan_rows"]

# A longer list would hide the rest; the file has all of it.
_SHOWN = 5
# Up to here every variable gets a line.
_SMALL = 16


def describe_plan(plan: Plan) -> str:
    """Returns the table: how many variables of each status, with the names that matter; all names if they are few."""
    rate = f"{len(plan.sources)} of {plan.num_wanted} variables restored ({_percent(plan.match_rate)})"
    lines = [rate]
    for status in STATUSES:
        rows = plan.of(status)
        if rows:
            count = sum(row.num_elements for row in rows)
            lines.append(f"  {status:26}{len(rows):5}  {count:>13,} values  {_examples(rows, status)}")
    if len(plan.rows) <= _SMALL:
        lines += [f"    {row.status:26}{_name(row)}" for row in plan.rows]
    return "\n".join(lines)


def plan_rows(plan: Plan) -> list[dict[str, Any]]:
    """Returns the whole table for `write_csv`: the model's variables, then what else the checkpoint has."""
    return [
        {
            "variable": row.variable,
            "status": row.status,
            "in_checkpoint": row.source,
            "shape": None if row.shape is None else str(list(row.shape)),
            "shape_in_checkpoint": None if row.source_shape is None else str(list(row.source_shape)),
        }
        for row in plan.rows
    ]


def check_plan(
    plan: Plan,
    rules: Rules,
    *,
    origin: str,
    heads: Sequence[str] = (),
    network: str = "the model",
) -> None:
    """Raises an error if a plan leaves out something that was wanted.

    Args:
        plan: From `make_plan`.
        rules: What it was made with.
        origin: The checkpoint, for messages.
        heads: The scopes that the network declares as its heads.
        network: Its name, for messages.

    Raises:
        UserError: With the override that mends it: if nothing matches, whatever `ignore_missing` says; if a shape
            differs; or if a variable is missing and `ignore_missing` is not set.
    """
    missing, differs = plan.of(MISSING), plan.of(DIFFERS)
    if not plan.sources and not differs:
        raise UserError(_nothing_matches(plan, origin, network))
    problems = differs if rules.ignore_missing else differs + missing
    if not problems:
        return
    matched = f"{len(plan.sources)} of {plan.num_wanted} variables ({_percent(plan.match_rate)}) match"
    parts = [f"restore.checkpoint={origin}: does not fit {network}, {matched}."]
    if differs:
        parts.append(f"{len(differs)} {_have(differs)} another shape:")
        parts += _listed(
            f"{row.variable}: {_shape(row.shape)} here, {_shape(row.source_shape)} there" for row in differs
        )
    if missing and not rules.ignore_missing:
        parts.append(f"{len(missing)} {_are(missing)} not in the checkpoint:")
        parts += _listed(_name(row) for row in missing)
    parts.append(_way_out(plan, rules, problems, heads))
    raise UserError("\n".join(parts))


def _nothing_matches(plan: Plan, origin: str, network: str) -> str:
    ours = [row.variable for row in plan.of(MISSING)]
    theirs = [row.source for row in plan.of(UNUSED)] or [row.source for row in plan.of(STATE)]
    advice = _suggestion(plan)
    return (
        f"restore.checkpoint={origin}: none of the {len(ours)} variables of {network} is in the checkpoint (0 %).\n"
        f"The model has   {_few(ours)}\n"
        f"The checkpoint  {_few(theirs)}\n"
        + (
            advice
            or "It is the checkpoint of another network: choose the model that it is of, or give restore.name_map."
        )
    )


def _way_out(plan: Plan, rules: Rules, problems: Sequence[Row], heads: Sequence[str]) -> str:
    advice = _suggestion(plan)
    if advice:
        return advice
    if 2 * len(problems) > plan.num_wanted:
        return "It looks like the checkpoint of another network: choose the model that it is of."
    model = [row.variable for row in plan.rows if row.variable is not None]
    scopes = _scopes_of([str(row.variable) for row in problems], model, heads)
    exclude = f"restore.exclude=[{','.join([*rules.exclude, *scopes])}]"
    lines = [f"To let them start from initial values add {exclude}"]
    if heads and set(scopes) | set(rules.exclude) == set(heads):
        lines[0] += f" (or restore.exclude={HEADS})"
    if any(row.status == MISSING for row in problems):
        lines[0] += ", or restore.ignore_missing=true for what is missing"
    lines[0] += "."
    if any(_is_kernel_of_another_size(row) for row in problems):
        lines.append("A kernel that covers the whole image follows model.image_size: is that the checkpoint's?")
    return "\n".join(lines)


def _suggestion(plan: Plan) -> str:
    """Returns a map of names that would match most of what does not, if there is one."""
    ours = {str(row.variable): row.shape or () for row in plan.of(MISSING)}
    theirs = {str(row.source): row.source_shape or () for row in plan.of(UNUSED)}
    rules, found = suggest_rules(ours, theirs)
    if not rules:
        return ""
    return f"Other names for the same? {found} of {len(ours)} would match with\n  {show_rules(rules)}"


def _scopes_of(names: Iterable[str], model: Sequence[str], heads: Sequence[str]) -> list[str]:
    """Returns the heads and layers that variables of the model are in, so that excluding them excludes no other."""
    scopes: dict[str, None] = {}
    for name in names:
        head = next((head for head in heads if in_scopes(name, [head])), None)
        if head is not None:
            scopes[head] = None
        else:
            layer = name.rpartition("/")[0].removesuffix("/BatchNorm") or name
            # With its slash where another layer begins alike: conv1/ and conv10.
            alike = any(other.startswith(layer) and not f"{other}/".startswith(f"{layer}/") for other in model)
            scopes[f"{layer}/" if alike else layer] = None
    return list(scopes)


def _is_kernel_of_another_size(row: Row) -> bool:
    if row.status != DIFFERS or row.shape is None or row.source_shape is None:
        return False
    return len(row.shape) == len(row.source_shape) == 4 and row.shape[2:] == row.source_shape[2:]


def _examples(rows: Sequence[Row], status: str) -> str:
    if status == STATE:
        return _few(sorted({str(row.source).rpartition("/")[2] for row in rows}))
    if status in (EXCLUDED, UNUSED):
        layers = (str(row.variable or row.source).rpartition("/")[0].removesuffix("/BatchNorm") for row in rows)
        return _few([layer for layer in dict.fromkeys(layers) if layer] or [row.variable or row.source for row in rows])
    return _few([row.variable for row in rows])


def _few(names: Sequence[Any], count: int = 3) -> str:
    return ", ".join([str(name) for name in names[:count]] + ["..."] * (len(names) > count)) or "nothing"


def _listed(lines: Iterable[str]) -> list[str]:
    lines = list(lines)
    more = len(lines) - _SHOWN
    return [f"  {line}" for line in lines[:_SHOWN]] + ([f"  ... and {more} more, see restore.csv"] if more > 0 else [])


def _name(row: Row) -> str:
    if row.variable is None:
        return str(row.source)
    return row.variable if row.source in (None, row.variable) else f"{row.variable} (as {row.source})"


def _shape(shape: Sequence[int] | None) -> str:
    return str(list(shape or ()))


def _percent(share: float) -> str:
    # Only all is 100 %.
    return f"{min(int(100 * share), 100)} %"


def _have(rows: Sequence[Row]) -> str:
    return "has" if len(rows) == 1 else "have"


def _are(rows: Sequence[Row]) -> str:
    return "is" if len(rows) == 1 else "are"
