"""`job=check_data`: what it prints, writes and records, and how it ends."""

from __future__ import annotations

import csv
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import mlflow
import pytest
from PIL import Image

from slimexp.errors import UserError
from slimexp.jobs import check_data
from slimexp.validation import flatten
from tests.records import example, write_shards

pytestmark = pytest.mark.usefixtures("drawn_figures")


def rows_of(path: Path) -> list[dict[str, str]]:
    with open(path, encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def run(job, *overrides: str, tracking: str = "tracking=none") -> None:
    config = job.config("job=check_data", tracking, *overrides)
    Path(config.run_dir).mkdir(parents=True, exist_ok=True)
    check_data.run(config, list(overrides))


def listed(photos: Callable[..., Path], **options) -> list[str]:
    train = photos(12, **options)
    return ["dataset=listfile", f"dataset.train_list={train}", "dataset.num_classes=4"]


def test_everything_that_is_wrong_is_found_in_one_pass(job, photos, tmp_path, capsys):
    def content(number: int) -> bytes:
        return (tmp_path / "images" / f"{number}.jpg").read_bytes()

    train = photos(12)
    whole = content(5)
    dataset = listed(photos, replace={1: b"", 4: b"<html>", 5: whole[:-80] + b"\xff\xd9", 7: None})
    (tmp_path / "images" / "10.jpg").write_bytes(content(9))
    eval_list = tmp_path / "eval.txt"
    (tmp_path / "images" / "a, b é.jpg").write_bytes(b"no picture")
    eval_list.write_text('images/0.jpg 0\n"images/a, b é.jpg" 1\nimages/3.jpg 2\n')
    with pytest.raises(UserError, match=r"5 faults found; .*faults\.csv lists all\. .*on_fault=report only reports"):
        run(job, *dataset, f"dataset.eval_list={eval_list}", "check_data.samples=6", tracking="tracking=mlflow")
    said = capsys.readouterr().out
    faults = rows_of(job.run_dir / "faults.csv")
    found = [(row["split"], row["origin"].rpartition(":")[2], Path(row["path"]).name) for row in faults]
    assert found == [
        ("train", "2", "1.jpg"),
        ("train", "5", "4.jpg"),
        ("train", "6", "5.jpg"),
        ("train", "8", "7.jpg"),
        ("eval", "2", "a, b é.jpg"),
    ]
    assert faults[0]["reason"] == "the file is empty (0 bytes)"
    assert "its pixel data end at byte" in faults[2]["reason"]
    assert faults[3]["reason"] == "there is no such file"
    duplicates = rows_of(job.run_dir / "duplicates.csv")
    assert [(row["group"], row["split"], row["label"]) for row in duplicates] == [
        *(("1", "train", "0"), ("1", "eval", "0")),
        *(("2", "train", "0"), ("2", "eval", "2")),
        *(("3", "train", "0"), ("3", "train", "1")),
    ]
    classes = rows_of(job.run_dir / "classes.csv")
    assert classes[1] == {"class": "1", "train": "4", "train_faults": "3", "eval": "1", "eval_faults": "1"}
    assert (job.run_dir / "remarks.csv").read_text() == "split,path,origin,kind,remark\n"
    for sheet in ("samples.png", "eval_samples.png"):
        with Image.open(job.run_dir / "figures" / sheet) as image:
            assert min(image.size) > 200
    assert f"  {train}:2: '{tmp_path}/images/1.jpg': the file is empty (0 bytes)\n" in said
    assert "Note: 1 class is without an example in train: '3'.\n" in said
    assert "Note: 2 evaluation examples are in training too" in said
    assert "Note: 2 pictures have different labels in different places" in said

    (record,) = job.runs()
    assert record.info.status == "FAILED"
    assert record.data.tags["check.result"] == "faults"
    metrics = record.data.metrics
    assert {
        key: metrics[f"check/{key}"] for key in ("examples", "faults", "duplicates", "leaks", "label_conflicts")
    } == {
        "examples": 15,
        "faults": 5,
        "duplicates": 3,
        "leaks": 2,
        "label_conflicts": 2,
    }
    artifacts = {
        path.name for path in Path(mlflow.MlflowClient(job.uri).get_run(record.info.run_id).info.artifact_uri).iterdir()
    }
    assert artifacts >= {"faults.csv", "duplicates.csv", "classes.csv", "remarks.csv", "figures"}


def test_reported_faults_leave_the_run_finished(job, photos, capsys):
    dataset = listed(photos, replace={1: b"", 2: b"x", 3: b"y"})
    overrides = ["check_data.on_fault=report", "check_data.samples=0", "check_data.show=1", "pipeline.threads=auto"]
    run(job, *dataset, *overrides, tracking="tracking=mlflow")
    said = capsys.readouterr().out
    assert "3 faults:\n" in said
    assert "  … and 2 more, see faults.csv\n" in said
    assert not (job.run_dir / "figures").exists()
    (record,) = job.runs()
    assert (record.info.status, record.data.tags["check.result"]) == ("FINISHED", "faults")


def test_nothing_at_all_can_be_used(job, photos, caplog):
    dataset = listed(photos, replace=dict.fromkeys(range(12), b"no picture"))
    run(job, *dataset, "check_data.on_fault=report")
    assert len(rows_of(job.run_dir / "faults.csv")) == 12
    assert "No example of train can be used, so there are no samples to show." in caplog.text


@pytest.mark.slow
def test_records_are_checked_alike(job, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("SLIMEXP_CACHE", str(tmp_path / "cache"))
    bad = {3: example(image__encoded=b"hello", image__class__label=1)}
    paths = write_shards(tmp_path / "data", [9, 7], replace=bad)
    paths[1].write_bytes(paths[1].read_bytes()[:-10])
    write_shards(tmp_path / "data", [4], name="validation")
    overrides = ["dataset=tfrecord", "dataset.root=data", "dataset.file_pattern='%s-*'", "dataset.num_classes=5"]
    with pytest.raises(UserError, match=r"2 faults found"):
        run(job, *overrides, "check_data.samples=4")
    said = capsys.readouterr().out
    first, second = rows_of(job.run_dir / "faults.csv")
    assert (first["path"], first["origin"]) == (f"{paths[0]}#3", "record 3")
    assert second["path"] == str(paths[1])
    assert second["origin"].startswith("record 6, byte ")
    assert second["reason"].endswith("(6 records could be read before it, 1 is lost)")
    assert "of these damaged shards" in said
    assert len(rows_of(job.run_dir / "duplicates.csv")) == 6  # The evaluation's first three are those of training.
    assert rows_of(job.run_dir / "classes.csv")[0] == {
        "class": "0",
        "train": "3",
        "train_faults": "0",
        "eval": "1",
        "eval_faults": "0",
    }
    assert (job.run_dir / "figures" / "samples.png").is_file()


def test_several_labels(job, photos, tmp_path, capsys):
    photos(3)
    (tmp_path / "multi.txt").write_text("images/0.jpg -1:* 1:0\nimages/1.jpg 1:0\nimages/2.jpg -1:1 1:0\n")
    dataset = ["dataset=listfile", "dataset.train_list=multi.txt", "dataset.num_classes=3", "dataset.task=multi"]
    run(job, *dataset, "check_data.samples=2")
    assert rows_of(job.run_dir / "classes.csv")[1] == {
        "class": "1",
        "train_positive": "0",
        "train_negative": "2",
        "train_dont_care": "1",
    }
    said = capsys.readouterr().out
    assert "Note: 2 labels are never positive in train: '1', '2'.\n" in said


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("check_data.samples=-1", r"check_data\.samples=-1: must be 0 or more"),
        ("check_data.samples=1001", r"check_data\.samples=1001: must be 1,000 or less"),
        ("check_data.show=-1", r"check_data\.show=-1: must be 0 or more"),
    ],
)
def test_its_keys_are_checked(job, override, message):
    with pytest.raises(UserError, match=message):
        job.config("job=check_data", override)
    assert flatten(job.config("job=check_data"))["check_data.samples"] == 32


