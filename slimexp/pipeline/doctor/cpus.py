"""The processor cores that this process may really use: its affinity, and the CPU quota of its cgroups.

`os.cpu_count()` counts the machine's cores. In a container, a batch job or under `taskset` a process gets fewer, and
threads beyond those only take turns. TensorFlow is not imported here.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

__all__ = ["available_cpus", "cgroup_folders", "cgroup_limit", "whole_cpus"]


def available_cpus() -> float:
    """Returns the cores that this process may use at the same time; a quota can make it a fraction, e.g. 1.5."""
    try:
        cores = len(os.sched_getaffinity(0))
    except AttributeError:  # No affinity on this operating system.
        cores = os.cpu_count() or 1
    limit = cgroup_limit()
    return float(cores) if limit is None else min(float(cores), limit)


def whole_cpus(cpus: float) -> int:
    """Returns how many threads `cpus` cores keep at work: 1.5 cores take 2."""
    return max(1, -int(-cpus // 1))


def cgroup_limit(proc: Path = Path("/proc/self")) -> float | None:
    """Returns the CPU quota of this process in cores, the least over its cgroups and theirs; None without one.

    Both versions are read: `cpu.max` (v2) and `cpu.cfs_quota_us` over `cpu.cfs_period_us` (v1).

    Args:
        proc: The folder with the process's `cgroup` and `mountinfo`.
    """
    limits = [_quota(folder) for folder in cgroup_folders(proc, "cpu")]
    return min((limit for limit in limits if limit is not None), default=None)


def cgroup_folders(proc: Path, controller: str) -> Iterator[Path]:
    """Yields the folders of the cgroups that limit what this process uses, each with those above it.

    Args:
        proc: The folder with the process's `cgroup` and `mountinfo`.
        controller: What is limited: `cpu` or `memory`. In version 2 all have one hierarchy.
    """
    try:
        # Each line is `id:controllers:path`; version 2 has no controllers.
        groups = [line.split(":", 2) for line in (proc / "cgroup").read_text(errors="replace").splitlines()]
        mounts = (proc / "mountinfo").read_text(errors="replace").splitlines()
    except OSError:
        return  # No Linux, or no /proc.
    # The path by whether the hierarchy is of version 2.
    paths = {not names: path for _, names, path in groups if not names or controller in names.split(",")}
    for line in mounts:
        # id, parent, device, root, mount point, options, ..., "-", type, source, options of the file system
        before, _, after = line.partition(" - ")
        fields, kind = before.split(), after.split()
        if len(fields) < 5 or not kind or kind[0] not in ("cgroup", "cgroup2"):
            continue
        if kind[0] == "cgroup" and controller not in kind[-1].split(","):
            continue
        path = paths.get(kind[0] == "cgroup2")
        if path is None:
            continue
        root, point = (_unescaped(field) for field in fields[3:5])
        # A container sees its own group as the mount's root, whatever `cgroup` calls it.
        inside = os.path.relpath(path, root) if Path(path).is_relative_to(root) else "."
        folder = Path(point) / inside
        yield folder
        yield from (parent for parent in folder.parents if parent.is_relative_to(point))


def _quota(folder: Path) -> float | None:
    try:
        if (folder / "cpu.max").is_file():
            quota, period = (folder / "cpu.max").read_text().split()
        else:
            quota = (folder / "cpu.cfs_quota_us").read_text()
            period = (folder / "cpu.cfs_period_us").read_text()
        cores = int(quota) / int(period)  # `max` and -1 mean no limit.
    except (OSError, ValueError, ZeroDivisionError):
        return None
    return cores if cores > 0 else None


def _unescaped(path: str) -> str:
    """Undoes mountinfo's octal codes for blanks and their like."""
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), path)
