from __future__ import annotations

import http.server
import os
import sqlite3
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import IO

import pytest
import sqlalchemy
from sqlalchemy import orm

from slimexp.errors import UserError
from slimexp.tracking import mlflow_store
from slimexp.tracking.location import resolve_uri
from slimexp.tracking.mlflow_store import StoreUnavailableError, cause_of, is_refusal, open_store


@pytest.fixture(autouse=True)
def _no_uri(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)


def test_a_lock_file_of_another_user_will_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def open_as_another_user(name: str, mode: str) -> IO[bytes]:
        if mode != "rb":
            raise PermissionError(13, "Permission denied")
        return open(name, mode)

    (tmp_path / "mlflow.db.lock").touch()
    monkeypatch.setattr(mlflow_store, "open", open_as_another_user, raising=False)
    monkeypatch.setattr(mlflow_store, "_LOCK_SECS", 0.2)
    lock = tmp_path / "mlflow.db"
    held = pytest.raises(StoreUnavailableError, match=r"another process has held .*mlflow.db.lock for 0.2 s")
    with mlflow_store._locked(lock), held, mlflow_store._locked(lock):
        raise AssertionError("Locked twice.")


class _NotMlflow(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(self.server.status)  # type: ignore[attr-defined]
        self.end_headers()
        self.wfile.write(b"<html>hello</html>")

    def log_message(self, *args: object) -> None:
        pass


@pytest.mark.parametrize("status", [200, 401, 404, 500])
def test_a_server_that_is_not_mlflow(status: int, tmp_path: Path) -> None:
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), _NotMlflow) as server:
        server.status = status  # type: ignore[attr-defined]
        threading.Thread(target=server.serve_forever, daemon=True).start()
        location = resolve_uri(f"http://127.0.0.1:{server.server_port}", tmp_path)
        began = time.monotonic()
        with pytest.raises(StoreUnavailableError) as caught:
            open_store(location, "x")
        server.shutdown()
    assert time.monotonic() - began < 60  # MLflow alone would take 247 s.
    assert "<html>hello" in str(caught.value) or "500" in str(caught.value)


def test_opening_makes_the_experiment_beside_the_database(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    work = tmp_path / "work"
    work.mkdir()
    monkeypatch.chdir(work)
    folder = tmp_path / "runs é中 #1"
    location = resolve_uri(f"sqlite:///{folder}/mlflow.db", work)
    store = open_store(location, "photos é中")
    again = open_store(location, "photos é中")
    assert store.experiment_id == again.experiment_id
    for experiment in store.client.search_experiments():
        # MLflow's own "Default" too, or its runs would make a folder `mlruns` wherever one happens to be.
        assert experiment.artifact_location.startswith(str(folder / "mlflow-artifacts")), experiment
    assert sorted(os.listdir(folder)) == ["mlflow.db", "mlflow.db.lock"]
    assert os.listdir(work) == []


def test_a_deleted_experiment_is_an_error(tmp_path: Path) -> None:
    location = resolve_uri(None, tmp_path)
    store = open_store(location, "old")
    store.client.delete_experiment(store.experiment_id)
    with pytest.raises(
        UserError, match=r"tracking.experiment=old was deleted .*experiments restore --experiment-id 1;"
    ):
        open_store(location, "old")
    with pytest.raises(UserError, match=r"tracking.experiment is empty"):
        open_store(location, " ")


def test_what_is_no_database_is_refused_at_once(tmp_path: Path) -> None:
    (tmp_path / "mlflow.db").write_text("not a database, but long enough to look at " * 20, encoding="utf-8")
    began = time.monotonic()
    with pytest.raises(UserError, match="is not a SQLite database"):
        open_store(resolve_uri(None, tmp_path), "x")
    (tmp_path / "folder.db").mkdir()
    with pytest.raises(UserError, match="cannot be opened for writing: unable to open database file"):
        open_store(resolve_uri("sqlite:///folder.db", tmp_path), "x")
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match=r"cannot be made: the folder .*/file is not writable"):
        open_store(resolve_uri("sqlite:///file/x.db", tmp_path), "x")
    assert time.monotonic() - began < 5


