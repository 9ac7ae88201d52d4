from __future__ import annotations

import contextlib
import http.server
import os
import shutil
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
    location = resolve_uri(f"sqlite:///{lock}", tmp_path)
    held = pytest.raises(StoreUnavailableError, match=r"another process has held .*mlflow.db.lock for 0.2 s")
    with mlflow_store._locked(location, lock), held, mlflow_store._locked(location, lock):
        raise AssertionError("Locked twice.")


class _NotMlflow(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(self.server.status)  # type: ignore[attr-defined]
        self.end_headers()
        self.wfile.write(self.server.body)  # type: ignore[attr-defined]

    do_POST = do_GET  # noqa: N815 (http.server's name)

    def log_message(self, *args: object) -> None:
        pass


@pytest.mark.parametrize(
    ("status", "error", "message"),
    [
        (0, StoreUnavailableError, "what answers there is no MLflow server, or not at this path .it gives no ids"),
        (200, StoreUnavailableError, "what answers there is no MLflow server, or not at this path"),
        (401, UserError, r"tracking.uri=http://u:\*\*\*@127.0.0.1:\d+ refuses the login .HTTP 401.*TRACKING_PASSWORD"),
        (404, StoreUnavailableError, "<html>hello|501"),
        (500, StoreUnavailableError, "^the server is there, but answers with an error, HTTP 500$"),
    ],
    ids=["empty answers", "200", "401", "404", "500"],
)
def test_a_server_that_is_not_mlflow(status: int, error: type[Exception], message: str, tmp_path: Path) -> None:
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), _NotMlflow) as server:
        server.status = status or 200  # type: ignore[attr-defined]
        server.body = b"<html>hello</html>" if status else b"{}"  # type: ignore[attr-defined]
        threading.Thread(target=server.serve_forever, daemon=True).start()
        location = resolve_uri(f"http://u:p4ss@127.0.0.1:{server.server_port}", tmp_path)
        began = time.monotonic()
        with pytest.raises(error, match=message) as caught:
            open_store(location, "x")
        server.shutdown()
    assert time.monotonic() - began < 60  # MLflow alone would take 247 s.
    assert "p4ss" not in str(caught.value)


def test_processes_may_open_a_store_at_once_that_was_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are forked from one that has imported MLflow, so that all six come to the database at the same moment."""
    code = (
        "import os, sys, time; from pathlib import Path\n"
        "import mlflow.store.tracking.sqlalchemy_store\n"
        "from slimexp.tracking.location import resolve_uri\n"
        "from slimexp.tracking.mlflow_store import open_store\n"
        "start = time.monotonic() + 0.2\n"
        "for _ in range(6):\n"
        "    if os.fork() == 0:\n"
        "        time.sleep(max(0, start - time.monotonic()))\n"
        "        store = open_store(resolve_uri(sys.argv[1], Path()), 'photos é中')\n"
        "        print(store.client.create_run(store.experiment_id).info.experiment_id, flush=True)\n"
        "        os._exit(0)\n"
        "print([os.waitpid(-1, 0)[1] for _ in range(6)])\n"
    )
    work, folder = tmp_path / "work", tmp_path / "runs é中 #1"
    work.mkdir()
    location = resolve_uri(f"sqlite:///{folder}/mlflow.db", work)
    root = Path(__file__).resolve().parents[2]
    done = subprocess.run(
        [sys.executable, "-c", code, location.uri],
        cwd=work,
        env={**os.environ, "PYTHONPATH": str(root)},
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert (done.stdout, done.stderr) == ("1\n" * 6 + "[0, 0, 0, 0, 0, 0]\n", "")

    # All of it lies beside the database.
    monkeypatch.chdir(work)
    for experiment in open_store(location, "photos é中").client.search_experiments():
        # MLflow's own "Default" too, or its runs would make a folder `mlruns` wherever one happens to be.
        assert experiment.artifact_location.startswith(str(folder / "mlflow-artifacts")), experiment
    assert sorted(os.listdir(folder)) == ["mlflow.db", "mlflow.db.lock"]
    assert os.listdir(work) == []


def test_a_deleted_experiment_is_an_error(database: Path, tmp_path: Path) -> None:
    shutil.copy(database, tmp_path / "mlflow.db")
    location = resolve_uri(None, tmp_path)
    store = open_store(location, "old")
    store.client.delete_experiment(store.experiment_id)
    with pytest.raises(
        UserError, match=r"tracking.experiment=old was deleted .*experiments restore --experiment-id 2;"
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


def test_a_store_of_another_version_names_the_upgrade(
    database: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = tmp_path / "other.db"
    shutil.copy(database, other)
    with contextlib.closing(sqlite3.connect(other)) as connection:
        connection.execute("UPDATE alembic_version SET version_num = 'feedc0ffee00'")
        connection.commit()
    with pytest.raises(
        UserError, match=r"written by a newer version of MLflow: its revision feedc0ffee00 is unknown to .* mlflow 3"
    ):
        open_store(resolve_uri(f"sqlite:///{other}", tmp_path), "x")
    monkeypatch.setattr(mlflow_store, "_is_known_revision", lambda revision: True)
    with pytest.raises(UserError, match=r"written by another version of MLflow .*feedc0ffee00.*mlflow db upgrade"):
        open_store(resolve_uri(f"sqlite:///{other}", tmp_path), "x")
    monkeypatch.undo()
    assert mlflow_store._is_known_revision("0584bdc529eb")


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="needs a folder in which nobody can make a file")
def test_a_database_where_no_file_can_be_made(tmp_path: Path) -> None:
    message = (
        r"The tracking database /proc/x.db \(from tracking.uri\) cannot be made.*: "
        r".*Set tracking.uri=sqlite:////WRITABLE/FOLDER/mlflow.db, or tracking=none."
    )
    with pytest.raises(UserError, match=message):
        open_store(resolve_uri("sqlite:////proc/x.db", tmp_path), "x")


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
