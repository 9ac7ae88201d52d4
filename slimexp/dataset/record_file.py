"""TFRecord files as they lie on the disk: where each record begins, and whether it is whole. Without TensorFlow.

A record is its length (8 bytes, little-endian), a checksum of those 8 bytes (4), the data, and a checksum of the data
(4). The checksum is a CRC-32C (Castagnoli), turned and shifted so that one of data that hold checksums is another.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence

import numpy as np

from slimexp.errors import UserError

__all__ = ["RecordDamage", "count_records", "find_damage", "locate_damage", "read_record", "read_records"]

_HEADER_BYTES, _FOOTER_BYTES = 12, 4
# Headers checked at a time: a damaged length leads astray, but not far.
_HEADERS_AT_A_TIME = 1 << 14
_POLYNOMIAL = 0x82F63B78  # 0x1EDC6F41 with its bits reversed.
_MASK_DELTA = 0xA282EAD8


class RecordDamage(UserError):
    """A file is damaged from some record on, or that record's data are.

    Attributes:
        record: The record's number, counted from 0; all before it have sound headers.
        offset: The byte at which it begins.
    """

    def __init__(self, message: str, record: int, offset: int) -> None:
        super().__init__(message)
        self.record = record
        self.offset = offset


def count_records(path: bytes) -> int:
    """Counts a file's records by going from header to header; the data are not read.

    Raises:
        UserError: If a header is damaged or the file ends within a record; it names the file and the byte.
    """
    return sum(len(offsets) for offsets in _walk(path))


def read_record(path: bytes, number: int) -> bytes:
    """Reads one record.

    Args:
        path: The file.
        number: Which record, counted from 0.

    Raises:
        UserError: If the record is damaged or not there, or an earlier record's header is damaged.
    """
    (record,) = read_records(path, [number])
    if isinstance(record, UserError):
        raise record
    return record


def read_records(path: bytes, numbers: Sequence[int]) -> list[bytes | UserError]:
    """Reads some records, each once its turn comes on the way through the file's headers.

    Args:
        path: The file.
        numbers: Which records, counted from 0.

    Returns:
        For each the record, or what `read_record` would raise.
    """
    found: dict[int, bytes | UserError] = {}
    first = 0
    try:
        for offsets in _walk(path):
            for number in set(numbers):
                if first <= number < first + len(offsets):
                    try:
                        found[number] = _read_at(path, int(offsets[number - first]), number)
                    except UserError as error:
                        found[number] = error
            first += len(offsets)
            if first > max(numbers):
                break
    except UserError as error:
        damage = error
    else:
        damage = UserError(f"{_text(path)} has {first} records now, fewer than it had.")
    return [found.get(number, damage) for number in numbers]


def find_damage(path: bytes, near: int | None = None) -> str | None:
    """Looks for damage in a file.

    Args:
        path: The file.
        near: A byte within the record whose data are to be looked at; None looks at the headers alone.

    Returns:
        What is wrong and where, in words; None if nothing is.
    """
    damage = locate_damage(path, near)
    return None if damage is None else str(damage)


def locate_damage(path: bytes, near: int | None = None) -> UserError | None:
    """Does the same as `find_damage`, and returns an error: a `RecordDamage`, unless the file cannot be opened."""
    try:
        first = 0
        for offsets in _walk(path):
            if near is not None and offsets[0] <= near:
                place = int(np.searchsorted(offsets, near, side="right")) - 1
                _read_at(path, int(offsets[place]), first + place)
            first += len(offsets)
    except UserError as error:
        return error
    return None


def _walk(path: bytes) -> Iterator[np.ndarray]:
    """Yields where the records begin, int64 [k], a part of the file at a time; those before a damage come first."""
    try:
        file = os.open(path, os.O_RDONLY)
    except OSError as error:
        raise UserError(f"{_text(path)}: the file cannot be opened: {error.strerror}.") from error
    try:
        size = os.fstat(file).st_size
        offset = first = 0
        while offset < size:
            headers: list[bytes] = []
            offsets: list[int] = []
            while offset < size and len(offsets) < _HEADERS_AT_A_TIME:
                header = os.pread(file, _HEADER_BYTES, offset)
                offsets.append(offset)
                if len(header) < _HEADER_BYTES:
                    offset = size + 1
                    break
                headers.append(header)
                offset += _HEADER_BYTES + int.from_bytes(header[:8], "little") + _FOOTER_BYTES
            try:
                _check_headers(path, headers, offsets, first)
            except RecordDamage as damage:
                if damage.record > first:
                    yield np.array(offsets[: damage.record - first], np.int64)
                raise
            first += len(offsets)
            if offset > size:
                if len(offsets) > 1:
                    yield np.array(offsets[:-1], np.int64)
                raise RecordDamage(
                    f"{_text(path)}: the file is cut short: it ends at byte {size}, within record {first - 1}, which "
                    f"begins at byte {offsets[-1]}. Fetch or write the file again.",
                    first - 1,
                    offsets[-1],
                )
            yield np.array(offsets, np.int64)
    finally:
        os.close(file)


def _check_headers(path: bytes, headers: list[bytes], offsets: list[int], first: int) -> None:
    if not headers:
        return
    table = np.frombuffer(b"".join(headers), np.uint8).reshape(-1, _HEADER_BYTES)
    found = table[:, 8:].copy().view("<u4")[:, 0]
    bad = np.flatnonzero(_masked(_crc(table[:, :8])) != found)
    if not len(bad):
        return
    place = int(bad[0])
    if first + place == 0:
        start = headers[0]
        kind = f"it begins with {start!r}"
        if start.startswith(b"\x1f\x8b"):
            kind = "it is compressed with gzip (unpack it)"
        raise RecordDamage(f"{_text(path)}: this is no TFRecord file, or damaged at its beginning: {kind}.", 0, 0)
    raise RecordDamage(
        f"{_text(path)}: damaged at byte {offsets[place]}: the length of record {first + place} does not match its "
        "checksum. Fetch or write the file again.",
        first + place,
        offsets[place],
    )


def _read_at(path: bytes, offset: int, number: int) -> bytes:
    with open(path, "rb") as file:
        file.seek(offset)
        length = int.from_bytes(file.read(_HEADER_BYTES)[:8], "little")
        data = file.read(length)
        found = int.from_bytes(file.read(_FOOTER_BYTES), "little")
    if int(_masked(np.array([_crc_of(data)], np.uint32))[0]) != found:
        raise RecordDamage(
            f"{_text(path)}: damaged at byte {offset}: the data of record {number} do not match their checksum. Fetch "
            "or write the file again.",
            number,
            offset,
        )
    return data


def _make_table() -> np.ndarray:
    table = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        table = np.where(table & 1, (table >> 1) ^ np.uint32(_POLYNOMIAL), table >> 1).astype(np.uint32)
    return table


_TABLE = _make_table()
_TABLE_LIST = _TABLE.tolist()


def _crc(rows: np.ndarray) -> np.ndarray:
    """Computes the CRC-32C of each row, uint8 [n, k], as uint32 [n]."""
    crc = np.full(len(rows), 0xFFFFFFFF, np.uint32)
    for column in range(rows.shape[1]):
        crc = _TABLE[(crc ^ rows[:, column]) & np.uint32(0xFF)] ^ (crc >> np.uint32(8))
    return ~crc


def _crc_of(data: bytes) -> int:
    table, crc = _TABLE_LIST, 0xFFFFFFFF
    for byte in data:
        crc = table[(crc ^ byte) & 0xFF] ^ (crc >> 8)
    return crc ^ 0xFFFFFFFF


def _masked(crc: np.ndarray) -> np.ndarray:
    return ((crc >> np.uint32(15)) | (crc << np.uint32(17))) + np.uint32(_MASK_DELTA)


def _text(path: bytes) -> str:
    return path.decode("utf-8", "backslashreplace")
