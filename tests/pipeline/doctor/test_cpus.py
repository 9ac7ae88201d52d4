from __future__ import annotations

import os
from pathlib import Path

import pytest

from slimexp.pipeline.doctor import cpus


def write(folder: Path, **files: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name.replace("__", ".")).write_text(text)


def process(tmp_path: Path, cgroup: str, mounts: str) -> Path:
    """Writes the two files of a process; `{fs}` stands for the folder of the cgroup file systems."""
    write(tmp_path / "proc", cgroup=cgroup, mountinfo=mounts.replace("{fs}", str(tmp_path / "fs")))
    return tmp_path / "proc"


V2 = "31 24 0:27 / {fs} rw,nosuid shared:9 - cgroup2 cgroup2 rw,nsdelegate\n"
V1 = "32 31 0:29 / {fs}/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n"


def test_version_2_takes_the_least_on_the_way_up(tmp_path: Path) -> None:
    proc = process(tmp_path, "0::/a/b\n", V2)
    write(tmp_path / "fs" / "a" / "b", cpu__max="max 100000\n")
    write(tmp_path / "fs" / "a", cpu__max="150000 100000\n")
    assert cpus.cgroup_limit(proc) == 1.5
    write(tmp_path / "fs" / "a" / "b", cpu__max="50000 100000\n")
    assert cpus.cgroup_limit(proc) == 0.5


def test_version_1(tmp_path: Path) -> None:
    proc = process(tmp_path, "4:memory:/x\n3:cpu,cpuacct:/job\n0::/\n", V1)
    write(tmp_path / "fs" / "cpu,cpuacct" / "job", cpu__cfs_quota_us="300000\n", cpu__cfs_period_us="100000\n")
    write(tmp_path / "fs" / "cpu,cpuacct", cpu__cfs_quota_us="-1\n", cpu__cfs_period_us="100000\n")
    assert cpus.cgroup_limit(proc) == 3


def test_a_container_whose_mount_is_its_own_group(tmp_path: Path) -> None:
    mounts = "32 31 0:29 /docker/abc {fs}/cpu rw - cgroup cgroup rw,cpu\n"
    proc = process(tmp_path, "3:cpu:/docker/abc\n", mounts)
    write(tmp_path / "fs" / "cpu", cpu__cfs_quota_us="200000\n", cpu__cfs_period_us="100000\n")
    assert cpus.cgroup_limit(proc) == 2
    # Without a view of the host's paths either.
    assert cpus.cgroup_limit(process(tmp_path, "3:cpu:/elsewhere\n", mounts)) == 2


def test_a_mount_point_with_a_blank(tmp_path: Path) -> None:
    proc = process(tmp_path, "0::/\n", V2.replace("{fs}", r"{fs}/my\040groups"))
    write(tmp_path / "fs" / "my groups", cpu__max="400000 100000\n")
    assert cpus.cgroup_limit(proc) == 4


@pytest.mark.parametrize("text", ["max 100000\n", "", "nonsense", "0 0\n", "-1 100000\n"])
def test_no_limit(tmp_path: Path, text: str) -> None:
    proc = process(tmp_path, "0::/\nbroken\n".replace("broken", "1:name=systemd:/"), V2)
    write(tmp_path / "fs", cpu__max=text)
    assert cpus.cgroup_limit(proc) is None


def test_no_proc(tmp_path: Path) -> None:
    assert cpus.cgroup_limit(tmp_path) is None


def test_the_affinity_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cpus, "cgroup_limit", lambda: None)
    assert cpus.available_cpus() == len(os.sched_getaffinity(0))
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(64)))
    assert cpus.available_cpus() == 64
    monkeypatch.setattr(cpus, "cgroup_limit", lambda: 1.5)
    assert cpus.available_cpus() == 1.5


@pytest.mark.parametrize(("cores", "threads"), [(0.2, 1), (1.0, 1), (1.5, 2), (2.0, 2), (64.0, 64)])
def test_whole_cpus(cores: float, threads: int) -> None:
    assert cpus.whole_cpus(cores) == threads
