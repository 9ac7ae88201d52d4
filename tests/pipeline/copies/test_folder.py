"""Tests of slimexp.pipeline.copies.folder."""

from __future__ import annotations

import errno
import logging
import os
import shutil
import stat
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from slimexp.pipeline.copies.folder import SharedFolder, in_bytes

DAY = 24 * 3600


def jpeg(size: int = 100) -> bytes:
    return b"\xff\xd8" + bytes(size - 4) + b"\xff\xd9"


def age(folder: SharedFolder, name: str, secs: float) -> Path:
    path = Path(folder.path, name + ".jpg")
    os.utime(path, (time.time() - secs, time.time() - secs))
    return path


def used_bytes(folder: SharedFolder) -> int:
    return int(Path(folder.path, "usage").read_text())


@pytest.fixture
def folder(tmp_path: Path) -> SharedFolder:
    return SharedFolder(str(tmp_path / "cache"), max_bytes=1000)


def test_stores_and_finds(folder: SharedFolder) -> None:
    assert not folder.has("s/ab/c")
    assert folder.find("s/ab/c") is None
    assert folder.usage() == (0, 0)
    assert not os.path.exists(folder.path)
    assert folder.store("s/ab/c", jpeg())
    assert folder.has("s/ab/c")
    assert folder.find("s/ab/c") == jpeg()
    assert folder.usage() == (1, 100)
    assert used_bytes(folder) == 100
    assert os.listdir(os.path.join(folder.path, "tmp")) == []
    assert Path(folder.path, "CACHEDIR.TAG").read_text().startswith("Signature: 8a477f597d28d172789f06886806bc55\n")


def test_others_may_read_what_is_stored(folder: SharedFolder) -> None:
    before = os.umask(0o022)
    try:
        folder.store("s/ab/c", jpeg())
    finally:
        os.umask(before)
    assert stat.S_IMODE(os.stat(os.path.join(folder.path, "s/ab/c.jpg")).st_mode) == 0o644


def test_storing_again_takes_no_more(folder: SharedFolder) -> None:
    for _ in range(30):
        assert folder.store("s/ab/c", jpeg())
    assert used_bytes(folder) == 100


@pytest.mark.parametrize("contents", [b"", bytes(100), jpeg()[:-1], jpeg()[1:]])
def test_half_a_file_is_none(folder: SharedFolder, contents: bytes) -> None:
    folder.store("s/ab/c", jpeg())
    Path(folder.path, "s/ab/c.jpg").write_bytes(contents)
    assert folder.find("s/ab/c") is None
    assert folder.store("s/ab/c", jpeg())
    assert folder.find("s/ab/c") == jpeg()


def test_full_folder_stays_as_it_is(folder: SharedFolder, caplog: pytest.LogCaptureFixture) -> None:
    assert all(folder.store(f"s/ab/{number}", jpeg(300)) for number in range(3))
    with caplog.at_level(logging.WARNING):
        assert [folder.store(f"s/ab/{number}", jpeg(300)) for number in range(3, 6)] == [False] * 3
    assert folder.usage() == (3, 900)
    assert len(caplog.records) == 1
    assert "is full (3 files of 900 bytes together, all used within a day)" in caplog.text
    assert "raise pipeline.cache_max_bytes=1000, at about 300 bytes a photo" in caplog.text
    assert folder.stopped is not None


def test_least_recently_used_files_make_room(folder: SharedFolder, caplog: pytest.LogCaptureFixture) -> None:
    for number in range(9):
        folder.store(f"old/ab/{number}", jpeg())
    order = [4, 2, 7, 0]
    for days, number in enumerate(order):
        age(folder, f"old/ab/{number}", (10 - days) * DAY)
    with caplog.at_level(logging.INFO):
        assert folder.store("new/ab/0", jpeg(210))
    # 900 + 210 bytes: two of 100 go.
    assert [number for number in order if folder.has(f"old/ab/{number}")] == [7, 0]
    assert "Removed 2 files" in caplog.text
    assert used_bytes(folder) == folder.usage()[1] == 910
    assert folder.stopped is None


def test_use_is_marked(folder: SharedFolder) -> None:
    for look in (folder.has, folder.find):
        folder.store("s/ab/c", jpeg())
        path = age(folder, "s/ab/c", 2 * DAY)
        assert look("s/ab/c")
        assert time.time() - path.stat().st_mtime < 60


