"""Turns what Hydra composed into a checked `Config`, or says what is wrong with it. No TensorFlow, no MLflow.

Every interpolation is resolved, every key known, every value of its type and in its range, every path absolute. Nothing
else in the program looks at an unchecked value.
"""

from __future__ import annotations

import dataclasses
import difflib
import enum
import math
import os
import typing
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf, SCMode
from omegaconf.errors import OmegaConfBaseException

from slimexp.config import CONFIG_DIR, GROUP_SCHEMAS, OPTION_SCHEMAS, Config, show
from slimexp.errors import UserError
from slimexp.wrong_values import explain_value

__all__ = ["all_keys", "flatten", "nearest", "unknown_key", "validate"]


def validate(cfg: DictConfig, *, start_dir: str | Path, run_dir: str | Path | None = None) -> Config:
    """Checks a composed configuration and returns it as plain dataclasses.

    Args:
        cfg: What Hydra composed.
        start_dir: The folder the user started in; relative input paths count from here.
        run_dir: The run's folder, where Hydra chose another than `cfg.run_dir` (in a sweep).

    Returns:
        The configuration; options whose `_target_` is not ours stay dictionaries.

    Raises:
        UserError: For an unknown key, a wrong type, a value out of range, an unset `???` or a broken `${...}`.
    """
    values = _resolved(cfg)
    for key, value in flatten(values).items():
        if isinstance(value, float) and not math.isfinite(value):
            raise UserError(f"{key}={value}: must be a finite number.")
    schemas: dict[str, type | None] = dict(GROUP_SCHEMAS)
    schemas.update({group: _option_schema(values, group) for group in OPTION_SCHEMAS})
    _refuse_unknown_keys(values, schemas)
    options = {
        group: values[group] if schema is None else _typed(group, schema, values[group], Path(start_dir))
        for group, schema in schemas.items()
    }
    root = {key: value for key, value in values.items() if key not in schemas}
    config = Config(**options, **_converted("", Config, root, only=root))
    config.output_root = str(Path(start_dir) / config.output_root)
    config.run_dir = str(Path(start_dir) / (run_dir or config.run_dir))
    return config


def flatten(config: object, prefix: str = "") -> dict[str, Any]:
    """Returns a configuration's leaves as `{"pipeline.threads": 4, ...}`; lists stay whole, enums are their names."""
    items: Iterator[tuple[str, Any]]
    if dataclasses.is_dataclass(config):
        items = ((f.name, getattr(config, f.name)) for f in dataclasses.fields(config))
    elif isinstance(config, Mapping):
        items = iter(config.items())
    else:
        return {prefix: show(config) if isinstance(config, enum.Enum) else config}
    flat: dict[str, Any] = {}
    for key, value in items:
        flat.update(flatten(value, f"{prefix}.{key}" if prefix else str(key)))
    return flat


def nearest(word: str, choices: Iterable[str]) -> str:
    """Returns the choice most like `word`, whole or by its last part (`threads` finds `pipeline.threads`)."""

    def likeness(choice: str) -> tuple[float, float]:
        whole = difflib.SequenceMatcher(None, word, choice).ratio()
        last = difflib.SequenceMatcher(None, word.rpartition(".")[2], choice.rpartition(".")[2]).ratio()
        return max(whole, last - 0.05), whole

    return max(sorted(choices), key=likeness)


def unknown_key(key: str, value: object = None, keys: set[str] | None = None) -> str:
    """Returns the message for a key that does not exist; `keys` are the candidates, all there are by default."""
    shown = key if value is None else f"{key}={value}"
    inside = _free_form(key)
    if inside:
        return f"{shown}: {inside} has no such key yet; a new one is added with a plus: +{key}={_typed_back(value)}."
    options = _options_with(key)
    if options:
        group = key.partition(".")[0]
        return f"{shown}: a key of {' or '.join(f'{group}={option}' for option in options)}, which was not chosen."
    close = nearest(key, (keys or all_keys()) | {field.name for field in dataclasses.fields(Config)})
    return f"{shown}: there is no such key; the nearest is {close}. `--cfg job` prints those of this run."


def _free_form(key: str) -> str | None:
    """Returns the mapping whose keys are the user's own choice that a key is in, e.g. `tracking.tags`."""
    group, *parts = key.split(".")
    schema: Any = GROUP_SCHEMAS.get(group)
    for depth, part in enumerate(parts[:-1], start=2):
        kind = typing.get_type_hints(schema).get(part) if dataclasses.is_dataclass(schema) else None
        if typing.get_origin(kind) is dict:
            return ".".join((group, *parts[: depth - 1]))
        schema = kind
    return None


def _typed_back(value: object) -> str:
    return "VALUE" if value is None or isinstance(value, (Mapping, list)) else show(value)


