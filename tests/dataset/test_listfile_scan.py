"""The vectorised reader gives what the grammar gives, line by line."""

from __future__ import annotations

import os
import random
import threading
from pathlib import Path

import numpy as np
import pytest

from slimexp.dataset.listfile_grammar import LabelReader, LineError, split_line
from slimexp.dataset.listfile_scan import ParsedList, read_list
from slimexp.errors import UserError

NUM_CLASSES = 12


def read_by_grammar(data: bytes, reader: LabelReader, image_dir: bytes) -> ParsedList:
    """The plain twin of read_list."""
    paths, labels, numbers, bad = [], [], [], []
    lines = data.removeprefix(b"\xef\xbb\xbf").split(b"\n")
    if not lines[-1]:
        lines.pop()
    for number, line in enumerate(lines, 1):
        try:
            fields = split_line(line)
            if fields is None:
                continue
            label = (
                reader.read_multi(fields.labels)
                if reader.task == "multi"
                else reader.read_single(fields.labels, free=fields.free)
            )
        except LineError as error:
            bad.append((number, error))
            continue
        paths.append(os.path.join(image_dir, fields.path))
        labels.append(label)
        numbers.append(number)
    return ParsedList(paths, np.array(labels), np.array(numbers), len(lines), len(bad), bad)


def random_line(rng: random.Random, task: str) -> bytes:
    def pick(*choices: str) -> str:
        return rng.choice(choices)

    def terms() -> str:
        indices = ",".join(str(rng.randrange(NUM_CLASSES + (rng.random() < 0.02))) for _ in range(rng.randint(1, 5)))
        return f"{pick('1', '-1', '0')}:{pick('*', indices, indices)}"

    path = pick(
        "a.jpg",
        "/abs/b.jpg",
        "x/y z.jpg",
        "中/é.jpg",
        "1:2",
        "c,3:*.jpg",
        '"my cat.jpg"',
        '"a ""b"" 1:0"',
        "d:e f",
        "g 1:h",
    )
    separator = pick(" ", " ", "  ", "\t", " \t", "\t ")
    if task == "multi" or rng.random() < 0.2:
        labels = pick(" ", " ", "  ", "\t").join(terms() for _ in range(rng.choice((1, 2, 2, 3, 8))))
    else:
        labels = pick("3", "11", "012", "cat", "golden dog", '"cat"', "1:3", "-1:* 1:7", "-1", "2.5", "5th", "１")
    line = bytearray((path + separator + labels).encode())
    if rng.random() < 0.2:
        for _ in range(rng.randint(1, 2)):
            place = rng.randrange(len(line))
            change = rng.choice(list(b' \t",:*-+0129#\r\0/a\xff\xc3'))
            if rng.random() < 0.5:
                line[place] = change
            else:
                line.insert(place, change)
    blank = rng.choice((b"", b"", b"", b" ", b"\r", b" \t\r", b" " * 80))
    return rng.choice((bytes(line),) * 12 + (b"", b"# x", b" ", b"\t#", b"#\xff")) + blank


def make_reader(task: str, learns_names: bool = False, labels_offset: int = 0) -> LabelReader:
    names = [*map(str, range(9)), "cat", "golden dog", "5th"]
    return LabelReader(
        task, NUM_CLASSES, None if learns_names else names, labels_offset=labels_offset, learns_names=learns_names
    )


def named(labels: np.ndarray, reader: LabelReader) -> list:
    """Replaces the codes of learnt names, whose order may differ within a block, by the names."""
    name_of = {code: name for name, code in reader.names.items() if code < 0}
    return [name_of.get(label, label) if reader.task == "single" else label for label in labels.tolist()]


