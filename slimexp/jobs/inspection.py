"""The job `inspect`: lists a checkpoint, compares two, or shows the model that is configured."""

from __future__ import annotations

import collections
import logging
import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from slimexp.config import Config
from slimexp.errors import UserError
from slimexp.evaluation.tables import replace_file, write_csv
from slimexp.jobs import build
from slimexp.jobs.lock import exclusive
from slimexp.jobs.record import earlier_run, recorded, refuse_other_job
from slimexp.jobs.restoring import RESTORE_TABLE, find_checkpoint, restore_rules
from slimexp.tracking import Tracker
from slimexp.training.checkpoint_diff import DIFFERENCES, EQUAL, ONLY_FIRST, ONLY_SECOND, Difference, compare
from slimexp.training.checkpoint_file import CheckpointFile, Variable
from slimexp.training.classifier import Classifier, choose_image_size
from slimexp.training.model_table import ModelTable, VariableRow, model_table
from slimexp.training.name_map import show_rules, suggest_rules
from slimexp.training.restore_plan import is_training_state, make_plan
from slimexp.training.restore_report import check_plan, describe_plan, plan_rows
from slimexp.training.scopes import in_scopes, resolve_scopes
from slimexp.training.signals import StopSignals

__all__ = ["TABLE", "TEXT", "inspect", "run"]

_log = logging.getLogger("slimexp")

TABLE, TEXT = "inspect.csv", "inspect.txt"
# Of each kind of difference; the file has all.
_SHOWN = 30
_Rows = list[dict[str, Any]]


def run(config: Config, overrides: Sequence[str] = ()) -> None:
    """Prints what was asked for, and leaves it as text and as a table in the run's folder and with the tracker.

    Args:
        config: Checked.
        overrides: What the command changed, for the run's name.

    Raises:
        UserError: If a checkpoint cannot be read or the model not be built; the run is then recorded as FAILED.
    """
    folder = Path(config.run_dir)
    with StopSignals() as signals, exclusive(folder):
        refuse_other_job(config, earlier_run(folder))
        with recorded(config, overrides, None, {}, signals) as tracker:
            text = inspect(config, tracker)
            print(f"{text}\n\nRun folder:  {folder}", flush=True)


def inspect(config: Config, tracker: Tracker) -> str:
    """Returns what `run` prints, once it is in the files."""
    folder = Path(config.run_dir)
    if config.inspect.checkpoint is None:
        text, rows = _model(config, folder, tracker)
    elif config.inspect.other is None:
        text, rows = _checkpoint(CheckpointFile(config.inspect.checkpoint, key="inspect.checkpoint"))
    else:
        first = CheckpointFile(config.inspect.checkpoint, key="inspect.checkpoint")
        text, rows = _comparison(first, CheckpointFile(config.inspect.other, key="inspect.other"))
    write_csv(folder / TABLE, rows)
    replace_file(folder / TEXT, lambda path: path.write_text(f"{text}\n", encoding="utf-8"))
    for name in (TABLE, TEXT):
        tracker.log_artifact(folder / name)
    return text


def _checkpoint(checkpoint: CheckpointFile) -> tuple[str, _Rows]:
    rows: _Rows = [
        {
            "variable": name,
            "shape": str(list(entry.shape)),
            "dtype": entry.dtype,
            "values": math.prod(entry.shape),
            "training_state": int(is_training_state(name, checkpoint.variables)),
        }
        for name, entry in checkpoint.variables.items()
    ]
    state = [row for row in rows if row["training_state"]]
    shown = [row for row in rows if not row["training_state"]]
    lines = [
        checkpoint.describe(),
        *_aligned(
            ("variable", "shape", "type", "values"),
            ((row["variable"], row["shape"], row["dtype"], f"{row['values']:,}") for row in shown),
        ),
        f"{len(shown)} variables, {sum(row['values'] for row in shown):,} values",
    ]
    if state:
        names = ", ".join(sorted({row["variable"].rpartition("/")[2] for row in state}))
        lines.append(
            f"and {len(state)} of its training, {sum(row['values'] for row in state):,} values ({names}), see {TABLE}"
        )
    return "\n".join(lines), rows


def _comparison(first: CheckpointFile, second: CheckpointFile) -> tuple[str, _Rows]:
    differences = list(compare(first, second))
    rows: _Rows = [
        {
            "variable": d.name,
            "status": d.status,
            "first": None if d.first is None else _entry(d.first),
            "second": None if d.second is None else _entry(d.second),
            "max_abs_difference": d.max_abs_difference,
        }
        for d in differences
    ]
    lines = [f"first:  {first.describe()}", f"second: {second.describe()}"]
    for status in DIFFERENCES:
        found = [d for d in differences if d.status == status]
        lines.append(f"{status}: {len(found)}")
        if status != EQUAL:
            lines += [f"  {line}" for line in _aligned((), map(_difference, found[:_SHOWN]))]
            lines += [f"  ... and {len(found) - _SHOWN} more, see {TABLE}"] if len(found) > _SHOWN else []
    rules, matched = suggest_rules(
        {d.name: d.first.shape for d in differences if d.status == ONLY_FIRST and d.first},
        {d.name: d.second.shape for d in differences if d.status == ONLY_SECOND and d.second},
    )
    if rules:
        lines.append(f"{matched} variables of the first would find one in the second with\n  {show_rules(rules)}")
    return "\n".join(lines), rows