def all_keys() -> set[str]:
    """Returns every dotted key there is, over all options of all groups."""
    keys = {field.name for field in dataclasses.fields(Config)} - GROUP_SCHEMAS.keys() - OPTION_SCHEMAS.keys()
    for group, schema in GROUP_SCHEMAS.items():
        keys |= set(_schema_keys(schema, group))
    for group, options in OPTION_SCHEMAS.items():
        keys.update(*(_schema_keys(schema, group) for schema in options.values()))
    return keys


def _options_with(key: str) -> list[str]:
    """Returns the names of the options of the key's group whose schema has it; none for a group without options."""
    group = key.partition(".")[0]
    targets = [t for t, schema in OPTION_SCHEMAS.get(group, {}).items() if key in _schema_keys(schema, group)]
    files = sorted((CONFIG_DIR / group).glob("*.yaml"))
    return [path.stem for path in files if any(f"_target_: {target}\n" in path.read_text() for target in targets)]


def _keys_of(schemas: Mapping[str, type | None]) -> set[str]:
    """Returns the keys of the options that were chosen; a user's own option counts as one key."""
    keys = set()
    for field in dataclasses.fields(Config):
        schema = schemas.get(field.name)
        keys |= set(_schema_keys(schema, field.name)) if schema else {field.name}
    return keys


def _schema_keys(schema: Any, prefix: str) -> Iterator[str]:
    for name, kind in typing.get_type_hints(schema).items():
        if dataclasses.is_dataclass(kind):
            yield from _schema_keys(kind, f"{prefix}.{name}")
        else:
            yield f"{prefix}.{name}"


def _option_schema(values: Mapping[str, Any], group: str) -> type | None:
    node = values.get(group)
    if not isinstance(node, Mapping):
        raise UserError(f"{group}={node}: must be a group of keys; choose an option, e.g. {group}=NAME, see --help.")
    target = node.get("_target_")
    if not isinstance(target, str):
        raise UserError(f"{group}._target_={target}: must name what builds it, e.g. a function of slimexp.{group}.")
    return OPTION_SCHEMAS[group].get(target)


def _resolved(cfg: DictConfig) -> dict[str, Any]:
    try:
        values = OmegaConf.to_container(cfg, resolve=True, throw_on_missing=True)
    except OmegaConfBaseException as error:
        key = error.full_key or "?"
        if "Missing mandatory value" in str(error):
            open_keys = sorted(OmegaConf.missing_keys(cfg)) or [key]
            setting = " ".join(f"{open_key}=VALUE" for open_key in open_keys)
            raise UserError(f"{', '.join(open_keys)} not set: add {setting} to the command.") from error
        raise UserError(explain_value(error)) from error
    assert isinstance(values, dict)
    return {str(key): value for key, value in values.items()}


def _refuse_unknown_keys(values: Mapping[str, Any], schemas: Mapping[str, type | None]) -> None:
    keys = _keys_of(schemas)
    prefixes = {key[:i] for key in keys for i in range(len(key)) if key[i] == "."}

    def walk(node: Any, path: str) -> None:
        if path in keys:
            return  # A leaf, or a free-form mapping such as `tracking.tags`.
        if path and path not in prefixes:
            raise UserError(unknown_key(path, node, keys))
        if not isinstance(node, Mapping):
            inside = ", ".join(sorted(key for key in keys if key.startswith(f"{path}.")))
            raise UserError(f"{path}={node}: must be a group of keys: {inside}.")
        for key, value in node.items():
            walk(value, f"{path}.{key}" if path else str(key))

    walk(values, "")


def _typed(prefix: str, schema: type, values: Mapping[str, Any], start_dir: Path) -> Any:
    instance = schema(**_converted(prefix, schema, values))
    for field in dataclasses.fields(schema):
        value = getattr(instance, field.name)
        path = field.metadata.get("path")
        if path and isinstance(value, str):
            setattr(instance, field.name, _absolute(value, start_dir))
        elif isinstance(path, str):  # A list of mappings, which may have a path under this key.
            for item in value:
                if path in item:
                    item[path] = _absolute(item[path], start_dir)
    return instance


def _absolute(path: str, start_dir: Path) -> str:
    return os.path.normpath(start_dir / Path(path).expanduser())


def _converted(
    prefix: str, schema: type, values: Mapping[str, Any], only: Iterable[str] | None = None
) -> dict[str, Any]:
    """Returns the schema's fields, or `only` some, from `values`, each of its type."""
    try:
        node = DictConfig(OmegaConf.merge(OmegaConf.structured(schema), dict(values)))
        wanted = OmegaConf.masked_copy(node, list(only)) if only is not None else node
        plain: Any = OmegaConf.to_container(wanted, throw_on_missing=True, structured_config_mode=SCMode.INSTANTIATE)
    except OmegaConfBaseException as error:
        raise UserError(explain_value(error, prefix)) from error
    return plain if isinstance(plain, dict) else {f.name: getattr(plain, f.name) for f in dataclasses.fields(schema)}
