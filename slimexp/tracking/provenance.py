"""Where a run came from: code version, package versions, command line, machine."""

from __future__ import annotations

import contextlib
import importlib.metadata
import json
import os
import platform
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from slimexp.tracking.masking import mask_command, mask_diff
from slimexp.tracking.run import current_user

__all__ = ["collect", "describe_devices", "describe_repository", "tags", "write_diffs"]

_PACKAGES = ("slimexp", "tensorflow", "mlflow", "hydra-core", "numpy")
_GIT_SECS = 5
_MAX_DIFF_BYTES = 1_000_000
_MAX_UNTRACKED = 1000
# What sets the number of threads of the libraries underneath.
_THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "CUDA_VISIBLE_DEVICES")
# Set while git runs a hook, and then they would point every call at the hook's repository.
_GIT_VARIABLES = ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_PREFIX", "GIT_OBJECT_DIRECTORY")


def collect(argv: Sequence[str], cwd: str | os.PathLike[str], cores: float | None = None) -> dict[str, Any]:
    """Collects what is needed to tell later which code made a run, how, and on what.

    Args:
        argv: The command line, e.g. `sys.argv`; secrets in it are masked.
        cwd: The folder the user started in.
        cores: The processor cores that this process may use; by default counted by its affinity.

    Returns:
        A dict that JSON can hold: `command`, `cwd`, `host`, `user`, `pid`, `platform`, `cpus`, `python`, `versions` (by
        package; those not installed are left out), `devices` (see `describe_devices`), `code` and `started_in`. The
        last two describe the repository of slimexp's own source and that of `cwd`, see `describe_repository`; None
        outside of a repository. Of a package that was installed from a repository, `code` has the commit alone.
    """
    code_folder = Path(__file__).resolve().parents[1]
    # Installed into an environment inside somebody's checkout, the source is not that repository's.
    code = describe_repository(code_folder, tracked="__init__.py")
    root = _git(cwd, "rev-parse", "--show-toplevel")
    same = code is not None and root is not None and root.strip() == code["root"]
    return {
        "command": _command(argv),
        "cwd": os.path.abspath(cwd),
        "host": socket.gethostname(),
        "user": current_user(),
        "pid": os.getpid(),
        "platform": platform.platform(),
        "cpus": os.cpu_count(),
        "python": platform.python_version(),
        "versions": _versions(),
        "devices": describe_devices(cores),
        "code": code or _installed_commit(),
        "started_in": code if same else describe_repository(cwd) if root is not None else None,
    }


def describe_devices(cores: float | None = None) -> dict[str, str]:
    """Describes the machine: text by tag.

    Args:
        cores: The processor cores that this process may use; by default counted by its affinity.

    Returns:
        `cpu.model`, `cpu.cores` (those that may be used, of all), `memory.gib`, `gpu` (their names),
        `threads.tensorflow` (within an operation and between them, as TensorFlow runs them) and `env.NAME` of the
        variables that set threads or devices. GPUs and threads are left out unless TensorFlow has been imported.
    """
    if cores is None:
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    found = {"cpu.model": _cpu_model(), "cpu.cores": f"{cores:g} of {os.cpu_count()}"}
    with contextlib.suppress(ValueError, OSError, AttributeError):
        num_bytes = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        found["memory.gib"] = f"{num_bytes / 2**30:.1f}"
    tensorflow = sys.modules.get("tensorflow")
    if tensorflow is not None:
        found["gpu"] = _gpu_names(tensorflow)
        threading_config = tensorflow.config.threading
        # 0 stands for one thread a core.
        intra = threading_config.get_intra_op_parallelism_threads() or os.environ.get("TF_NUM_INTRAOP_THREADS")
        inter = threading_config.get_inter_op_parallelism_threads() or os.environ.get("TF_NUM_INTEROP_THREADS")
        default = max(1, int(cores))
        found["threads.tensorflow"] = f"{intra or default} within an operation, {inter or default} between operations"
    found.update({f"env.{name}": os.environ[name] for name in _THREAD_VARIABLES if name in os.environ})
    return found


