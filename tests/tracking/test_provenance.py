from __future__ import annotations

import importlib.metadata
import json
import os
import subprocess
import sys
import types
from pathlib import Path

import pytest

from slimexp.tracking import provenance


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    root = tmp_path / "code étiquettes"
    (root / "package").mkdir(parents=True)
    (root / "package" / "__init__.py").write_text("x = 1\n", encoding="utf-8")
    git(root, "init", "--quiet", "--initial-branch=trunk")
    git(root, "add", ".")
    git(root, "-c", "user.name=A", "-c", "user.email=a@example.org", "commit", "--quiet", "-m", "First")
    return root


def git(folder: Path, *arguments: str) -> str:
    done = subprocess.run(["git", "-C", str(folder), *arguments], check=True, capture_output=True, text=True)
    return done.stdout.strip()


def test_a_clean_repository(repository: Path) -> None:
    (repository / "untracked.txt").write_text("x", encoding="utf-8")
    state = provenance.describe_repository(repository / "package", tracked="__init__.py")
    assert state == {
        "root": str(repository),
        "commit": git(repository, "rev-parse", "HEAD"),
        "branch": "trunk",
        "dirty": False,
        "diff": None,
        "untracked": ["untracked.txt"],
    }


def test_an_edited_file_makes_it_dirty_and_shows_in_the_diff(repository: Path) -> None:
    (repository / "package" / "__init__.py").write_text("x = 2  # http://u:pw@h\n", encoding="utf-8")
    state = provenance.describe_repository(repository)
    assert state is not None
    assert state["dirty"] is True
    assert "-x = 1\n+x = 2  # http://u:***@h\n" in state["diff"]


def test_a_long_diff_is_cut(repository: Path) -> None:
    (repository / "package" / "__init__.py").write_text("y\n" * 400_000, encoding="utf-8")
    state = provenance.describe_repository(repository)
    assert state is not None
    assert len(state["diff"]) < 1_001_000
    assert state["diff"].endswith("\n... cut after 1000000 bytes\n")


def test_detached_and_before_the_first_commit(repository: Path, tmp_path: Path) -> None:
    git(repository, "checkout", "--quiet", "--detach")
    state = provenance.describe_repository(repository)
    assert state is not None
    assert state["branch"] is None
    fresh = tmp_path / "fresh"
    fresh.mkdir()
    git(fresh, "init", "--quiet", "--initial-branch=trunk")
    state = provenance.describe_repository(fresh)
    assert state is not None
    assert (state["commit"], state["branch"], state["dirty"]) == (None, "trunk", False)


def test_source_that_the_repository_does_not_track_is_not_its(repository: Path) -> None:
    installed = repository / "env" / "slimexp"
    installed.mkdir(parents=True)
    (installed / "__init__.py").touch()
    assert provenance.describe_repository(installed, tracked="__init__.py") is None
    assert provenance.describe_repository(installed) is not None


