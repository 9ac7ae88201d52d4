from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from slimexp.convert.command import main
from tests.convert.test_conversion import write_images

PYTHON = "'my venv/bin/python'"
HEADER = "--check=header"  # To decode the first picture takes seconds, as a graph is built for it.


@pytest.fixture
def listed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SLIMEXP_CACHE", str(tmp_path / "cache"))
    write_images(tmp_path, ["a.jpg", "b.jpg", "c.jpg"])
    (tmp_path / "list.txt").write_text("a.jpg 0\nb.jpg 1\nc.jpg 0\n")
    return tmp_path


def test_says_what_it_does_and_how_to_train_on_it(
    listed: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", f"{listed}/my venv/bin/python")
    assert main(["list.txt", "my records", "--class-names=red,green", "--shards=2", "--eval=list.txt", HEADER]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[:3] == [
        "list.txt (list) -> my records (records)",
        "train: 3 listed = 3 written + 0 rejected",
        "eval: 3 listed = 3 written + 0 rejected",
    ]
    assert lines[3].startswith(f"Wrote {listed}/my records in ")
    assert lines[4] == (
        f"  {PYTHON} -m slimexp dataset=tfrecord 'dataset.root=\"{listed}/my records\"' "
        "'dataset.file_pattern=\"%s-*.tfrecord\"'"
    )
    assert main(["my records", "again", "--to=list", HEADER]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == (
        f"  {PYTHON} -m slimexp dataset=listfile dataset.train_list={listed}/again/train.txt "
        f"dataset.eval_list={listed}/again/eval.txt dataset.class_names={listed}/again/labels.txt"
    )
    assert main(["again", "photos", "--to=folder", HEADER]) == 0
    # Their order is not that of the names.
    assert capsys.readouterr().out.splitlines()[-1] == (
        f"  {PYTHON} -m slimexp dataset=image_folder dataset.root={listed}/photos "
        f"dataset.class_names={listed}/photos/labels.txt"
    )
    assert Path("photos/labels.txt").read_text() == "0:red\n1:green\n"
    assert main(["photos", "list3", "--to=list", HEADER]) == 0
    assert Path("list3/labels.txt").read_text() == "0:red\n1:green\n"


def test_errors_name_the_options_of_the_command(listed: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list.txt", "records"]) == 1
    assert "set --num-classes=N, or --class-names" in capsys.readouterr().err
    assert main(["list.txt", "records", "--num-classes=1"]) == 1
    message = "list.txt:2: '1': the label is outside 0..0 (--num-classes=1)"
    assert message in capsys.readouterr().err
    (listed / "b.jpg").unlink()
    assert main(["list.txt", "records", "--num-classes=2"]) == 1
    assert capsys.readouterr().err.endswith("Mend or remove them.\n")
    assert main(["none", "records"]) == 1
    assert "convert: SOURCE=none: there is no such file or folder" in capsys.readouterr().err
    assert main(["list.txt", "records", "--num-classes=2", "--train-set=x"]) == 1
    assert "--train-set=x is not for a source of the form list, but for pascal_voc" in capsys.readouterr().err
    assert not Path("records").exists()


def test_holds_out_by_the_seed(listed: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_images(listed / "photos", [f"{name}/{number}.jpg" for name in "ab" for number in range(9)])
    lists = []
    for seed in ("1", "1", "2"):
        command = ["photos", "held", "--to=list", "--eval-fraction=0.5", f"--seed={seed}", "--overwrite", HEADER]
        assert main(command) == 0
        lists.append(Path("held/eval.txt").read_text())
    assert lists[0] == lists[1] != lists[2]


def test_bad_images_are_counted_in_the_end(listed: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (listed / "b.jpg").write_bytes(b"")
    (listed / "list.txt").write_text("a.jpg 5\nb.jpg 3\nc.jpg 5\n")
    assert main(["list.txt", "records", "--num-classes=6", "--on-bad-image=skip", "--check=header"]) == 0
    out = capsys.readouterr().out
    assert f"train: 3 listed = 2 written + 1 rejected (see {listed}/records/rejected.csv)" in out


def test_the_script_and_the_module_are_the_same(listed: Path, repository: Path) -> None:
    environment = {**os.environ, "COLUMNS": "100", "PYTHONPATH": str(repository)}
    said = [
        subprocess.run(command, capture_output=True, text=True, check=True, env=environment).stdout
        for command in (
            [sys.executable, str(repository / "scripts" / "convert.py"), "--help"],
            [sys.executable, "-X", "importtime", "-m", "slimexp.convert", "--help"],
        )
    ]
    assert said[0] == said[1]
    assert "SOURCE is a list file, a folder of classes" in said[0]


@pytest.mark.slow
def test_ctrl_c_and_sigterm_leave_nothing_behind(listed: Path) -> None:
    import signal
    import time

    (listed / "list.txt").write_text("a.jpg 0\n" * 100_000)  # Takes a minute or so.
    for number, code in ((signal.SIGTERM, 143), (signal.SIGKILL, -9)):
        command = [sys.executable, "-m", "slimexp.convert", "list.txt", "out/records", "--num-classes=2"]
        with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
            deadline = time.monotonic() + 60
            while not list(listed.glob("out/.records.*/new/labels.txt")):
                assert time.monotonic() < deadline
                assert process.poll() is None, process.stderr and process.stderr.read()
                time.sleep(0.1)
            process.send_signal(number)
        assert process.returncode == code
        assert [path.name.startswith(".records.") for path in (listed / "out").iterdir()] == [True] * (code == -9)
