"""Scopes choose variables: prefixes of their names, as TF-Slim takes them. What to say when one chooses none."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterable, Sequence

from slimexp.errors import UserError

__all__ = ["HEADS", "in_scopes", "nearest_scopes", "resolve_scopes"]

# Stands for the scopes that the network declares as its heads.
HEADS = "heads"


def in_scopes(name: str, scopes: Iterable[str]) -> bool:
    """Tells whether a variable's name begins with one of the scopes.

    It is a plain prefix, as in TF-Slim: `vgg_16/fc8` takes `vgg_16/fc8/weights`, and `vgg_16/fc` all of fc6 to fc8.
    """
    return name.startswith(tuple(scopes))


def nearest_scopes(wanted: str, names: Iterable[str], count: int = 3) -> list[str]:
    """Returns the scopes of `names`, and names themselves, that are most like one that is none of them."""

    def likeness(scope: str) -> float:
        whole = difflib.SequenceMatcher(None, wanted, scope).ratio()
        last = difflib.SequenceMatcher(None, wanted.rpartition("/")[2], scope.rpartition("/")[2]).ratio()
        # Layers are what is mostly meant, not their variables.
        return max(whole, last - 0.05) - (0.15 if scope in variables else 0)

    wanted, variables = wanted.rstrip("/"), set(names)
    # Where two are equally like it, the shorter says it all.
    ranked = sorted(_all_scopes(variables), key=lambda scope: (-round(likeness(scope), 3), len(scope), scope))
    return ranked[:count]


def resolve_scopes(
    key: str,
    asked: Sequence[str],
    names: Collection[str],
    *,
    heads: Sequence[str],
    network: str,
    kind: str = "variable",
) -> tuple[str, ...]:
    """Returns the scopes that were asked for, `heads` replaced by those of the network.

    Args:
        key: The configuration key, for messages, e.g. `restore.exclude`.
        asked: Prefixes of variable names, or `heads`.
        names: The names to choose from.
        heads: The scopes that the network declares; auxiliary heads that were left out need not be there.
        network: Its name, for messages.
        kind: What the names are of, for messages.

    Raises:
        UserError: For every scope that no name begins with, with the nearest ones.
    """
    scopes: list[str] = []
    unknown = []
    for scope in asked:
        if scope == HEADS:
            if not heads:
                raise UserError(
                    f"{key}={HEADS}: {network} does not say which scopes its heads have. Name them, e.g. "
                    f"{key}=[net/logits], or give the function an attribute `head_scopes`."
                )
            found = [head for head in heads if any(name.startswith(head) for name in names)]
            if not found:
                unknown += [f"{HEADS}: {network} declares {', '.join(heads)}, but no {kind} is there"]
            scopes += found
        elif any(name.startswith(scope) for name in names):
            scopes.append(scope)
        else:
            unknown.append(f"{scope}: the nearest are {', '.join(nearest_scopes(scope, names))}")
    if unknown:
        raise UserError(
            f"{key}=[{','.join(asked)}]: no {kind} of {network} begins with\n  "
            + "\n  ".join(unknown)
            + "\nCorrect or leave out what matches nothing. `job=inspect` lists all names."
        )
    return tuple(dict.fromkeys(scopes))


def _all_scopes(names: Iterable[str]) -> set[str]:
    parts = [name.split("/") for name in names]
    return {"/".join(name[:n]) for name in parts for n in range(1, len(name) + 1)}