def _difference(d: Difference) -> tuple[str, ...]:
    if d.first is None or d.second is None:
        entry = d.first or d.second
        return d.name, _entry(entry) if entry else ""
    if d.max_abs_difference is not None:
        return d.name, _entry(d.first), f"by up to {d.max_abs_difference:.6g}"
    return d.name, _entry(d.first), _entry(d.second) if _entry(d.first) != _entry(d.second) else ""


def _entry(variable: Variable) -> str:
    return f"{list(variable.shape)} {variable.dtype}"


def _model(config: Config, folder: Path, tracker: Tracker) -> tuple[str, _Rows]:
    build.check_targets(config)
    data = build.dataset(config)
    image_size = choose_image_size(build.network(config), config.model.image_size, data.image_side_px)
    classifier = build.classifier(config, num_classes=data.num_classes, image_size=image_size)
    table = model_table(classifier)
    name = classifier.network.__name__
    scopes = resolve_scopes(
        "restore.trainable_scopes",
        config.restore.trainable_scopes,
        [row.name for row in table.rows if row.is_trainable],
        heads=classifier.head_scopes,
        network=name,
        kind="trainable variable",
    )

    def role(row: VariableRow) -> str:
        if not row.is_trainable:
            return "not trained"
        return "trained" if not scopes or in_scopes(row.name, scopes) else "frozen"

    rows: _Rows = [
        {
            "variable": row.name,
            "shape": str(list(row.shape)),
            "dtype": row.dtype,
            "values": row.num_elements,
            "role": role(row),
            "flops": row.flops,
        }
        for row in table.rows
    ]
    values: collections.Counter[str] = collections.Counter()
    for row in table.rows:
        values[role(row)] += row.num_elements
    lines = [
        f"{name}, images of {image_size} x {image_size}, {data.num_classes} classes",
        *_aligned(("layer", "kernel", "values", "MFLOPs", ""), _layers(table, role)),
        f"{len(table.rows)} variables, {table.num_values:,} values, {table.num_bytes / 2**20:,.1f} MiB: "
        + ", ".join(f"{count:,} {what}" for what, count in values.items()),
        f"{table.flops / 1e9:,.3f} GFLOPs an image, forward, to the logits (a multiplication and addition counts two)",
        f"heads: {', '.join(classifier.head_scopes) or 'not declared'}",
    ]
    pretrained = find_checkpoint(config)
    if pretrained is not None:
        lines += ["", _rehearsal(config, classifier, table, pretrained, folder, tracker)]
    return "\n".join(lines), rows


def _layers(table: ModelTable, role: Any) -> list[tuple[str, ...]]:
    """Returns a line for each layer: its kernel, with all that lies below its scope."""
    layers: dict[str, list[VariableRow]] = {}
    for row in table.rows:
        layers.setdefault(row.name.rpartition("/")[0].removesuffix("/BatchNorm"), []).append(row)
    lines: list[tuple[str, ...]] = []
    for layer, rows in layers.items():
        kernel = max(rows, key=lambda row: len(row.shape))
        roles = {role(row) for row in rows if row.is_trainable} or {"not trained"}
        flops = sum(row.flops for row in rows)
        lines.append(
            (
                layer,
                " x ".join(map(str, kernel.shape)),
                f"{sum(row.num_elements for row in rows):,}",
                f"{flops / 1e6:,.2f}" if flops else "",
                " and ".join(sorted(roles)),
            )
        )
    return lines


def _rehearsal(
    config: Config,
    classifier: Classifier,
    table: ModelTable,
    pretrained: CheckpointFile,
    folder: Path,
    tracker: Tracker,
) -> str:
    """Returns what restoring would do, and what it would stop with."""
    rules, heads, name = restore_rules(config), classifier.head_scopes, classifier.network.__name__
    shapes = {row.name: row.shape for row in table.rows}
    plan = make_plan(shapes, pretrained.shapes(), rules, heads=heads, network=name)
    write_csv(folder / RESTORE_TABLE, plan_rows(plan))
    tracker.log_artifact(folder / RESTORE_TABLE)
    text = f"Restoring from {pretrained.describe()}: {describe_plan(plan)}"
    try:
        check_plan(plan, rules, origin=pretrained.path, heads=heads, network=name)
    except UserError as error:
        return f"{text}\nTraining would stop with:\n{error}"
    return text


def _aligned(header: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """Returns lines of columns; numbers stand at the right of theirs."""
    cells: list[Sequence[str]] = [*([header] if header else []), *rows]
    widths: Mapping[int, int] = {
        column: max(len(row[column]) for row in cells if column < len(row))
        for column in range(max(map(len, cells), default=0))
    }
    lines = []
    for row in cells:
        texts = (
            f"{text:>{widths[i]}}" if i > 0 and text[:1].isdigit() and " " not in text else f"{text:<{widths[i]}}"
            for i, text in enumerate(row)
        )
        lines.append("  ".join(texts).rstrip())
    return lines
