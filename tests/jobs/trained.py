"""Runs that were trained on pictures of every format, and exported: made once for the tests that look at them."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np

from slimexp.jobs import build, export, predict
from slimexp.training.checkpoints import Checkpoints
from tests.export.pictures import encoded, orientation, smooth, with_alpha
from tests.jobs.conftest import Job

# Labels of multi-label lists, by the number of the picture modulo 3.
_MULTI = ("-1:* 1:0,2", "-1:* 1:1 0:0", "-1:* 0:2 1:3")
NET = [
    "model=cifarnet",
    "model.network._target_=tests.export.small_net.small_net",
    "preprocessing=vgg",
    "model.image_size=16",
    "pipeline.decoder=tensorflow",
    "pipeline.threads=2",
    "pipeline.readers=2",
    "tracking.tensorboard=false",
]


def write_pictures(folder: Path) -> list[Path]:
    """Writes pictures as they are found in the wild; the last is of a format that no graph decodes."""
    image = smooth(40, 50)
    files = {
        "0 a.jpg": encoded(smooth(40, 30, seed=1), "JPEG"),
        "1.jpg": encoded(smooth(90, 120, seed=2), "JPEG", exif=orientation(6)),
        "2.png": encoded(with_alpha(image), "PNG"),
        "3é.webp": encoded(smooth(33, 33, seed=3), "WEBP"),
        "4.gif": encoded(image.convert("P"), "GIF"),
        "5.bmp": encoded(smooth(20, 40, seed=4), "BMP"),
        "6.jpg": encoded(smooth(20, 20, seed=5).convert("CMYK"), "JPEG"),
        "7.jpg": encoded(smooth(25, 25, seed=6).convert("L"), "JPEG"),
        "8.tif": encoded(smooth(30, 30, seed=7), "TIFF"),
    }
    folder.mkdir(parents=True)
    for name, content in files.items():
        (folder / name).write_bytes(content)
    return [folder / name for name in files]


def write_lists(folder: Path, paths: list[Path], task: str) -> list[str]:
    """Writes the list file; returns the overrides that make it a dataset."""
    labels = ["sea", "wood", "night"] if task == "single" else _MULTI
    lines = [f'"{path.name}" {labels[number % 3]}\n' for number, path in enumerate(paths)]
    (folder / "list.txt").write_text("".join(lines), encoding="utf-8")
    return [
        "dataset=listfile",
        f"dataset.train_list={folder / 'list.txt'}",
        f"dataset.eval_list={folder / 'list.txt'}",
        f"dataset.image_dir={paths[0].parent}",
        f"dataset.task={task}",
        f"dataset.class_names={'[sea,wood,night]' if task == 'single' else '[sun,rain,fog,snow]'}",
    ]


class Trained:
    """A run, what it was trained on, and what is made of it."""

    def __init__(self, folder: Path, cache_dir: Path, empty_store: Path, task: str, *, is_trained: bool = True) -> None:
        self.job = Job(folder, cache_dir, empty_store)
        self.run = self.job.run_dir
        self.task = task
        self.paths = write_pictures(folder / "images")
        self.overrides = [*NET, *write_lists(folder, self.paths, task)]
        if not is_trained:
            self._save_initial_values()
            return
        steps = ["trainer.max_steps=6", "pipeline.batch_size=4", "trainer.eval_every_steps=0", "evaluation.top_k=4"]
        self.job.train(*self.overrides, *steps, "learning_rate=fixed", "learning_rate.initial=0.01", "tracking=none")

    def _save_initial_values(self) -> None:
        """Writes a checkpoint as after six steps."""
        count = 3 if self.task == "single" else 4
        classifier = build.classifier(self.job.config(*self.overrides), num_classes=count, image_size=16)
        classifier.build()
        values = {name: variable.numpy() for name, variable in classifier.store.variables.items()}
        Checkpoints(self.run / "checkpoints").save(6, {**values, "global_step": np.int64(6)})

    def config(self, job: str, *overrides: str):
        return self.job.config(*self.overrides, f"job={job}", *overrides)

    def export(self, *overrides: str) -> Path:
        config = self.config(
            "export", f"run_dir={self.run / 'export'}", f"export.checkpoint={self.run}", "tracking=none", *overrides
        )
        export.run(config, [])
        return Path(config.export.dir or config.run_dir)

    def predict(self, model: object, source: object, *overrides: str) -> list[dict[str, str]]:
        """Returns the rows of the file that predictions are written to."""
        folder = self.job.folder / "predict"
        predict.run(
            self.config("predict", f"run_dir={folder}", f"predict.model={model}", f"predict.input={source}", *overrides)
        )
        return rows(folder / "predictions.csv")


def rows(path: Path) -> list[dict[str, str]]:
    with open(path, encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def scores(found: list[dict[str, str]]) -> dict[str, dict[str, float]]:
    """Returns file name -> class -> score, of a table with the columns `class_1`, `score_1` and so on."""
    table = {}
    for row in found:
        columns = [name for name in row if name.startswith("class_") and row[name]]
        table[Path(row["path"]).name] = {row[name]: float(row[name.replace("class", "score")]) for name in columns}
    return table


def assert_same(first: dict[str, dict[str, float]], second: dict[str, dict[str, float]]) -> None:
    """Checks that two tables of scores agree to 1e-4."""
    assert first.keys() == second.keys()
    for name, row in first.items():
        assert row.keys() == second[name].keys()
        np.testing.assert_allclose(list(row.values()), [second[name][key] for key in row], atol=1e-4, err_msg=name)