def test_a_store_of_another_version_names_the_upgrade(tmp_path: Path) -> None:
    location = resolve_uri(None, tmp_path)
    open_store(location, "x")
    with sqlite3.connect(tmp_path / "mlflow.db") as connection:
        connection.execute("UPDATE alembic_version SET version_num = 'feedc0ffee00'")
    connection.close()
    other = tmp_path / "other.db"
    os.rename(tmp_path / "mlflow.db", other)  # MLflow keeps open stores by their address.
    with pytest.raises(UserError, match=r"written by another version of MLflow .*feedc0ffee00.*mlflow db upgrade"):
        open_store(resolve_uri(f"sqlite:///{other}", tmp_path), "x")


def test_a_locked_database_is_unavailable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mlflow_store, "_BUSY_SECS", 0.2)
    holder = sqlite3.connect(tmp_path / "mlflow.db", isolation_level=None)
    holder.execute("BEGIN EXCLUSIVE")
    with pytest.raises(StoreUnavailableError, match="another process has locked"):
        open_store(resolve_uri(None, tmp_path), "x")
    holder.close()


@pytest.mark.parametrize("scheme", ["http", "postgresql"])
def test_nothing_listening_is_noticed_in_seconds(scheme: str, tmp_path: Path) -> None:
    began = time.monotonic()
    with pytest.raises(StoreUnavailableError, match="refused"):
        open_store(resolve_uri(f"{scheme}://127.0.0.1:9", tmp_path), "x")
    assert time.monotonic() - began < 5


@pytest.mark.parametrize("uri", ["http://", "postgresql://host:port/x"])
def test_an_address_that_is_none(uri: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="is no valid address"):
        open_store(resolve_uri(uri, tmp_path), "x")


def test_a_missing_driver_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mlflow_store, "_check_port", lambda location: None)
    with pytest.raises(UserError, match=r"needs a Python package that is missing.*psycopg2"):
        open_store(resolve_uri("postgresql+psycopg2://127.0.0.1:9/x", tmp_path), "x")


def open_at_once(folder: Path, processes: int) -> list[subprocess.Popen[str]]:
    code = (
        "import sys; from pathlib import Path\n"
        "from slimexp.tracking.location import resolve_uri\n"
        "from slimexp.tracking.mlflow_store import open_store\n"
        "store = open_store(resolve_uri(None, Path(sys.argv[1])), 'sweep')\n"
        "print(store.client.create_run(store.experiment_id).info.experiment_id)\n"
    )
    command = [sys.executable, "-c", code, str(folder)]
    root = Path(__file__).resolve().parents[2]
    return [
        subprocess.Popen(command, cwd=root, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for _ in range(processes)
    ]


@pytest.mark.parametrize("processes", [2, pytest.param(6, marks=pytest.mark.slow)])
def test_processes_may_start_at_once_on_a_fresh_store(processes: int, tmp_path: Path) -> None:
    results = [process.communicate(timeout=120) for process in open_at_once(tmp_path, processes)]
    assert results == [("1\n", "")] * processes


def test_cause_of_is_one_short_line_without_secrets() -> None:
    assert cause_of(RuntimeError("bad http://u:p@h\nmore")) == "bad http://u:***@h"
    assert cause_of(RuntimeError("Max retries (Caused by X('[Errno 111] Connection refused'))")) == (
        "[Errno 111] Connection refused"
    )
    assert cause_of(KeyError()) == "KeyError"
    assert len(cause_of(RuntimeError("x" * 1000))) == 300
    assert not is_refusal(RuntimeError("x"))


def test_cause_of_names_the_full_disk() -> None:
    registry = orm.registry()
    table = sqlalchemy.Table(
        "texts",
        registry.metadata,
        sqlalchemy.Column("key", sqlalchemy.Integer, primary_key=True),
        sqlalchemy.Column("text", sqlalchemy.String),
    )

    class Text:
        def __init__(self, text: str) -> None:
            self.text = text

    registry.map_imperatively(Text, table)
    engine = sqlalchemy.create_engine("sqlite://")
    registry.metadata.create_all(engine)
    with orm.Session(engine) as session:
        session.execute(sqlalchemy.text("PRAGMA max_page_count = 4"))
        session.add(Text("x" * 100_000))
        with pytest.raises(sqlalchemy.exc.OperationalError, match="Query-invoked autoflush") as caught:
            session.query(Text).all()
    engine.dispose()
    assert cause_of(caught.value) == "(sqlite3.OperationalError) database or disk is full"
