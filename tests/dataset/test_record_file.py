from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from slimexp.dataset import record_file
from slimexp.dataset.record_file import count_records, find_damage, read_record, read_records
from slimexp.errors import UserError
from tests.records import damage

LENGTHS = [5, 0, 40, 7]
BEGINS = [0, 21, 37, 93]  # A record takes 16 bytes more than its data.


@pytest.fixture
def path(tmp_path: Path) -> Path:
    with tf.io.TFRecordWriter(str(tmp_path / "data")) as writer:
        for number, length in enumerate(LENGTHS):
            writer.write(bytes([number]) * length)
    return tmp_path / "data"


def name(path: Path) -> bytes:
    return str(path).encode()


def test_counts_and_reads_what_tensorflow_wrote(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record_file, "_HEADERS_AT_A_TIME", 3)
    assert count_records(name(path)) == 4
    assert [read_record(name(path), number) for number in range(4)] == [
        bytes([number]) * length for number, length in enumerate(LENGTHS)
    ]
    assert read_records(name(path), [3, 0, 3]) == [b"\3" * 7, b"\0" * 5, b"\3" * 7]
    assert find_damage(name(path)) is None
    assert find_damage(name(path), 95) is None


def test_an_empty_file_has_no_record(tmp_path: Path) -> None:
    (tmp_path / "data").touch()
    assert count_records(name(tmp_path / "data")) == 0
    with pytest.raises(UserError, match=r"data has 0 records now, fewer than it had"):
        read_record(name(tmp_path / "data"), 0)


@pytest.mark.parametrize("lost", [1, 4, 10, 22])
def test_a_file_that_is_cut_short(path: Path, lost: int) -> None:
    path.write_bytes(path.read_bytes()[:-lost])
    message = rf"data: the file is cut short: it ends at byte {116 - lost}, within record 3, which begins at byte 93\."
    with pytest.raises(UserError, match=message):
        count_records(name(path))
    _, last = read_records(name(path), [2, 3])
    assert isinstance(last, UserError)


@pytest.mark.parametrize("place", [38, 44, 45])
def test_a_damaged_length(path: Path, place: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record_file, "_HEADERS_AT_A_TIME", 2)
    damage(path, place)
    with pytest.raises(UserError, match=r"data: damaged at byte 37: the length of record 2 does not match"):
        count_records(name(path))
    good, bad = read_records(name(path), [0, 3])
    assert good == b"\0" * 5
    assert "damaged at byte 37" in str(bad)


@pytest.mark.parametrize("place", [49, 80, 92])
def test_damaged_data(path: Path, place: int) -> None:
    damage(path, place)
    assert count_records(name(path)) == 4
    message = r"data: damaged at byte 37: the data of record 2 do not match their checksum"
    with pytest.raises(UserError, match=message):
        read_record(name(path), 2)
    assert find_damage(name(path)) is None
    # TensorFlow says where the data begin.
    assert "damaged at byte 37" in str(find_damage(name(path), 49))
    with pytest.raises(tf.errors.DataLossError, match="corrupted record at 49"):
        list(tf.data.TFRecordDataset(str(path)))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"\x1f\x8b\x08" + bytes(50), "this is no TFRecord file.*compressed with gzip"),
        (b"\xff\xd8\xff\xe0" + bytes(50), r"this is no TFRecord file.*begins with b'.xff.xd8"),
        (b"hello", "is cut short: it ends at byte 5, within record 0"),
    ],
)
def test_other_files(tmp_path: Path, content: bytes, message: str) -> None:
    (tmp_path / "data").write_bytes(content)
    with pytest.raises(UserError, match=message):
        count_records(name(tmp_path / "data"))


def test_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"none: the file cannot be opened: No such file"):
        count_records(name(tmp_path / "none"))


def test_the_checksum_is_crc32c() -> None:
    # RFC 3720, appendix B.4: 32 bytes of zeros, of ones, and ascending.
    for data, crc in ((bytes(32), 0x8A9136AA), (b"\xff" * 32, 0x62A8AB43), (bytes(range(32)), 0x46DD794E)):
        assert record_file._crc_of(data) == crc
        assert record_file._crc(np.frombuffer(data, np.uint8)[np.newaxis]) == [crc]