def describe_repository(folder: str | os.PathLike[str], tracked: str | None = None) -> dict[str, Any] | None:
    """Describes the state of the git repository that a folder lies in.

    Args:
        folder: Any folder in it.
        tracked: A file in `folder` that has to belong to the repository, or it does not count.

    Returns:
        `root`, `commit` (None before the first one), `branch` (None if detached), `dirty` (tracked files differ from
        the commit; None if git took too long), `diff` (of the tracked files against the commit, at most 1 MB, secrets
        masked; None if clean) and `untracked` (the names of files that git neither tracks nor ignores, at most 1000).
        None without git or a repository.
    """
    root = _git(folder, "rev-parse", "--show-toplevel")
    if root is None:
        return None
    root = root.strip()
    if tracked is not None and _git(folder, "ls-files", "--error-unmatch", "--", tracked) is None:
        return None
    commit = _line(_git(folder, "rev-parse", "--verify", "--quiet", "HEAD"))
    status = _git(folder, "status", "--porcelain", "--untracked-files=no")
    diff = None
    if status:
        # Before the first commit there is only what was added.
        against = ("HEAD",) if commit else ("--cached",)
        options = (
            "--no-ext-diff",
            "--no-textconv",
            "--no-color",
            "--no-relative",
            "--src-prefix=a/",
            "--dst-prefix=b/",
        )
        diff = _git(root, "diff", *against, *options, max_bytes=_MAX_DIFF_BYTES)
    untracked = _git(root, "ls-files", "--others", "--exclude-standard", "-z", max_bytes=_MAX_DIFF_BYTES)
    return {
        "root": root,
        "commit": commit,
        "branch": _line(_git(folder, "symbolic-ref", "--short", "--quiet", "HEAD")),
        "dirty": None if status is None else bool(status.strip()),
        "diff": None if diff is None else mask_diff(diff),
        "untracked": [name for name in (untracked or "").split("\0") if name][:_MAX_UNTRACKED],
    }


def write_diffs(provenance: Mapping[str, Any], folder: Path) -> list[Path]:
    """Writes what the commit does not have of the code that ran: `changes.diff`, and `cwd_changes.diff` if need be.

    Args:
        provenance: From `collect`.
        folder: Where to; made if there is something to write.

    Returns:
        The files: none for a clean repository, a second one if the user started in another that is not clean. Where a
        run goes on with other changes, `changes-2.diff` stands beside the first.
    """
    code, started_in = provenance["code"], provenance["started_in"]
    wanted = {"changes.diff": code}
    if started_in is not None and (code is None or started_in["root"] != code.get("root")):
        wanted["cwd_changes.diff"] = started_in
    paths = []
    for name, repository in wanted.items():
        if repository is None or not (repository.get("diff") or repository.get("untracked")):
            continue
        lines = [f"# {repository['root']} against commit {repository['commit']}", ""]
        lines += [repository["diff"].rstrip("\n"), ""] if repository["diff"] else []
        if repository["untracked"]:
            lines += ["# Not tracked by git:", *(f"#   {name}" for name in repository["untracked"])]
            if len(repository["untracked"]) == _MAX_UNTRACKED:
                lines.append(f"#   ... cut after {_MAX_UNTRACKED} names")
        folder.mkdir(parents=True, exist_ok=True)
        paths.append(_write_new(folder / name, "\n".join(lines) + "\n"))
    return paths


def _write_new(path: Path, text: str) -> Path:
    """Writes a file beside those of earlier starts of the run, unless one of them says the same."""
    content = text.encode("utf-8", "backslashreplace")
    number, target = 1, path
    while target.exists() and target.read_bytes() != content:
        number += 1
        target = path.with_stem(f"{path.stem}-{number}")
    target.write_bytes(content)
    return target


