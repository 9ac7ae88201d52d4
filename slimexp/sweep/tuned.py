"""`pipeline/tuned.yaml`: measured settings of the pipeline as an option of its group, for `pipeline=tuned`.

It is written beside the results, and into `conf/` of the folder that the user started in, which lies on Hydra's search
path (see `slimexp.search_path`).
"""

from __future__ import annotations

import copy
import datetime
import os
import socket
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from slimexp.evaluation.tables import replace_file
from slimexp.pipeline.doctor.cpus import available_cpus
from slimexp.pipeline.doctor.rates import Rate

__all__ = ["OPTION", "adopt_tuned", "describe_machine", "tuned_text", "write_tuned"]

# Below a folder of options.
OPTION = Path("pipeline", "tuned.yaml")
_MARK = "# Pipeline settings measured by job=benchmark"
_RATES = {"pipeline": "the pipeline", "network": "the network", "training": "together"}


def describe_machine() -> dict[str, Any]:
    """Returns the machine's `host`, `cpu` and the `num_cpus` that this process may use."""
    return {"host": socket.gethostname(), "cpu": _cpu_model(), "num_cpus": available_cpus()}


def tuned_text(
    pipeline: Mapping[str, Any],
    overrides: Sequence[str],
    *,
    where: Mapping[str, Any],
    rates: Mapping[str, Rate],
    command: str,
    note: str = "",
) -> str:
    """Returns the file's text: a comment on where the settings come from, then all keys of the group.

    Args:
        pipeline: The group as it was in effect, nested, counts as numbers.
        overrides: What to change of it, e.g. `pipeline.threads=6`.
        where: What it was measured on: `host`, `cpu`, `num_cpus`, and `dataset`, `model` in words.
        rates: What was measured with `pipeline`; `pipeline`, `network` and `training` are named.
        command: The command line.
        note: Says what of it was not measured.
    """
    values = copy.deepcopy(dict(pipeline))
    for override in overrides:
        key, _, value = override.partition("=")
        *groups, name = key.split(".")[1:]
        node = values
        for group in groups:
            node = node[group]
        node[name] = yaml.safe_load(value)
    cores = f"{float(where.get('num_cpus', available_cpus())):g}"
    # `--cfg` and the runs' params show it: these settings are of that machine.
    values["name"] = f"tuned for {cores} core{'s' * (cores != '1')} of {where.get('host', 'an unknown machine')}"
    measured = [f"{title} {rates[name].median:,.0f}" for name, title in _RATES.items() if name in rates]
    lines = {
        "Date": f"{datetime.datetime.now():%Y-%m-%d %H:%M}",
        "Machine": f"{where.get('host', '?')}, {cores} cores{_of(where.get('cpu'))}",
        "Command": command,
        "Measured": f"{', '.join(measured)} images/s",
        "Dataset": where.get("dataset"),
        "Model": where.get("model"),
        "Note": note,
    }
    # A line break would end the comment.
    told = "".join(f"# {name + ':':<10}{' '.join(str(text).split())}\n" for name, text in lines.items() if text)
    ordered = {"name": values.pop("name"), **values}
    return f"{_MARK}: `pipeline=tuned` takes them.\n{told}{yaml.safe_dump(ordered, sort_keys=False, width=120)}"


def write_tuned(folder: Path, text: str) -> Path:
    """Writes `FOLDER/pipeline/tuned.yaml`; so `--config-dir=FOLDER pipeline=tuned` takes it.

    Returns:
        The file.
    """
    path = folder / OPTION
    replace_file(path, lambda temporary: temporary.write_text(text, encoding="utf-8"))
    return path


def adopt_tuned(start_dir: Path, text: str) -> str:
    """Writes the settings into `conf/` of the folder that the user started in, for `pipeline=tuned`.

    A file there of the same name that the user has written is left alone; an earlier one of ours is replaced.

    Returns:
        What was done, in a line or two.
    """
    path = start_dir / "conf" / OPTION
    shown = os.path.relpath(path, start_dir)
    replaced = ""
    try:
        if path.exists():
            earlier = path.read_text(encoding="utf-8", errors="replace")
            if not earlier.startswith(_MARK):
                return f"{shown} is a file of your own and stays as it is; remove it, or use the settings above."
            replaced = f", in place of those of {_date(earlier)}{_changes(earlier, text)}"
        write_tuned(start_dir / "conf", text)
    except OSError as error:
        return f"{shown} cannot be written: {error.strerror or error}."
    return f"pipeline=tuned takes these settings ({shown}{replaced})"


def _date(text: str) -> str:
    dates = [line.partition(":")[2].strip() for line in text.splitlines() if line.startswith("# Date:")]
    return dates[0] if dates else "an earlier time"


def _changes(earlier: str, text: str) -> str:
    """Says what differs between two of our files."""
    try:
        old, new = (_flat(yaml.safe_load(content)) for content in (earlier, text))
    except (yaml.YAMLError, AttributeError):
        return ""
    changed = [f"{key} {old[key]} -> {new[key]}" for key in new if key in old and old[key] != new[key]]
    return f": {', '.join(changed)}" if changed else ", which were the same"


def _flat(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in values.items():
        flat.update(_flat(value, f"{prefix}{key}.") if isinstance(value, Mapping) else {f"{prefix}{key}": value})
    return flat


def _of(cpu: object) -> str:
    return f" of {cpu}" if cpu else ""


def _cpu_model() -> str:
    """Returns the processor's name as Linux knows it; empty elsewhere."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return ""
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, "")
