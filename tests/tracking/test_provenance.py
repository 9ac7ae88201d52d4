from __future__ import annotations

import json
import subprocess
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
    }


def test_an_edited_file_makes_it_dirty_and_shows_in_the_diff(repository: Path) -> None:
    (repository / "package" / "__init__.py").write_text("x = 2  # http://u:pw@h\n", encoding="utf-8")
    state = provenance.describe_repository(repository)
    assert state is not None
    assert state["dirty"] is True
    assert "-x = 1\n+x = 2  # http://u:***@h\n" in state["diff"]


def test_a_long_diff_is_cut(repository: Path) -> None:
    (repository / "package" / "__init__.py").write_text("y\n" * 300_000, encoding="utf-8")
    state = provenance.describe_repository(repository)
    assert state is not None
    assert len(state["diff"]) < 201_000
    assert state["diff"].endswith("characters in all\n")


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
