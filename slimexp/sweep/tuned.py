"""`pipeline/tuned.yaml`: measured settings of the pipeline as an option of its group, for `pipeline=tuned`.

It is written beside the results, and into `conf/` of the folder that the user started in, which lies on Hydra's search
path (see `slimexp.search_path`).
"""

from __future__ import annotations

import copy
import datetime
import os
import re
import socket
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from slimexp.evaluation.tables import replace_file
from slimexp.pipeline.doctor.cpus import available_cpus
from slimexp.pipeline.doctor.rates import Rate
from slimexp.shown import shown_python
from slimexp.tracking.masking import mask_command

__all__ = ["OPTION", "adopt_tuned", "describe_machine", "measured_elsewhere", "tuned_text", "write_tuned"]

# Below a folder of options.
OPTION = Path("pipeline", "tuned.yaml")
_MARK = "# Pipeline settings measured by job=benchmark"
# What an option says of itself in its `name`, see `_name`.
_NAME = re.compile(r"tuned for (?P<cores>[\d.]+) cores? of (?P<host>[^,]+)(?:, (?P<dataset>.+), (?P<model>[^,]+))?")
# What a measurement depends on, but for pipeline=tuned and the numbers that it is to find out.
_MEASURED_WITH = (
    "dataset",
    "experiment",
    "model",
    "pipeline",
    "preprocessing",
    "trainer.strategy",
    "trainer.num_clones",
)
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
        command: The command line, as `python -m slimexp ...` where it was started so.
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
    values["name"] = _name(where)
    measured = [f"{title} {rates[name].median:,.0f}" for name, title in _RATES.items() if name in rates]
    lines = {
        "Date": f"{datetime.datetime.now():%Y-%m-%d %H:%M}",
        "Machine": f"{where.get('host', '?')}, {_cores(where)} cores{_of(where.get('cpu'))}",
        "Command": re.sub("^python(?= -m )", lambda _: shown_python(), command),
        "Measured": f"{', '.join(measured)} images/s",
        "Dataset": where.get("dataset"),
        "Model": where.get("model"),
        "Note": note,
    }
    # A line break would end the comment.
    told = "".join(f"# {name + ':':<10}{' '.join(str(text).split())}\n" for name, text in lines.items() if text)
    ordered = {"name": values.pop("name"), **values}
    return f"{_MARK}: `pipeline=tuned` takes them.\n{told}{yaml.safe_dump(ordered, sort_keys=False, width=120)}"


def _name(where: Mapping[str, Any]) -> str:
    """Returns what the option is called: what these settings are for, which `--cfg` and the runs' params show."""
    name = f"tuned for {_machine(_cores(where), where.get('host', 'an unknown machine'))}"
    return f"{name}, {where['dataset']}, {where['model']}" if {"dataset", "model"} <= where.keys() else name


def _machine(cores: str, host: str) -> str:
    return f"{cores} core{'s' * (cores != '1')} of {host}"


def _cores(where: Mapping[str, Any]) -> str:
    return f"{float(where.get('num_cpus', available_cpus())):g}"


def measured_elsewhere(name: str, where: Mapping[str, Any], argv: Sequence[str]) -> str | None:
    """Says that tuned settings were measured on another machine, or for another dataset or network.

    A machine is another one if both its name and its number of cores differ: the same one may be called differently
    each time, as containers are.

    Args:
        name: `pipeline.name`, which tells of a tuned option what it is for.
        where: What is there now, as for `tuned_text`.
        argv: The command line, of which what to measure is taken.

    Returns:
        A line, with the command that measures here; None if they are for this, or are no tuned settings.
    """
    tuned = _NAME.fullmatch(name)
    if tuned is None:
        return None
    pairs = []
    if tuned["host"] != where["host"] and tuned["cores"] != _cores(where):
        pairs.append((f"on {_machine(tuned['cores'], tuned['host'])}", _machine(_cores(where), where["host"])))
    for key in ("dataset", "model"):
        if tuned[key] is not None and tuned[key] != where[key]:
            pairs.append((f"for {tuned[key]}", str(where[key])))
    if not pairs:
        return None
    differences = "; ".join(f"{before}, and this is {now}" for before, now in pairs)
    chosen = [word for word in argv[1:] if word != "pipeline=tuned" and word.lstrip("+~").startswith(_MEASURED_WITH)]
    command = f"{shown_python()} -m slimexp job=benchmark {mask_command(chosen)}".rstrip()
    return f"pipeline=tuned was measured {differences}. To measure here: {command}"


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
    keys = [key for key in new if key in old and key != "name"]
    changed = [f"{key} {old[key]} -> {new[key]}" for key in keys if old[key] != new[key]]
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
