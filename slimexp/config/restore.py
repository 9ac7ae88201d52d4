"""The schema of the group `restore`."""

from __future__ import annotations

import dataclasses
import re
from typing import Any

from omegaconf import MISSING

from slimexp.config.fields import path_field, require
from slimexp.errors import UserError

__all__ = [
    "RestoreConfig",
]


@dataclasses.dataclass
class RestoreConfig:
    name: str = MISSING
    checkpoint: str | None = path_field()
    include: Any = MISSING
    exclude: Any = MISSING
    name_map: Any = MISSING
    ignore_missing: bool = MISSING
    trainable_scopes: Any = MISSING

    def __post_init__(self) -> None:
        require(self.checkpoint != "", "restore.checkpoint", "''", "must name a checkpoint, or be null.")
        for name in ("include", "exclude", "trainable_scopes"):
            setattr(self, name, _scopes(f"restore.{name}", getattr(self, name)))
        _name_map(self.name_map)
        if self.checkpoint is None:
            idle = [n for n in ("include", "exclude", "name_map", "ignore_missing") if getattr(self, n)]
            rule = "there is nothing to restore from; set restore.checkpoint as well."
            for name in idle:
                value = getattr(self, name)
                listed = isinstance(value, list) and name != "name_map"
                require(False, f"restore.{name}", f"[{','.join(value)}]" if listed else value, rule)


def _scopes(key: str, value: Any) -> list[str]:
    """Returns a list of scopes; they may come as a text with commas, as TF-Slim's flags do."""
    scopes = value.split(",") if isinstance(value, str) else value
    if isinstance(value, str) and not value.strip():
        scopes = []
    rule = "must be a list of scopes, e.g. [vgg_16/fc7,vgg_16/fc8], or heads."
    require(isinstance(scopes, list) and all(isinstance(s, str) and s.strip() for s in scopes), key, value, rule)
    return [scope.strip() for scope in scopes]


def _name_map(value: Any) -> None:
    key, rule = "restore.name_map", 'must be a list of rules, e.g. [{pattern: "^", replace: "vgg16/"}].'
    require(isinstance(value, list), key, value, rule)
    for item in value:
        ok = isinstance(item, dict) and item.keys() == {"pattern", "replace"}
        require(ok and all(isinstance(text, str) for text in item.values()), key, item, rule)
        try:
            re.compile(item["pattern"]).sub(item["replace"], "")
        except (re.error, IndexError) as error:
            raise UserError(f"{key}={item}: is no regular expression with its replacement: {error}.") from error