@pytest.mark.parametrize("kind", ["multi", "multi, offset", "single", "learnt"])
def test_equals_the_grammar_on_random_lines(kind: str, tmp_path: Path) -> None:
    rng = random.Random(kind)
    task = "multi" if kind.startswith("multi") else "single"
    num_good = num_bad = 0
    for trial in range(25):
        lines = [random_line(rng, task) for _ in range(rng.choice((1, 3, 500, 500)))]
        data = rng.choice((b"", b"\xef\xbb\xbf")) + b"\n".join(lines) + rng.choice((b"", b"\n"))
        list_file = tmp_path / "list.txt"
        list_file.write_bytes(data)
        twin_reader, reader = (make_reader(task, kind == "learnt", int("offset" in kind)) for _ in range(2))
        twin = read_by_grammar(data, twin_reader, b"/images")
        result = read_list(
            str(list_file), reader, image_dir=b"/images", max_bad_lines=1000, block_bytes=rng.choice((7, 500, 1 << 20))
        )
        assert result.paths == twin.paths, trial
        assert named(result.labels, reader) == named(twin.labels, twin_reader), trial
        assert result.lines.tolist() == twin.lines.tolist(), trial
        assert result.num_lines == twin.num_lines
        assert result.num_bad_lines == twin.num_bad_lines
        assert [(n, str(e)) for n, e in result.bad_lines] == [(n, str(e)) for n, e in twin.bad_lines], trial
        assert reader.names.keys() == twin_reader.names.keys()
        num_good += len(twin.paths)
        num_bad += twin.num_bad_lines
    assert num_good > 1000
    assert num_bad > 500


@pytest.mark.parametrize(
    "line", ["a.jpg -1:* 1:0,7", "/a.jpg  1:3 \r", '"my cat.jpg" 1:0', "my cat.jpg\t-1:* 0:1,2\t1:5", "é/1:2.jpg 1:0"]
)
def test_usual_lines_are_not_read_one_by_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: str) -> None:
    monkeypatch.setattr("slimexp.dataset.listfile_scan.split_line", None)
    list_file = tmp_path / "list.txt"
    for task in ("multi", "single"):
        single = line.replace("0,7", "0").replace("\t-1:* 0:1,2", "")
        list_file.write_text(f"# x\n\n{line if task == 'multi' else single}\n", newline="", encoding="utf-8")
        assert len(read_list(str(list_file), make_reader(task), image_dir=b"/").paths) == 1


def test_types_and_absolute_paths(tmp_path: Path) -> None:
    list_file = tmp_path / "list.txt"
    list_file.write_bytes(b"a.jpg 1:0\n\n/b.jpg -1:*\n")
    result = read_list(str(list_file), LabelReader("multi", 2), image_dir=b"/images/")
    assert result.paths == [b"/images/a.jpg", b"/b.jpg"]
    assert result.labels.dtype == np.int8
    assert result.labels.tolist() == [[1, 0], [-1, -1]]
    assert result.lines.dtype == np.int64
    assert result.lines.tolist() == [1, 3]
    list_file.write_bytes(b"a.jpg 1\n")
    result = read_list(str(list_file), LabelReader("single", 2), image_dir=b"/images")
    assert result.labels.dtype == np.int32
    assert result.labels.tolist() == [1]


def test_counts_all_bad_lines_and_keeps_the_first(tmp_path: Path) -> None:
    list_file = tmp_path / "list.txt"
    list_file.write_bytes(b"a.jpg 0\n" + b"a.jpg x\n" * 25)
    result = read_list(str(list_file), LabelReader("single", 2), image_dir=b"/", max_bad_lines=3, block_bytes=50)
    assert result.num_bad_lines == 25
    assert [number for number, _ in result.bad_lines] == [2, 3, 4]


def test_reads_a_pipe(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = threading.Thread(target=lambda: pipe.write_bytes(b"a.jpg 1\nb.jpg 0"))
    writer.start()
    result = read_list(str(pipe), LabelReader("single", 2), image_dir=b"/")
    writer.join()
    assert result.labels.tolist() == [1, 0]


def test_refuses_what_is_no_text(tmp_path: Path) -> None:
    list_file = tmp_path / "list.txt"
    list_file.write_text("a.jpg 1\n", encoding="utf-16")
    with pytest.raises(UserError, match=r"list.txt is UTF-16 text; save it as UTF-8"):
        read_list(str(list_file), LabelReader("single", 2), image_dir=b"/")
    list_file.write_bytes(b"x" * (65 << 20))
    with pytest.raises(UserError, match=r"a line of more than 64 MiB"):
        read_list(str(list_file), LabelReader("single", 2), image_dir=b"/")


@pytest.mark.parametrize("num_classes", [10**13, 10**19])
def test_says_when_labels_do_not_fit_into_memory(tmp_path: Path, num_classes: int) -> None:
    list_file = tmp_path / "list.txt"
    list_file.write_bytes(b"a.jpg 1:0\n" * 3)
    with pytest.raises(UserError, match=r"dataset.num_classes=10+ don't fit into memory"):
        read_list(str(list_file), LabelReader("multi", num_classes), image_dir=b"/")
