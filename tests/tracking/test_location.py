from __future__ import annotations

import shlex
import sys
from pathlib import Path

import pytest

from slimexp.errors import UserError
from slimexp.tracking.location import resolve_uri


@pytest.fixture(autouse=True)
def _no_uri(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)


def test_the_default_is_a_database_in_the_start_folder(tmp_path: Path) -> None:
    location = resolve_uri(None, tmp_path)
    assert location.uri == f"sqlite:///{tmp_path}/mlflow.db"
    assert location.database == tmp_path / "mlflow.db"
    command = shlex.split(location.ui_command)
    assert command[-3:] == ["ui", "--backend-store-uri", location.uri]
    assert Path(command[0]).parent == Path(sys.executable).parent


@pytest.mark.parametrize(
    ("uri", "path"),
    [
        ("sqlite:///runs.db", "START/runs.db"),
        ("sqlite:///../runs.db", "PARENT/runs.db"),
        ("sqlite:////data/my%20runs/x.db", "/data/my runs/x.db"),
        ("sqlite:///~/x.db", "HOME/x.db"),
    ],
)
def test_sqlite_files_become_absolute(uri: str, path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/somebody")
    start = tmp_path / "start"
    expected = path.replace("START", str(start)).replace("PARENT", str(tmp_path)).replace("HOME", "/home/somebody")
    location = resolve_uri(uri, start)
    assert str(location.database) == expected
    assert location.uri == f"sqlite:///{expected}"


def test_query_of_a_sqlite_address_is_kept(tmp_path: Path) -> None:
    assert resolve_uri("sqlite:///x.db?timeout=5", tmp_path).uri == f"sqlite:///{tmp_path}/x.db?timeout=5"


def test_the_environment_is_honoured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "postgresql://me:pa@ss@db/x")
    location = resolve_uri(None, tmp_path)
    assert location.uri == "postgresql://me:pa@ss@db/x"
    assert location.display == "postgresql://me:***@db/x"
    assert location.ui_command.endswith('ui --backend-store-uri "$MLFLOW_TRACKING_URI"')
    assert resolve_uri("sqlite:///x.db", tmp_path).origin == "tracking.uri"
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "")
    assert resolve_uri("", tmp_path).origin == "the default"


def test_databricks_is_passed_on(tmp_path: Path) -> None:
    location = resolve_uri("databricks://profile", tmp_path)
    assert (location.uri, location.database, location.ui_command) == (
        "databricks://profile",
        None,
        "databricks://profile",
    )
    assert resolve_uri("databricks", tmp_path).uri == "databricks"


def test_a_servers_ui_is_its_address_without_the_password(tmp_path: Path) -> None:
    assert resolve_uri("https://u:p@host:5000/ml", tmp_path).ui_command == "https://host:5000/ml"


@pytest.mark.parametrize(
    ("uri", "message"),
    [
        ("file:./mlruns", r"tracking.uri=file:./mlruns is a folder, .*Either use .*sqlite:////.*/mlflow.db; or leave"),
        ("mlruns", r"is a folder, and MLflow no longer keeps runs in folders"),
        ("runs.db", r"is a file name, not an address. For that SQLite file set tracking.uri=sqlite:////.*/runs.db"),
        ("sqlite://runs.db", r"three slashes and then the file: sqlite:///runs.db"),
        ("sqlite:runs.db", r"three slashes and then the file: sqlite:///runs.db"),
        ("sqlite://", r"is a database in memory.*Name a file instead"),
        ("sqlite:///:memory:", r"is a database in memory"),
        ("sqlite:///a%2520b.db", r"has a '\?' or a '%' code in its path"),
        ("htp://host", r"htp: is no kind of tracking store. Use sqlite:///FILE, http"),
    ],
)
def test_wrong_addresses_are_refused_with_the_way_out(uri: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=message):
        resolve_uri(uri, tmp_path)


def test_an_old_folder_gets_the_migration_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mlruns" / "0").mkdir(parents=True)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", (tmp_path / "mlruns").as_uri())
    with pytest.raises(UserError, match=r"MLFLOW_TRACKING_URI=file:///.* is a folder") as caught:
        resolve_uri(None, tmp_path)
    command = f"mlflow migrate-filestore --source {tmp_path}/mlruns --target sqlite:///{tmp_path}/mlflow.db"
    assert command in str(caught.value)
