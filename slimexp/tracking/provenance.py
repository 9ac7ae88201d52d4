"""Where a run came from: code version, package versions, command line, machine."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from slimexp.tracking.masking import mask_command, mask_text

__all__ = ["collect", "describe_repository", "tags"]

_PACKAGES = ("slimexp", "tensorflow", "mlflow", "hydra-core", "numpy")
_GIT_SECS = 5
_MAX_DIFF_BYTES = 200_000
# Set while git runs a hook, and then they would point every call at the hook's repository.
_GIT_VARIABLES = ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_PREFIX", "GIT_OBJECT_DIRECTORY")


def collect(argv: Sequence[str], cwd: str | os.PathLike[str]) -> dict[str, Any]:
    """Collects what is needed to tell later which code made a run, and how.

    Args:
        argv: The command line, e.g. `sys.argv`; secrets in it are masked.
        cwd: The folder the user started in.

    Returns:
        A dict that JSON can hold: `command`, `cwd`, `host`, `pid`, `platform`, `cpus`, `python`, `versions` (by
        package; those not installed are left out), `code` and `started_in`. The last two describe the repository of
        slimexp's own source and that of `cwd`, see `describe_repository`; None outside of a repository.
    """
    code_folder = Path(__file__).resolve().parents[1]
    return {
        "command": _command(argv),
        "cwd": os.path.abspath(cwd),
        "host": socket.gethostname(),
        "pid": os.getpid(),
        "platform": platform.platform(),
        "cpus": os.cpu_count(),
        "python": platform.python_version(),
        "versions": _versions(),
        # Installed into an environment inside somebody's checkout, the source is not that repository's.
        "code": describe_repository(code_folder, tracked="__init__.py"),
        "started_in": describe_repository(cwd),
    }


def describe_repository(folder: str | os.PathLike[str], tracked: str | None = None) -> dict[str, Any] | None:
    """Describes the state of the git repository that a folder lies in.

    Args:
        folder: Any folder in it.
        tracked: A file in `folder` that has to belong to the repository, or it does not count.

    Returns:
        `root`, `commit` (None before the first one), `branch` (None if detached), `dirty` (tracked files differ from
        the commit; None if git took too long) and `diff` (at most 200 kB of it). None without git or a repository.
    """
    root = _git(folder, "rev-parse", "--show-toplevel")
    if root is None:
        return None
    if tracked is not None and _git(folder, "ls-files", "--error-unmatch", "--", tracked) is None:
        return None
    status = _git(folder, "status", "--porcelain", "--untracked-files=no")
    diff = None
    if status:
        diff = _git(folder, "diff", "HEAD", "--no-ext-diff", "--no-textconv", "--no-color")
        if diff is not None and len(diff) > _MAX_DIFF_BYTES:
            diff = f"{diff[:_MAX_DIFF_BYTES]}\n... cut; {len(diff)} characters in all\n"
    return {
        "root": root.strip(),
        "commit": _line(_git(folder, "rev-parse", "--verify", "--quiet", "HEAD")),
        "branch": _line(_git(folder, "symbolic-ref", "--short", "--quiet", "HEAD")),
        "dirty": None if status is None else bool(status.strip()),
        "diff": None if diff is None else mask_text(diff),
    }


def tags(provenance: Mapping[str, Any]) -> dict[str, str]:
    """Turns what `collect` returned into tags of a run.

    Args:
        provenance: From `collect`.

    Returns:
        Flat tags: `command`, `cwd`, `host`, `pid`, `python`, `version.PACKAGE`; `git.commit`, `git.branch`,
        `git.dirty` of the code; `cwd.git.*` of another repository that the user started in; and those that MLflow's UI
        shows in columns of its own (`mlflow.source.*`).
    """
    flat = {key: str(provenance[key]) for key in ("command", "cwd", "host", "pid", "python")}
    flat.update({f"version.{name}": version for name, version in provenance["versions"].items()})
    code, started_in = provenance["code"], provenance["started_in"]
    flat.update(_repository_tags("git.", code))
    if started_in is not None and (code is None or started_in["root"] != code["root"]):
        flat.update(_repository_tags("cwd.git.", started_in))
    flat["mlflow.source.name"] = "slimexp"
    flat["mlflow.source.type"] = "LOCAL"
    if code is not None and code["commit"]:
        flat["mlflow.source.git.commit"] = code["commit"]
    return flat


def _repository_tags(prefix: str, repository: Mapping[str, Any] | None) -> dict[str, str]:
    if repository is None:
        return {}
    values = {key: repository[key] for key in ("commit", "branch", "dirty") if repository[key] is not None}
    return {prefix + key: {True: "true", False: "false"}.get(value, value) for key, value in values.items()}


def _versions() -> dict[str, str]:
    versions = {}
    for name in _PACKAGES:
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    if "slimexp" not in versions:  # Run from a checkout that was not installed.
        version = getattr(sys.modules.get("slimexp"), "__version__", None)
        if version:
            versions = {"slimexp": version, **versions}
    return versions


def _command(argv: Sequence[str]) -> str:
    """Returns what was typed; Python puts the file that `-m` found in the place of the module's name."""
    command = mask_command(argv[1:])
    program = Path(argv[0]) if argv else Path("slimexp")
    name = f"python -m {program.parent.name}" if program.name == "__main__.py" else mask_command([program.name])
    return f"{name} {command}".strip()


def _line(text: str | None) -> str | None:
    return text.strip() or None if text is not None else None


def _git(folder: str | os.PathLike[str], *arguments: str) -> str | None:
    """Runs git; returns its output, or None if there is none, it fails, or takes too long."""
    environment = {key: value for key, value in os.environ.items() if key not in _GIT_VARIABLES}
    # Without optional locks `git status` leaves the index of a repository, which others may be using, alone.
    environment.update(GIT_OPTIONAL_LOCKS="0", LC_ALL="C", GIT_TERMINAL_PROMPT="0")
    try:
        done = subprocess.run(
            ["git", "-C", os.fspath(folder), *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=environment,
            timeout=_GIT_SECS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.decode("utf-8", "replace") if done.returncode == 0 else None
