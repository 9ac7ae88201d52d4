from __future__ import annotations

import contextlib
import random
import shutil
import sqlite3
from pathlib import Path
from typing import Any

import mlflow
import pytest
from mlflow.entities import Metric

from slimexp.tracking.location import resolve_uri
from slimexp.tracking.mlflow_store import open_store
from slimexp.tracking.sqlite_metrics import Point, RunDeletedError, SqliteMetrics


@pytest.fixture
def path(store: str) -> Path:
    return Path(store.removeprefix("sqlite:///"))


@pytest.fixture
def client(store: str, path: Path) -> mlflow.MlflowClient:
    return open_store(resolve_uri(store, path.parent), "tests").client


def new_run(client: mlflow.MlflowClient) -> str:
    return client.create_run(client.get_experiment_by_name("tests").experiment_id).info.run_id


def rows(path: Path, table: str, run_id: str) -> list[tuple[Any, ...]]:
    with contextlib.closing(sqlite3.connect(path)) as connection:
        return connection.execute(
            f"SELECT key, value, timestamp, step, is_nan FROM {table} WHERE run_uuid = ? ORDER BY 1, 4, 3, 2", (run_id,)
        ).fetchall()


def test_the_tables_come_out_as_by_mlflow(client: mlflow.MlflowClient, path: Path) -> None:
    draw = random.Random(0)
    # Steps out of order, a step twice, one point twice.
    points = [Point(f"m/{i % 5}", draw.choice([0.5, -1.0, 2]), 1000 + i % 7, draw.randrange(20)) for i in range(300)]
    points += points[:3]
    by_mlflow, by_us = new_run(client), new_run(client)
    metrics = SqliteMetrics.open(path)
    assert metrics is not None
    for start in (0, 150):
        part = points[start : start + 160]  # Some of them twice.
        client.log_batch(by_mlflow, metrics=[Metric(p.key, p.value, p.time_ms, p.step) for p in part])
        metrics.write(by_us, part)
    metrics.close()
    for table in ("metrics", "latest_metrics"):
        assert rows(path, table, by_us) == rows(path, table, by_mlflow) != []
    assert client.get_run(by_us).data.metrics == client.get_run(by_mlflow).data.metrics
    assert client.get_metric_history(by_us, "m/3")[0].step == client.get_metric_history(by_mlflow, "m/3")[0].step


def test_a_deleted_run_gets_nothing(client: mlflow.MlflowClient, path: Path) -> None:
    run_id = new_run(client)
    client.delete_run(run_id)
    metrics = SqliteMetrics.open(path)
    assert metrics is not None
    for gone in (run_id, "none"):
        with pytest.raises(RunDeletedError, match=f"run {gone} was deleted"):
            metrics.write(gone, [Point("a", 1.0, 1, 1)])
    metrics.close()
    assert rows(path, "metrics", run_id) == []


def test_a_database_that_looks_otherwise_goes_through_mlflow(database: Path, tmp_path: Path) -> None:
    assert SqliteMetrics.open(tmp_path / "none.db") is None
    assert not (tmp_path / "none.db").exists()
    (tmp_path / "text.db").write_text("no database" * 100, encoding="utf-8")
    assert SqliteMetrics.open(tmp_path / "text.db") is None
    for number, change in enumerate(
        (
            "ALTER TABLE metrics ADD COLUMN more TEXT",
            "ALTER TABLE latest_metrics RENAME COLUMN step TO at",
            "CREATE TRIGGER t AFTER INSERT ON metrics BEGIN SELECT 1; END",
        )
    ):
        copy = tmp_path / f"{number}.db"
        shutil.copy(database, copy)
        with contextlib.closing(sqlite3.connect(copy)) as connection:
            connection.execute(change)
            connection.commit()
        assert SqliteMetrics.open(copy) is None
