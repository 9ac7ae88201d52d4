from __future__ import annotations

import contextlib
import json
import logging
import math
import threading
from pathlib import Path

import pytest

from slimexp.tracking.metrics_file import MetricsFile, MetricsRow, columns, read_metrics, truncate_after


def write(path: Path, *rows: MetricsRow) -> None:
    file = MetricsFile(path)
    for row in rows:
        file.append(row)
    file.close()


def row(step: int, **metrics: float) -> MetricsRow:
    return MetricsRow(step, 1000.0 + step, metrics)


def test_lines_are_plain_json(tmp_path: Path) -> None:
    path = tmp_path / "run" / "metrics.jsonl"
    write(path, MetricsRow(10, 1000.5, {"train/loss": 0.5, "b": math.nan, "c": math.inf, "d": -math.inf}))
    (line,) = path.read_text(encoding="utf-8").splitlines()

    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} is not JSON")

    assert json.loads(line, parse_constant=refuse) == {
        "step": 10,
        "time": 1000.5,
        "metrics": {"train/loss": 0.5, "b": "NaN", "c": "Infinity", "d": "-Infinity"},
    }
    (back,) = read_metrics(path)
    assert back.step == 10
    assert back.time == 1000.5
    assert math.isnan(back.metrics["b"])
    assert back.metrics["d"] == -math.inf


def test_half_written_last_line_is_passed_over_and_cut_off(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    write(path, row(1, a=1.0), row(2, a=2.0))
    whole = path.read_bytes()
    path.write_bytes(whole[:-7])
    assert [r.step for r in read_metrics(path)] == [1]
    write(path, row(2, a=3.0))
    assert [(r.step, r.metrics["a"]) for r in read_metrics(path)] == [(1, 1.0), (2, 3.0)]


def test_a_file_that_is_one_half_line_becomes_empty(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_bytes(b'{"step": 1' + b" " * 9000)
    write(path)
    assert path.read_bytes() == b""


def test_broken_lines_are_named(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "metrics.jsonl"
    write(path, row(1, a=1.0))
    with open(path, "ab") as file:
        file.write(b'\0\0\0\n{"step": 2}\n[1]\n{"step": 3, "time": 1, "metrics": {"a": "x"}}\n')
    write(path, row(4, a=4.0))
    with caplog.at_level(logging.WARNING):
        assert [r.step for r in read_metrics(path)] == [1, 4]
    assert "metrics.jsonl: passed over 4 unreadable line(s): 2, 3, 4, 5" in caplog.text


def test_truncate_after_drops_later_steps(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    write(path, *(row(step, a=float(step)) for step in (10, 20, 20, 30, 40)))
    assert truncate_after(path, 20) == 2
    assert [r.step for r in read_metrics(path)] == [10, 20, 20]
    assert truncate_after(path, 20) == 0
    assert truncate_after(tmp_path / "none.jsonl", 5) == 0
    assert list(tmp_path.iterdir()) == [path]


def test_read_from_goes_on_where_it_stopped(tmp_path: Path) -> None:
    file = MetricsFile(tmp_path / "metrics.jsonl")
    for step in range(5):
        file.append(row(step, a=1.0))
    first = file.read_from(0, 2)
    assert [r.step for r, _ in first] == [0, 1]
    assert [r.step for r, _ in file.read_from(first[-1][1], 100)] == [2, 3, 4]
    assert file.read_from(file.read_from(0, 100)[-1][1], 100) == []
    file.close()


def test_read_from_takes_a_row_longer_than_its_block() -> None:
    file = MetricsFile(None)
    big = MetricsRow(1, 1.0, {f"metric/{i}": i / 7 for i in range(60_000)})
    file.append(big)
    file.append(row(2, a=1.0))
    rows = file.read_from(0, 10)
    assert [r.step for r, _ in rows] == [1, 2]
    assert rows[0][0] == big
    file.close()


def test_a_reader_sees_whole_rows_while_they_are_written() -> None:
    file = MetricsFile(None)
    seen: list[int] = []

    def read() -> None:
        offset = 0
        while len(seen) < 2000:
            for r, end in file.read_from(offset, 50):
                seen.append(r.step)
                offset = end

    reader = threading.Thread(target=read)
    reader.start()
    for step in range(2000):
        file.append(row(step, a=step / 3))
    reader.join(20)
    assert seen == list(range(2000))
    file.close()


def test_a_full_disk_leaves_whole_rows() -> None:
    file = MetricsFile(None)
    file.append(row(1, a=1.0))
    real = file._file

    class Full:
        def write(self, data: bytes) -> int:
            return real.write(data[:5])  # type: ignore[no-any-return]

        def __getattr__(self, name: str) -> object:
            return getattr(real, name)

    file._file = Full()
    with pytest.raises(OSError, match="only 5 of"):
        file.append(row(2, a=2.0))
    file._file = real
    file.append(row(3, a=3.0))
    assert [r.step for r, _ in file.read_from(0, 10)] == [1, 3]
    file.close()


def test_columns() -> None:
    assert columns([row(1, a=1.0), row(2, a=2.0, b=5.0)]) == {"a": ([1, 2], [1.0, 2.0]), "b": ([2], [5.0])}


@pytest.mark.parametrize(
    "line",
    [
        f'{{"step": 2, "time": 1.0, "metrics": {{"a": {10**400}}}}}',
        '{"step": 1e400, "time": 1.0, "metrics": {}}',
        f'{{"step": {2**64}, "time": 1.0, "metrics": {{}}}}',
        '{"step": 2, "time": 1e300, "metrics": {}}',
        '{"step": 2, "time": NaN, "metrics": {}}',
        '{"step": 2, "time": 1.0, "metrics": ' + "[" * 100_000,
    ],
    ids=["large value", "large step", "step of 65 bits", "large time", "no time", "deep"],
)
def test_a_damaged_line_is_passed_over_and_said(line: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "metrics.jsonl"
    write(path, row(1, a=1.0))
    with open(path, "a", encoding="utf-8") as file:
        file.write(f"{line}\n")
    write(path, row(3, a=3.0))
    with contextlib.closing(MetricsFile(path)) as file:
        assert [r.step for r, _ in file.read_from(0, 10)] == [1, 3]
    assert [r.step for r in read_metrics(path)] == [1, 3]
    assert f"{path}: passed over 1 unreadable line(s): 2" in caplog.text
    assert truncate_after(path, 1) == 1
    assert f"{path}: dropped 1 unreadable line(s): 2" in caplog.text
