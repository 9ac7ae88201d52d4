"""Real training runs: a server that is there or not, and the five ends of a process."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import mlflow
import pytest

from slimexp.tracking import read_metrics, sync
from tests.tracking.conftest import Proxy, Server, free_port, wait_for

pytestmark = pytest.mark.slow

STEPS = 200
# Fewer images a step than by default: what is looked at is the tracking.
_TINY = [
    "pipeline.batch_size=4",
    "trainer.log_every_steps=1",
    "trainer.eval_every_steps=0",
    f"trainer.max_steps={STEPS}",
]


class Training:
    """`python -m slimexp` in a process of its own."""

    def __init__(self, folder: Path, uri: str, *overrides: str) -> None:
        self.run_dir = folder / "run"
        self.output = folder / "output.txt"
        folder.mkdir(exist_ok=True)
        root = Path(__file__).resolve().parents[2]
        fixed = [f"run_dir={self.run_dir}", f"tracking.uri={uri}", "tracking.experiment=tests"]
        with open(self.output, "wb") as output:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "slimexp", *_TINY, *fixed, *overrides],
                cwd=root,
                env={**os.environ, "PYTHONPATH": f"{root}:{folder}"},
                stdout=output,
                stderr=subprocess.STDOUT,
            )

    def step(self) -> int:
        path = self.run_dir / "metrics.jsonl"
        return max((row.step for row in read_metrics(path)), default=0) if path.exists() else 0

    def wait_for_step(self, step: int) -> None:
        wait_for(lambda: self.step() >= step or self.process.poll() is not None, 200)

    def end(self) -> int:
        return self.process.wait(200)

    def said(self) -> str:
        return self.output.read_text(encoding="utf-8", errors="replace")

    def record(self) -> dict[str, Any]:
        return json.loads((self.run_dir / "run.json").read_text(encoding="utf-8"))


def assert_whole(server: Server, training: Training) -> None:
    client = mlflow.MlflowClient(tracking_uri=server.uri)
    run_id = training.record()["run_id"]
    history = client.get_metric_history(run_id, "train/loss")
    assert [m.step for m in history] == list(range(1, STEPS + 1))
    run = client.get_run(run_id)
    assert run.info.status == "FINISHED"
    assert len(run.inputs.dataset_inputs) == 2
    assert {"eval/loss", "system/memory_used_bytes"} <= set(run.data.metrics)
    assert {"cpu.model", "command", "slimexp.key"} <= set(run.data.tags)
    assert "figures" in {f.path for f in client.list_artifacts(run_id)}


def test_a_server_that_is_killed_and_comes_back(server: Server, tmp_path: Path) -> None:
    training = Training(tmp_path, server.uri)
    training.wait_for_step(50)
    server.kill()
    training.wait_for_step(150)
    server.start()
    assert training.end() == 0, training.said()
    assert_whole(server, training)


def test_a_server_that_comes_up_during_the_run(server: Server, tmp_path: Path) -> None:
    port = free_port()
    training = Training(tmp_path, f"http://127.0.0.1:{port}")
    training.wait_for_step(50)
    proxy = Proxy(server.port, port=port)
    assert training.end() == 0, training.said()
    proxy.close()
    assert_whole(server, training)


def test_a_server_that_is_down_for_good(server: Server, tmp_path: Path) -> None:
    training = Training(tmp_path, f"http://127.0.0.1:{free_port()}")
    assert training.end() == 0
    assert "metric values are only in" in training.said()
    assert f"-m slimexp.tracking.sync {training.run_dir}" in training.said()
    assert training.record()["status"] == "FINISHED"
    assert sync.main([str(training.run_dir), "--tracking-uri", server.uri]) == 0
    assert_whole(server, training)


def test_a_slow_server(server: Server, tmp_path: Path) -> None:
    proxy = Proxy(server.port, delay_secs=1.0)
    training = Training(tmp_path, f"http://127.0.0.1:{proxy.port}")
    assert training.end() == 0, training.said()
    proxy.close()
    assert_whole(server, training)


def test_five_ends(store: str, tmp_path: Path) -> None:
    (tmp_path / "ends.py").write_text(
        "import sys\nfrom slimexp.nets.lenet import lenet\n"
        "def leave(images, num_classes, is_training, **keys):\n    sys.exit(1)\n"
        "def fail(images, num_classes, is_training, **keys):\n    raise RuntimeError('mine')\n",
        encoding="utf-8",
    )
    expected = {
        "fail": ("FAILED", "RuntimeError: mine"),
        "leave": ("FAILED", "SystemExit: 1"),
        "sigint": ("KILLED", "stopped by SIGINT"),
        "sigterm": ("KILLED", "stopped by SIGTERM"),
        "sigkill": ("KILLED", "ended without a word."),
    }
    codes = {}
    for name in expected:
        overrides = [f"tracking.run_name={name}", "trainer.max_steps=100000"]
        if name in ("fail", "leave"):
            overrides.append(f"model.network._target_=ends.{name}")
        folder = tmp_path / name
        folder.mkdir()
        (folder / "ends.py").write_bytes((tmp_path / "ends.py").read_bytes())
        training = Training(folder, store, *overrides)
        if name.startswith("sig"):
            training.wait_for_step(3)
            training.process.send_signal(getattr(signal, name.upper()))
        codes[name] = training.end()
    assert codes == {"fail": 1, "leave": 1, "sigint": 130, "sigterm": 143, "sigkill": -9}
    # What was killed is told by the next start.
    assert Training(tmp_path / "next", store, "trainer.max_steps=2").end() == 0
    client = mlflow.MlflowClient(tracking_uri=store)
    runs = client.search_runs([client.get_experiment_by_name("tests").experiment_id])
    ends = {run.info.run_name: (run.info.status, run.data.tags.get("status.message", "")) for run in runs}
    for name, (status, message) in expected.items():
        assert ends[name][0] == status, (name, ends[name])
        assert message in ends[name][1]