def test_no_repository_no_folder_no_git(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    assert provenance.describe_repository(tmp_path) is None
    assert provenance.describe_repository(tmp_path / "none") is None
    monkeypatch.setenv("PATH", str(tmp_path))
    found = provenance.collect(["x"], tmp_path)
    assert found["code"] is None
    assert "git.commit" not in provenance.tags(found)


def test_inside_a_git_hook_the_folder_still_counts(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GIT_DIR", "/nowhere")
    state = provenance.describe_repository(repository)
    assert state is not None
    assert state["root"] == str(repository)


def test_secrets_in_the_diff_are_masked(repository: Path) -> None:
    (repository / ".env").write_text("A=1\n", encoding="utf-8")
    git(repository, "add", ".")
    (repository / ".env").write_text("A=1\nexport API_TOKEN=hunter2 x\n", encoding="utf-8")
    (repository / "package" / "__init__.py").write_text(
        'password = "hunter3"\ntoken = next(tokens)\n', encoding="utf-8"
    )
    state = provenance.describe_repository(repository)
    assert state is not None
    assert "hunter" not in state["diff"]
    assert 'password = "***"' in state["diff"]
    assert "token = next(tokens)" in state["diff"]


def test_what_the_commit_lacks_is_written(repository: Path, tmp_path: Path) -> None:
    code = provenance.describe_repository(repository)
    here = {"code": code, "started_in": code}
    assert provenance.write_diffs(here, tmp_path / "out") == []
    (repository / "package" / "__init__.py").write_text("x = 2\n", encoding="utf-8")
    (repository / "new é.py").touch()
    code = provenance.describe_repository(repository)
    here = {"code": None, "started_in": code}
    (path,) = provenance.write_diffs(here, tmp_path / "out")
    assert path.name == "cwd_changes.diff"
    text = path.read_text(encoding="utf-8")
    assert text.startswith(f"# {repository} against commit {code['commit']}\n")
    assert "-x = 1\n+x = 2\n" in text
    assert text.endswith("# Not tracked by git:\n#   new é.py\n")
    (path,) = provenance.write_diffs({"code": code, "started_in": code}, tmp_path / "out")
    assert path.name == "changes.diff"
    # The same once more is the same file; another state stands beside it.
    assert provenance.write_diffs({"code": code, "started_in": code}, tmp_path / "out") == [path]
    (repository / "newer.py").touch()
    (other,) = provenance.write_diffs(
        {"code": provenance.describe_repository(repository), "started_in": None}, tmp_path / "out"
    )
    assert other.name == "changes-2.diff"


def test_the_machine_is_described(monkeypatch: pytest.MonkeyPatch) -> None:
    gpus = [types.SimpleNamespace(name="GPU:0"), types.SimpleNamespace(name="GPU:1")]
    tensorflow = types.SimpleNamespace(
        config=types.SimpleNamespace(
            list_physical_devices=lambda kind: gpus,
            experimental=types.SimpleNamespace(get_device_details=lambda gpu: {"device_name": "NVIDIA H200"}),
            threading=types.SimpleNamespace(
                get_intra_op_parallelism_threads=lambda: 3, get_inter_op_parallelism_threads=lambda: 0
            ),
        )
    )
    monkeypatch.setitem(sys.modules, "tensorflow", tensorflow)
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    monkeypatch.delenv("TF_NUM_INTEROP_THREADS", raising=False)
    found = provenance.describe_devices(1.5)
    assert found["cpu.model"]
    assert found["cpu.cores"] == f"1.5 of {os.cpu_count()}"
    assert float(found["memory.gib"]) > 0
    assert found["gpu"] == "2 x NVIDIA H200"
    assert found["threads.tensorflow"] == "3 within an operation, 1 between operations"
    assert found["env.OMP_NUM_THREADS"] == "7"
    gpus.clear()
    assert provenance.describe_devices()["gpu"] == "none"


@pytest.mark.parametrize(
    ("argv", "command"),
    [
        (["/env/bin/slimexp", "job=train"], "slimexp job=train"),
        (["/x/slimexp/__main__.py", "model=vgg16"], "python -m slimexp model=vgg16"),
        (["slimexp", "API_TOKEN=abc", "--api-token", "abc"], "slimexp 'API_TOKEN=***' --api-token '***'"),
        ([], "slimexp"),
    ],
    ids=["console script", "module", "secrets", "none"],
)
def test_the_command_is_what_was_typed(argv: list[str], command: str, tmp_path: Path) -> None:
    assert provenance.collect(argv, tmp_path)["command"] == command


def test_a_wheel_from_a_repository_has_its_commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    installed = types.SimpleNamespace(
        version="1.0",
        read_text=lambda name: json.dumps(
            {"url": "https://h/r", "vcs_info": {"vcs": "git", "commit_id": "feedc0ffee"}}
        ),
    )
    monkeypatch.setattr(importlib.metadata, "distribution", lambda name: installed)
    monkeypatch.setattr(provenance, "describe_repository", lambda folder, tracked=None: None)
    found = provenance.collect(["slimexp"], tmp_path)
    tags = provenance.tags(found)
    assert (tags["git.commit"], tags["mlflow.source.git.commit"]) == ("feedc0ffee", "feedc0ffee")
    assert "git.dirty" not in tags
    assert provenance.write_diffs(found, tmp_path) == []
    installed.read_text = lambda name: None  # type: ignore[assignment, return-value]
    assert provenance.collect(["slimexp"], tmp_path)["code"] is None


def test_collect_and_tags(repository: Path) -> None:
    found = provenance.collect(["slimexp", "tracking.uri=http://a:b@c", "job=train"], repository)
    json.dumps(found)
    assert found["command"] == "slimexp 'tracking.uri=http://a:***@c' job=train"
    assert {"tensorflow", "mlflow", "hydra-core", "numpy", "slimexp"} <= set(found["versions"])
    tags = provenance.tags(found)
    assert tags["cwd.git.branch"] == "trunk"
    assert tags["cwd.git.dirty"] == "false"
    assert tags["version.numpy"] == found["versions"]["numpy"]
    assert tags["mlflow.source.type"] == "LOCAL"
    assert all(isinstance(value, str) for value in tags.values())
