r"""From a variable's name in the model to its name in a checkpoint, by regular expressions; and a guess at such a map.

The rules take the model's name, as TF-Slim's `name_in_checkpoint(var)` does, and give the checkpoint's:

    [{pattern: ^, replace: vgg16/}]                     conv1/weights -> vgg16/conv1/weights
    [{pattern: weights, replace: params1},
     {pattern: bias, replace: params2}]                 conv1/weights -> conv1/params1, conv1/bias -> conv1/params2
"""

from __future__ import annotations

import collections
import dataclasses
import re
from collections.abc import Iterable, Mapping, Sequence

from slimexp.errors import UserError
from slimexp.training.scopes import nearest_scopes

__all__ = ["NameRule", "map_names", "show_rules", "suggest_rules"]

Shape = tuple[int, ...]


@dataclasses.dataclass(frozen=True)
class NameRule:
    r"""Replaces every match of a regular expression in a name; `\1` or `\g<name>` stand for its groups."""

    pattern: str
    replace: str


def map_names(names: Iterable[str], rules: Sequence[NameRule]) -> dict[str, str]:
    """Returns the name in the checkpoint of each of the model's names; each rule acts on what those before it made.

    Raises:
        UserError: If a rule's pattern is in no name, or two variables get the same name.
    """
    mapped = {name: name for name in names}
    for rule in rules:
        pattern = re.compile(rule.pattern)
        if not any(pattern.search(name) for name in mapped.values()):
            close = nearest_scopes(re.sub(r"[\\^$().*+?]", "", rule.pattern), mapped.values())
            raise UserError(
                f"restore.name_map: the pattern {rule.pattern!r} is in no variable's name of the model (the rules turn "
                f"the model's names into the checkpoint's, one after the other). The nearest are {', '.join(close)}."
            )
        mapped = {name: pattern.sub(rule.replace, now) for name, now in mapped.items()}
    origins: dict[str, str] = {}
    for name, now in mapped.items():
        if now in origins:
            raise UserError(
                f"restore.name_map: makes {now!r} of both {origins[now]!r} and {name!r}; make the patterns narrower."
            )
        origins[now] = name
    return mapped


def show_rules(rules: Sequence[NameRule]) -> str:
    """Returns rules as an override for the command line, quoted for the shell."""
    texts = [f'{{pattern: "{rule.pattern}", replace: "{rule.replace}"}}' for rule in rules]
    return f"'restore.name_map=[{', '.join(texts)}]'"


def suggest_rules(model: Mapping[str, Shape], checkpoint: Mapping[str, Shape]) -> tuple[list[NameRule], int]:
    """Guesses at rules that turn the model's names into those of a checkpoint of the same network.

    A prefix may have changed, and what a layer calls its variables (`kernel` for `weights`).

    Args:
        model: Names and shapes.
        checkpoint: Names and shapes.

    Returns:
        The rules, and for how many of the model's variables they find one of the same shape. No rules if that is fewer
        than half of them, or no more than without rules.
    """
    rules = _leaf_rules(model, checkpoint, prefix := _prefix_rule(model, checkpoint))
    if prefix is not None:
        rules.insert(0, prefix)
    found = _num_found(model, checkpoint, rules)
    if 2 * found < len(model) or found <= _num_found(model, checkpoint, []):
        return [], 0
    return rules, found


def _num_found(model: Mapping[str, Shape], checkpoint: Mapping[str, Shape], rules: Sequence[NameRule]) -> int:
    return sum(checkpoint.get(_applied(name, rules)) == shape for name, shape in model.items())


def _applied(name: str, rules: Sequence[NameRule]) -> str:
    for rule in rules:
        name = re.sub(rule.pattern, rule.replace, name)
    return name


def _prefix_rule(model: Mapping[str, Shape], checkpoint: Mapping[str, Shape]) -> NameRule | None:
    """Finds the change of prefix that most layers have in common, by the longest endings that their scopes share."""
    by_ending: dict[str, list[str]] = collections.defaultdict(list)
    for scope in {name.rpartition("/")[0] for name in checkpoint}:
        parts = scope.split("/")
        for n in range(len(parts)):
            by_ending["/".join(parts[n:])].append(scope)
    votes: collections.Counter[tuple[str, str]] = collections.Counter()
    for name in model:
        parts = name.rpartition("/")[0].split("/")
        endings = ("/".join(parts[n:]) for n in range(len(parts)))
        ending = next((ending for ending in endings if ending in by_ending), None)
        if ending is not None:
            ours = name.rpartition("/")[0].removesuffix(ending)
            votes.update((ours, theirs.removesuffix(ending)) for theirs in by_ending[ending])
    if not votes:
        return None
    # Of equal ones the shortest: that is the one with the fewest accidents.
    (ours, theirs), _ = min(votes.items(), key=lambda item: (-item[1], len(item[0][0] + item[0][1]), item[0]))
    return None if ours == theirs else NameRule("^" + re.sub(r"([.+])", r"\\\1", ours), theirs)


def _leaf_rules(model: Mapping[str, Shape], checkpoint: Mapping[str, Shape], prefix: NameRule | None) -> list[NameRule]:
    """Finds what the variables within a layer are called there, where their shapes tell."""
    leaves: dict[str, dict[str, Shape]] = collections.defaultdict(dict)
    for name, shape in checkpoint.items():
        scope, _, leaf = name.rpartition("/")
        leaves[scope][leaf] = shape
    votes: dict[str, collections.Counter[str]] = collections.defaultdict(collections.Counter)
    for name, shape in model.items():
        scope, _, leaf = _applied(name, [prefix] if prefix else []).rpartition("/")
        candidates = [theirs for theirs, their_shape in leaves[scope].items() if their_shape == shape]
        if leaf in candidates:
            votes[leaf][leaf] += 1
        elif len(candidates) == 1:
            votes[leaf][candidates[0]] += 1
    best = {ours: counter.most_common(1)[0][0] for ours, counter in votes.items()}
    return [NameRule(f"/{ours}$", f"/{theirs}") for ours, theirs in best.items() if ours != theirs]
