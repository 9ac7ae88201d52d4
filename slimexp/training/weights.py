"""Gives a network the values of a checkpoint for inference: every variable has to come from there."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence

from slimexp.errors import UserError
from slimexp.training.averages import SUFFIX, sources_of
from slimexp.training.checkpoint_file import CheckpointFile
from slimexp.training.classifier import Classifier
from slimexp.training.name_map import NameRule, map_names, show_rules, suggest_rules

__all__ = ["load_weights"]

_SHOWN = 5


def load_weights(
    classifier: Classifier,
    checkpoint: CheckpointFile,
    *,
    use_averages: str = "auto",
    name_map: Sequence[NameRule] = (),
    key: str = "evaluation.checkpoint",
) -> bool:
    """Gives all variables of a network the values of a checkpoint.

    What else is in it, such as the optimizer's slots, is neither asked for nor used.

    Args:
        classifier: Its variables have been built.
        checkpoint: Where the values are.
        use_averages: `auto`, `true` or `false`; see `averages.sources_of`.
        name_map: From the network's names to the checkpoint's.
        key: The configuration key of the checkpoint, for messages.

    Returns:
        Whether moving averages were taken.

    Raises:
        UserError: If a variable is missing in the checkpoint or has another shape there, with the nearest names;
            nothing has changed then.
    """
    shapes = classifier.shapes()
    sources = sources_of(checkpoint.shapes(), use_averages, origin=checkpoint.prefix)
    there = {name: checkpoint.variables[source].shape for name, source in sources.items()}
    mapped = map_names(shapes, name_map)
    missing = {name: mapped[name] for name in shapes if mapped[name] not in there}
    differs = [name for name in shapes if name not in missing and there[mapped[name]] != shapes[name]]
    if missing or differs:
        raise UserError(_explain(classifier, checkpoint, shapes, there, mapped, missing, differs, key))
    wanted = {sources[mapped[name]]: name for name in shapes}
    variables = classifier.store.variables
    for source, value in checkpoint.read(wanted):
        variable = variables[wanted[source]]
        variable.assign(value.astype(variable.dtype.as_numpy_dtype))
    return any(source.endswith(SUFFIX) for source in wanted)


def _explain(
    classifier: Classifier,
    checkpoint: CheckpointFile,
    shapes: Mapping[str, tuple[int, ...]],
    there: Mapping[str, tuple[int, ...]],
    mapped: Mapping[str, str],
    missing: Mapping[str, str],
    differs: Sequence[str],
    key: str,
) -> str:
    network = classifier.network.__name__
    problems = len(missing) + len(differs)
    origin = f"{problems} of the {len(shapes)} variables of {network} cannot come from {checkpoint.prefix}."
    lines = [f"{key}={checkpoint.path}: {origin}"]
    for name in differs[:_SHOWN]:
        lines.append(f"  {name}: {list(shapes[name])} here, {list(there[mapped[name]])} there")
    for name, wanted in list(missing.items())[:_SHOWN]:
        near = difflib.get_close_matches(wanted, there, n=1, cutoff=0.6)
        lines.append(f"  {name}: not there{f'; the nearest is {near[0]}' if near else ''}")
    hidden = max(len(differs) - _SHOWN, 0) + max(len(missing) - _SHOWN, 0)
    if hidden:
        lines.append(f"  ... and {hidden} more; job=inspect inspect.checkpoint={checkpoint.path} lists what is there")
    used = set(mapped.values())
    rules, found = suggest_rules(
        {name: shapes[name] for name in missing}, {name: shape for name, shape in there.items() if name not in used}
    )
    heads = [name for name in differs if name.startswith(tuple(classifier.head_scopes) or ("\0",))]
    if rules and found == len(missing):  # All have to come from there.
        lines.append(f"Other names for the same? All {found} would match with\n  {show_rules(rules)}")
    elif heads and problems == len(heads):
        (name, *_) = heads
        lines.append(
            f"The checkpoint is for {there[mapped[name]][-1]} classes and the dataset has {classifier.num_classes}: "
            "choose the dataset that it was trained for (dataset.num_classes)."
        )
    elif 2 * problems > len(shapes):
        lines.append("It is the checkpoint of another network: choose the model that it is of (model=...).")
    else:
        lines.append("Choose the model, and the settings of its network, that the checkpoint was made with.")
    return "\n".join(lines)
