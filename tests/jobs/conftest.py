"""Runs jobs in this process, on small data, each with a tracking store and a run folder of its own."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import mlflow
import numpy as np
import pytest
import tensorflow as tf
from hydra import compose, initialize_config_dir
from hydra.core.config_store import ConfigStore
from matplotlib.backends.backend_agg import FigureCanvasAgg
from PIL import Image
from tensorflow.python.framework import config as tf_config

from slimexp.config import CONFIG_DIR, Config
from slimexp.dataset import load_digits
from slimexp.jobs import train
from slimexp.tracking.location import resolve_uri
from slimexp.tracking.mlflow_store import open_store
from slimexp.validation import validate

TINY = ["trainer.max_steps=4", "trainer.eval_every_steps=0", "pipeline.batch_size=8", "trainer.log_every_steps=1"]


@pytest.fixture(autouse=True)
def _determinism() -> Iterator[None]:
    """Switches TensorFlow's deterministic mode off again: a job switches it on for its whole process."""
    yield
    tf_config.disable_op_determinism()
    tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": False})


_DRAW = FigureCanvasAgg.print_png


def _leave_blank(canvas: FigureCanvasAgg, path: Path) -> None:
    Image.new("L", (8, 8)).save(path, "PNG")


@pytest.fixture(scope="module", autouse=True)
def _blank_figures() -> Iterator[None]:
    """Leaves the figures' files blank, as to lay figures out takes longer than to train the small networks here."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(FigureCanvasAgg, "print_png", _leave_blank)
        yield


@pytest.fixture
def drawn_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    """Has figures drawn, for tests that look at them."""
    monkeypatch.setattr(FigureCanvasAgg, "print_png", _DRAW)


@pytest.fixture(scope="session")
def cache_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache folder with the digits in it."""
    folder = tmp_path_factory.mktemp("cache")
    load_digits(cache_dir=str(folder))
    return folder


@pytest.fixture(scope="session")
def empty_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tracking database without a run; making one takes seconds, copying it none."""
    folder = tmp_path_factory.mktemp("store")
    open_store(resolve_uri(f"sqlite:///{folder}/mlflow.db", folder), "none")
    return folder / "mlflow.db"


class Job:
    """Composes and runs training jobs below one folder."""

    def __init__(self, folder: Path, cache_dir: Path, empty_store: Path) -> None:
        self.folder = folder
        self.run_dir = folder / "run"
        self.uri = f"sqlite:///{folder}/mlflow.db"
        self.cache_dir = cache_dir
        self._empty_store = empty_store

    def config(self, *overrides: str) -> Config:
        ConfigStore.instance().store(name="schema", node=Config)
        self.prepare_store()
        fixed = [f"run_dir={self.run_dir}", f"tracking.uri={self.uri}"]
        if not any(override.startswith("dataset=") for override in overrides):
            fixed.append(f"dataset.cache_dir={self.cache_dir}")
        with initialize_config_dir(str(CONFIG_DIR), version_base="1.3"):
            composed = compose("config", [*fixed, *overrides])
        return validate(composed, start_dir=self.folder)

    def prepare_store(self) -> None:
        """Puts an empty database where the jobs will look for one."""
        database = Path(self.uri.removeprefix("sqlite:///"))
        if not database.exists():
            shutil.copy(self._empty_store, database)

    def train(self, *overrides: str) -> None:
        config = self.config(*overrides)
        Path(config.run_dir).mkdir(parents=True, exist_ok=True)
        train.run(config, list(overrides))

    def runs(self) -> list[mlflow.entities.Run]:
        client = mlflow.MlflowClient(self.uri)
        experiments = [experiment.experiment_id for experiment in client.search_experiments()]
        return client.search_runs(experiments, order_by=["attributes.start_time"])

    def history(self, metric: str) -> list[tuple[int, float]]:
        (run,) = self.runs()
        return [(m.step, m.value) for m in mlflow.MlflowClient(self.uri).get_metric_history(run.info.run_id, metric)]


@pytest.fixture
def job(tmp_path: Path, cache_dir: Path, empty_store: Path, monkeypatch: pytest.MonkeyPatch) -> Job:
    """A folder to run jobs in."""
    monkeypatch.chdir(tmp_path)
    return Job(tmp_path, cache_dir, empty_store)


@pytest.fixture
def photos(tmp_path: Path) -> Callable[..., Path]:
    """Writes a list of `count` small photos, label = number modulo 3, and returns it; contents can be replaced."""

    def photos(count: int = 12, name: str = "train.txt", replace: dict[int, bytes | None] | None = None) -> Path:
        folder = tmp_path / "images"
        folder.mkdir(exist_ok=True)
        random = np.random.RandomState(0)
        lines = []
        for number in range(count):
            path = folder / f"{number}.jpg"
            pixels = random.randint(0, 256, [6, 8, 3]).astype(np.uint8)
            Image.fromarray(pixels).resize((40, 32)).save(path, quality=90)
            lines.append(f"images/{number}.jpg {number % 3}\n")
        for number, content in (replace or {}).items():
            path = folder / f"{number}.jpg"
            path.unlink()
            if content is not None:
                path.write_bytes(content)
        (tmp_path / name).write_text("".join(lines))
        return tmp_path / name

    return photos
