"""The command line, as real processes: help, configuration, typos, exit codes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
import zipfile
from pathlib import Path

import pytest


def slimexp(*arguments: str, cwd: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "slimexp", *arguments],
        cwd=cwd,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=240,
    )


def test_help_shows_groups_and_five_commands(tmp_path):
    done = slimexp("--help", cwd=tmp_path)
    assert done.returncode == 0
    assert done.stdout.count("python -m slimexp") == 5
    for group in ("dataset: cifar10, digits, flowers", "model: alexnet, cifarnet", "optimizer: adadelta"):
        assert group in done.stdout


def test_cfg_prints_the_configuration(tmp_path):
    done = slimexp("--cfg", "job", "model=vgg16", "pipeline.threads=8", cwd=tmp_path)
    assert done.returncode == 0
    assert "threads: 8" in done.stdout
    assert "slimexp.nets.vgg.vgg_16" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["pipeline.thread=8"], "pipeline.thread: there is no such key; the nearest is pipeline.threads."),
        (["+pipeline.thread=8"], "pipeline.thread=8: there is no such key; the nearest is pipeline.threads."),
        (["modle=vgg16"], "modle: there is no such key; the nearest is model."),
        (["model=vg16"], "model=vg16: there is no such option; the nearest is vgg16, of alexnet,"),
        (["dataset.eval_fraction=0.1"], "dataset.eval_fraction: a key of dataset=image_folder, which was not chosen."),
        (["optimizer.l1=1"], "optimizer.l1: a key of optimizer=ftrl, which was not chosen."),
        (["model.network.width=4"], "is added with a plus: +model.network.width="),
        (["model=xyz"], "model=xyz: there is no such option; there are alexnet,"),
        (["pipeline.threads=abc"], "pipeline.threads=abc: must be a whole number, or auto."),
        (["pipeline.batch_size=abc"], "pipeline.batch_size=abc: must be a whole number."),
        (["seed=null"], "seed=null: must be a whole number; null is not possible. Leave it out for its default."),
        (["dataset=null"], "dataset=null: must name an option of its group, e.g. model=vgg16"),
        (["restore.checkpoint=no.ckpt"], "/no.ckpt: there is no such checkpoint."),
        (["dry_run=true", "restore.checkpoint=no.ckpt"], "/no.ckpt: there is no such checkpoint."),
        (["pipeline.threads=1,2"], "To sweep over it, add --multirun"),
        (["dataset.root=my photos~é"], "quoted for Hydra, and once more for the shell"),
        (["dataset=listfile"], "dataset.train_list not set"),
        (["seed=${nope}"], "seed: Interpolation key 'nope' not found"),
        (["pipeline=tuned"], "pipeline=tuned: there is no such option yet: job=benchmark, alone or in a sweep"),
        (["job=tain"], "job=tain: there is no such option; the nearest is train"),
    ],
)
def test_a_typo_ends_in_one_message_and_leaves_nothing_behind(tmp_path, arguments, message):
    done = slimexp(*arguments, cwd=tmp_path)
    assert done.returncode == 1
    assert message in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""
    assert list(tmp_path.iterdir()) == []


def test_a_traceback_comes_when_asked_for(tmp_path):
    done = slimexp("pipeline.thread=8", cwd=tmp_path, HYDRA_FULL_ERROR="1")
    assert done.returncode == 1
    assert "Traceback" in done.stderr


@pytest.mark.parametrize(
    "arguments",
    [["--cfg", "job"], ["--help"], ["+pipeline.thread=8"], ["pipeline.threads=0"], ["restore.checkpoint=no"]],
)
def test_nothing_heavy_is_imported_before_the_configuration_is_valid(tmp_path, arguments):
    script = textwrap.dedent(
        """
        import json, sys
        sys.argv = ["slimexp", *json.loads(sys.argv[1])]
        from slimexp.app import main
        try:
            main()
        except SystemExit:
            pass
        heavy = {"tensorflow", "mlflow", "matplotlib", "sklearn", "pandas"} & set(sys.modules)
        print("HEAVY", sorted(heavy))
        """
    )
    done = subprocess.run(
        [sys.executable, "-c", script, json.dumps(arguments)], cwd=tmp_path, capture_output=True, text=True, timeout=60
    )
    assert done.stdout.endswith("HEAVY []\n"), done.stdout + done.stderr


def test_a_sweep_runs_every_job_and_fails_if_one_did(tmp_path):
    small = ["trainer=debug", "tracking=none", f"output_root={tmp_path}/out", f"dataset.cache_dir={tmp_path}/cache"]
    done = slimexp("-m", "model.image_size=28,3", *small, cwd=tmp_path)
    assert done.returncode == 1
    assert "slimexp: error: model.image_size=3: lenet needs 4 pixels or more" in done.stderr
    assert "Traceback" not in done.stderr
    finished = sorted(path.parent.name for path in (tmp_path / "out" / "sweeps").glob("*/*/*/predictions.csv"))
    assert finished == ["0"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["learning_rate.initial=0.1,-1,-2"],
            "2 of 3 jobs cannot be run; none was begun.\njob 1: learning_rate.initial=-1.0: must be above 0.\njob 2:",
        ),
        (["model=lenet,vg16"], "job 1: model=vg16: there is no such option; the nearest is vgg16, of alexnet,"),
        (
            ["learning_rate.initial=interval(0,1)"],
            "has no list of values. Give one, e.g. learning_rate.initial=0.1,0.01",
        ),
        (["seed=range(0)"], "seed=range(0): comes to no value at all, so there is no job. range(1, 4) is 1, 2, 3"),
        (["model=glob(zz*)"], "model=glob(zz*): comes to no value at all"),
        (
            ["job=export", "export.checkpoint=a,b", "export.dir=c"],
            "/c: the jobs 0 and 1 would both write there. Leave it out, which gives each job a place in its own folder",
        ),
        (
            ["job=predict", "predict.model=a,b", "predict.input=c", "predict.output=p.csv"],
            "/p.csv: the jobs 0 and 1 would both write there.",
        ),
        (["sweep.on_failure=stop,continue"], "sweep.on_failure=stop,continue: is the same for all jobs of a sweep"),
        (["seed=1,2", "run_dir=x"], "run_dir=x: each job of a sweep has a folder of its own"),
        (["seed=1,2", "hydra.sweep.subdir=x"], "hydra.sweep.subdir=x: the jobs 0 and 1 would share this folder."),
        (["seed=1,2", "hydra.sweeper.max_batch_size=0"], "hydra.sweeper.max_batch_size=0: must be 1 or more, or null."),
        (["seed=1,2", "hydra.sweeper._target_=my.Sweeper"], "my.Sweeper: sweeps are run by hydra/sweeper=basic"),
        (
            ["seed=1,2", "tracking.uri=runs"],
            "tracking.uri=runs is a folder, and MLflow no longer keeps runs in folders",
        ),
        (["restore.exclude=a,b"], "each of these values becomes a job of its own, though restore.exclude holds a list"),
    ],
)
def test_a_sweep_that_cannot_be_right_ends_before_its_first_job(tmp_path, arguments, message):
    done = slimexp("-m", *arguments, cwd=tmp_path, MLFLOW_TRACKING_URI="")
    assert done.returncode == 1
    assert message in done.stderr
    assert "Traceback" not in done.stderr
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_a_dry_run_checks_every_job_and_runs_none(tmp_path):
    sweep = slimexp("-m", "dry_run=true", "model.image_size=28,3", "learning_rate.initial=0.1,-1", cwd=tmp_path)
    assert sweep.returncode == 1
    lines = sweep.stdout.splitlines()
    assert lines[0].startswith("   0  lenet image_size=28 learning_rate.initial=0.1  ok: 1,438 images to train on")
    assert lines[1].endswith("wrong: learning_rate.initial=-1.0: must be above 0.")
    assert "  wrong: model.image_size=3: lenet needs 4 pixels or more" in lines[2]
    assert lines[4:] == ["Dry run: 4 jobs, 1 in order, 3 wrong. Nothing was run."]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_a_dry_run_of_one_job(tmp_path):
    wrong = slimexp("dry_run=true", "model.image_size=3", cwd=tmp_path)
    assert wrong.returncode == 1
    assert "slimexp: error: model.image_size=3: lenet needs 4 pixels or more" in wrong.stderr
    right = slimexp("dry_run=true", cwd=tmp_path)
    assert right.returncode == 0
    assert right.stdout.startswith("Dry run: ok: 1,438 images to train on")
    assert list(tmp_path.iterdir()) == []


def test_a_wheel_carries_the_configuration_and_starts(repository, tmp_path):
    build = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation"]
    subprocess.run([*build, "--wheel-dir", str(tmp_path), str(repository)], check=True, timeout=120)
    (wheel,) = tmp_path.glob("slimexp-*.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        archive.extractall(tmp_path / "site")
    assert "slimexp/conf/config.yaml" in names
    assert not [name for name in names if name.startswith(("tests/", "scripts/", "conf/"))]
    entry_points = next((tmp_path / "site").glob("*.dist-info/entry_points.txt")).read_text()
    assert "slimexp = slimexp.app:run" in entry_points
    done = subprocess.run(
        [sys.executable, "-c", "import slimexp.config as c; print(c.CONFIG_DIR)"],
        cwd=tmp_path / "site",
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == str(tmp_path / "site" / "slimexp" / "conf")
    done = slimexp("--cfg", "job", cwd=tmp_path / "site", PYTHONPATH=str(tmp_path / "site"))
    assert done.returncode == 0
    assert "slimexp.nets.lenet.lenet" in done.stdout