def test_limit_holds_for_threads_and_a_second_user_of_the_folder(folder: SharedFolder) -> None:
    folders = [folder, SharedFolder(folder.path, max_bytes=folder.max_bytes)]

    def fill(number: int) -> None:
        for other in range(20):
            folders[number % 2].store(f"s/{number}/{other}", jpeg(70))

    threads = [threading.Thread(target=fill, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert folder.usage() == (14, 980)
    assert used_bytes(folder) == 980


def test_count_is_corrected_at_the_start(folder: SharedFolder) -> None:
    folder.store("s/ab/c", jpeg())
    Path(folder.path, "usage").write_text("950")  # A run was killed in between.
    again = SharedFolder(folder.path, max_bytes=1000)
    assert again.store("s/ab/d", jpeg())
    assert used_bytes(again) == 200


@pytest.mark.parametrize("what", ["usage", "everything"])
def test_folder_may_be_deleted_in_use(folder: SharedFolder, what: str) -> None:
    folder.store("s/ab/c", jpeg())
    if what == "usage":
        os.remove(os.path.join(folder.path, "usage"))
    else:
        shutil.rmtree(folder.path)
    assert folder.store("s/ab/d", jpeg())
    assert used_bytes(folder) == folder.usage()[1] == (200 if what == "usage" else 100)
    assert folder.stopped is None


def test_stale_unfinished_files_are_removed(folder: SharedFolder) -> None:
    folder.store("s/ab/c", jpeg())
    stale, recent = (Path(folder.path, "tmp", name) for name in ("1-stale", "2-recent"))
    for path in (stale, recent):
        path.write_bytes(b"half")
    os.utime(stale, (time.time() - 2 * 3600,) * 2)
    SharedFolder(folder.path, max_bytes=1000).store("s/ab/d", jpeg())
    assert not stale.exists()
    assert recent.exists()


def test_disk_faults_are_said_once(
    folder: SharedFolder, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    folder.store("s/ab/c", jpeg())

    def refuse(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "replace", refuse)
    assert not folder.store("s/ab/d", jpeg())
    assert not folder.store("s/ab/e", jpeg())
    assert folder.stopped == f"{folder.path} can't be written to (No space left on device)"
    assert len(caplog.records) == 1
    assert "no longer stored" in caplog.text
    assert used_bytes(folder) == 100
    assert os.listdir(os.path.join(folder.path, "tmp")) == []
    assert folder.find("s/ab/c") == jpeg()


def test_place_that_can_not_be_written(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "file").write_bytes(b"")
    folder = SharedFolder(str(tmp_path / "file" / "cache"), max_bytes=1000)
    assert folder.find("s/ab/c") is None
    assert not folder.has("s/ab/c")
    assert not folder.store("s/ab/c", jpeg())
    assert "can't be written to (Not a directory)" in caplog.text


def test_disk_is_not_filled(folder: SharedFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = type(shutil.disk_usage("/"))
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage(10**12, 0, (1 << 30) + 50))
    assert folder.store("s/ab/c", jpeg(50))
    assert not folder.store("s/ab/d", jpeg(51))
    assert folder.stopped == f"the disk of {folder.path} is nearly full (1.07 GB free)"


def test_killed_writer_leaves_no_half_file(folder: SharedFolder) -> None:
    code = (
        "import sys; from slimexp.pipeline.copies.folder import SharedFolder as F\n"
        "folder = F(sys.argv[1], max_bytes=10**12)\n"
        "for number in range(10**9):\n"
        "    folder.store(f's/{number % 97}/{number}', b'\\xff\\xd8' + bytes(1 << 20) + b'\\xff\\xd9')\n"
        "    print(number, flush=True)\n"
    )
    process = subprocess.Popen([sys.executable, "-c", code, folder.path], stdout=subprocess.PIPE)
    assert process.stdout is not None
    with process.stdout:
        for _ in range(20):
            process.stdout.readline()
        process.kill()
        process.wait()
    again = SharedFolder(folder.path, max_bytes=10**12)
    names = [os.path.relpath(path, folder.path).removesuffix(".jpg") for path, *_ in again._files()]
    assert len(names) >= 20
    assert all(again.find(name) for name in names)
    assert again.store("s/1/new", jpeg())
    assert used_bytes(again) == again.usage()[1]


def test_bytes_in_words() -> None:
    assert [in_bytes(number) for number in (0, 999, 1000, 31_500_000, 20 * 10**9)] == [
        "0 bytes",
        "999 bytes",
        "1 KB",
        "31.5 MB",
        "20 GB",
    ]


def test_interrupted_write_takes_nothing(folder: SharedFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    folder.store("s/ab/c", jpeg())

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "replace", interrupt)
    with pytest.raises(KeyboardInterrupt):
        folder.store("s/ab/d", jpeg())
    assert used_bytes(folder) == folder.usage()[1] == 100
    assert os.listdir(os.path.join(folder.path, "tmp")) == []