def test_ctrl_c_says_what_was_found_so_far(photos, tmp_path):
    train_list = photos(12, replace={2: b"no picture"})
    # A named pipe would be found; one behind a link to a network drive that hangs would not. This one is a file that
    # answers to `stat` and then waits.
    command = [
        *(sys.executable, "-c", _WAITING, "job=check_data", "dataset=listfile", f"dataset.train_list={train_list}"),
        *("dataset.num_classes=3", "tracking=none", f"run_dir={tmp_path}/run", "pipeline.threads=2"),
    ]
    environment = {**os.environ, "SLIMEXP_WAIT_FOR": str(tmp_path / "images" / "7.jpg")}
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment
    ) as process:
        for line in process.stdout:
            if "waits for 7.jpg" in line:
                break
        time.sleep(1.5)  # The others are done meanwhile.
        started = time.monotonic()
        process.send_signal(signal.SIGINT)
        rest = process.stdout.read()
    assert process.returncode == 130, rest
    assert time.monotonic() - started < 10
    assert "Stopped after 11 of the 12 examples of train; 1 fault so far." in rest
    assert "2.jpg': it is something that begins with b'no picture'" in rest
    assert len(rows_of(tmp_path / "run" / "faults.csv")) == 1


# Runs the program with one file that never comes, as on a network drive that is gone.
_WAITING = """
import os, sys, threading
from slimexp.pipeline.check import walk
read = walk.read_image_file
def wait(path):
    if path == os.environb[b"SLIMEXP_WAIT_FOR"]:
        print("waits for 7.jpg", flush=True)
        threading.Event().wait()
    return read(path)
walk.read_image_file = wait
from slimexp.app import main
main()
"""