def tags(provenance: Mapping[str, Any]) -> dict[str, str]:
    """Turns what `collect` returned into tags of a run.

    Args:
        provenance: From `collect`.

    Returns:
        Flat tags: `command`, `cwd`, `host`, `user`, `pid`, `platform`, `python`, `version.PACKAGE`; those of the
        devices; `git.commit`, `git.branch`, `git.dirty` of the code; `cwd.git.*` of another repository that the user
        started in; and those that MLflow's UI shows in columns of its own (`mlflow.source.*`).
    """
    flat = {key: str(provenance[key]) for key in ("command", "cwd", "host", "user", "pid", "platform", "python")}
    flat.update({f"version.{name}": version for name, version in provenance["versions"].items()})
    flat.update(provenance["devices"])
    code, started_in = provenance["code"], provenance["started_in"]
    flat.update(_repository_tags("git.", code))
    if started_in is not None and (code is None or started_in["root"] != code.get("root")):
        flat.update(_repository_tags("cwd.git.", started_in))
    flat["mlflow.source.name"] = "slimexp"
    flat["mlflow.source.type"] = "LOCAL"
    if code is not None and code["commit"]:
        flat["mlflow.source.git.commit"] = code["commit"]
    return flat


def _repository_tags(prefix: str, repository: Mapping[str, Any] | None) -> dict[str, str]:
    if repository is None:
        return {}
    keys = ("commit", "branch", "dirty")
    values = {key: repository[key] for key in keys if repository.get(key) is not None}
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


def _installed_commit() -> dict[str, Any] | None:
    """Returns the commit of a package that pip has installed from a repository (PEP 610)."""
    with contextlib.suppress(importlib.metadata.PackageNotFoundError, ValueError, AttributeError, OSError):
        text = importlib.metadata.distribution("slimexp").read_text("direct_url.json")
        commit = json.loads(text or "{}").get("vcs_info", {}).get("commit_id")
        return {"commit": commit} if commit else None
    return None


def _cpu_model() -> str:
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines():
            key, _, value = line.partition(":")
            if key.strip() in ("model name", "Model", "Hardware") and value.strip():
                return value.strip()
    return platform.processor() or platform.machine()


def _gpu_names(tensorflow: Any) -> str:
    names = []
    for gpu in tensorflow.config.list_physical_devices("GPU"):
        details: Mapping[str, Any] = {}
        with contextlib.suppress(Exception):
            details = tensorflow.config.experimental.get_device_details(gpu)
        names.append(str(details.get("device_name", gpu.name)))
    counted = {name: names.count(name) for name in names}
    return ", ".join(f"{count} x {name}" if count > 1 else name for name, count in counted.items()) or "none"


def _git(folder: str | os.PathLike[str], *arguments: str, max_bytes: int | None = None) -> str | None:
    """Runs git; returns its output, or None if there is none, it fails, or takes too long.

    Args:
        folder: Where.
        *arguments: Its arguments.
        max_bytes: Where the output is cut, with a note at its end.
    """
    environment = {key: value for key, value in os.environ.items() if key not in _GIT_VARIABLES}
    # Without optional locks `git status` leaves the index of a repository, which others may be using, alone.
    environment.update(GIT_OPTIONAL_LOCKS="0", LC_ALL="C", GIT_TERMINAL_PROMPT="0")
    command = ["git", "-C", os.fspath(folder), "-c", "core.fsmonitor=false", *arguments]
    try:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=environment
        )
    except OSError:
        return None
    assert process.stdout is not None
    late = threading.Timer(_GIT_SECS, process.kill)
    late.start()
    try:
        with process.stdout:
            output = process.stdout.read(-1 if max_bytes is None else max_bytes + 1)
        is_cut = max_bytes is not None and len(output) > max_bytes
        if is_cut:
            process.kill()
        code = process.wait()
    finally:
        late.cancel()
    if code != 0 and not is_cut:
        return None
    text = output[:max_bytes].decode("utf-8", "replace")
    return f"{text}\n... cut after {max_bytes} bytes\n" if is_cut else text
