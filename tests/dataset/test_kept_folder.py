from __future__ import annotations

import multiprocessing
import os
import signal
import time
from pathlib import Path

import pytest

from slimexp.dataset import kept_folder
from slimexp.dataset.kept_folder import digest_of, is_complete, make_once
from slimexp.errors import UserError

SPAWN = multiprocessing.get_context("spawn")


def write(folder: str) -> None:
    os.makedirs(os.path.join(folder, "inner"))
    Path(folder, "a.txt").write_text("abc")
    Path(folder, "inner", "b").write_text("xyz")


def make(folder: Path) -> None:
    make_once(str(folder), write, what="the letters", num_mb=8)


@pytest.mark.parametrize("damage", ["changed", "missing", "unlisted", "nonsense", "nothing", "number", "file"])
def test_makes_a_damaged_one_anew(tmp_path: Path, damage: str, caplog: pytest.LogCaptureFixture) -> None:
    folder = tmp_path / "letters"
    make(folder)
    assert not caplog.records
    manifest = folder / "manifest.json"
    if damage == "changed":
        (folder / "inner" / "b").write_text("xyy")
    elif damage == "missing":
        (folder / "a.txt").unlink()
    elif damage == "unlisted":
        manifest.unlink()
    elif damage in ("nonsense", "nothing", "number"):
        manifest.write_text({"nonsense": "[]", "nothing": "{}", "number": '{"a.txt": 3}'}[damage])
    else:
        folder.rename(tmp_path / "away")
        folder.write_text("no folder")
    stale, young = tmp_path / ".letters-stale", tmp_path / ".letters-young"
    for path in (stale, young):
        path.mkdir()
    os.utime(stale, (0, 0))
    assert not is_complete(str(folder))
    make(folder)
    assert is_complete(str(folder))
    assert (folder / "inner" / "b").read_text() == "xyz"
    assert "was damaged and is replaced" in caplog.text
    assert {".letters-young", ".letters.lock", "letters"} == set(os.listdir(tmp_path)) - {"away"}


def test_looks_at_chosen_files_alone(tmp_path: Path) -> None:
    make(tmp_path / "letters")
    (tmp_path / "letters" / "inner" / "b").unlink()
    assert is_complete(str(tmp_path / "letters"), only=lambda name: name.endswith(".txt"))
    assert not is_complete(str(tmp_path / "letters"), only=lambda name: name.endswith(".jpg"))


def test_writes_nothing_when_it_is_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make(tmp_path / "letters")
    monkeypatch.setattr(kept_folder, "_lock", None)
    make(tmp_path / "letters")


def test_says_where_it_cannot_write(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    message = (
        r"the letters can't be written to .*/file \(.*\); name a folder that can be, with some 8 MB to spare: datas"
    )
    with pytest.raises(UserError, match=message):
        make(tmp_path / "file" / "letters")


def test_a_digest_is_of_contents_and_their_bounds(tmp_path: Path) -> None:
    for name, content in (("a", "ab"), ("b", "c"), ("c", "a"), ("d", "bc")):
        (tmp_path / name).write_text(content)
    one, other = ([str(tmp_path / name) for name in names] for names in ("ab", "cd"))
    assert digest_of(one) != digest_of(other)
    assert digest_of(one) != digest_of(one[::-1])
    assert digest_of(one) == digest_of(one)


def _make_slowly(folder: str, secs: float, results) -> None:
    def write_slowly(new: str) -> None:
        write(new)
        time.sleep(secs)

    make_once(folder, write_slowly, what="the letters", num_mb=8)
    results.put(os.stat(os.path.join(folder, "a.txt")).st_ino)


def test_programs_that_start_together_and_one_that_is_killed(tmp_path: Path) -> None:
    results = SPAWN.Queue()
    folder = str(tmp_path / "new" / "cache" / "letters")
    killed = SPAWN.Process(target=_make_slowly, args=(folder, 60, results))
    killed.start()
    deadline = time.monotonic() + 60
    while not list(tmp_path.glob("new/cache/.letters-*/new/inner/b")):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    # They wait for the first one's lock, which falls when it is killed.
    others = [SPAWN.Process(target=_make_slowly, args=(folder, 0.3, results)) for _ in range(2)]
    for process in others:
        process.start()
    time.sleep(0.5)
    assert killed.pid is not None
    os.kill(killed.pid, signal.SIGKILL)
    killed.join()
    found = {results.get(timeout=60) for _ in others}
    for process in others:
        process.join()
        assert process.exitcode == 0
    assert len(found) == 1  # One wrote, the other took what it wrote.
