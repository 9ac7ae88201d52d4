"""Reads and writes whole TFRecord files. TensorFlow computes the checksums, which Python would take minutes for."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

from slimexp.dataset.record_file import read_record
from slimexp.errors import UserError

__all__ = ["ShardWriter", "read_shard", "shard_names"]


def read_shard(shard: bytes, count: int) -> Iterator[bytes | UserError]:
    """Reads a file's records, past those whose data are damaged.

    Args:
        shard: The file; its headers are sound.
        count: How many records it has.

    Yields:
        Each record, or for a damaged one what is wrong.

    Raises:
        UserError: If the file cannot be read, or has not so many records any more.
    """
    import tensorflow as tf

    from slimexp.pipeline.dataset_iterator import elements

    path = shard.decode("utf-8", "backslashreplace")
    number = 0
    while number < count:
        try:
            # What is skipped is not held against its checksum, so this gets past the damage.
            for record in elements(tf.data.TFRecordDataset(shard).skip(number)):
                yield record.numpy()
                number += 1
        except tf.errors.OpError as error:
            try:
                read_record(shard, number)
            except UserError as damage:
                yield damage
                number += 1
            else:
                raise UserError(f"{path}: record {number} cannot be read: {error.message}") from error
        else:
            if number != count:
                raise UserError(f"{path} has {number} records now, not {count}; nothing may write to it meanwhile.")


def shard_names(split: str, num_shards: int) -> list[str]:
    """Returns what a split's files are called."""
    return [f"{split}-{number:05d}-of-{num_shards:05d}.tfrecord" for number in range(num_shards)]


class ShardWriter:
    """Writes records into files, of which each takes an equal part of the positions.

    The files are all there once `finish` was called, also those without a record.
    """

    def __init__(self, folder: str, split: str, num_shards: int, num_positions: int) -> None:
        self._paths = [os.path.join(folder, name) for name in shard_names(split, num_shards)]
        # Where each file's part ends.
        self._ends = [num_positions * (number + 1) // num_shards for number in range(num_shards)]
        self._number = -1
        self._writer: Any = None

    def write(self, position: int, record: bytes) -> None:
        """Writes a record; positions come in order, and some may be left out."""
        while self._number < 0 or position >= self._ends[self._number]:
            self._open_next()
        with _as_os_error():
            self._writer.write(record)

    def finish(self) -> None:
        """Writes what is left to write."""
        while self._number < len(self._paths) - 1:
            self._open_next()
        self.close()

    def close(self) -> None:
        """Closes the file that is open, if there is one."""
        writer, self._writer = self._writer, None
        if writer is not None:
            with _as_os_error():
                writer.close()

    def _open_next(self) -> None:
        import tensorflow as tf

        self.close()
        with _as_os_error():
            self._number += 1
            self._writer = tf.io.TFRecordWriter(self._paths[self._number])


class _as_os_error:  # noqa: N801 - it reads as the statement that it is
    """Makes an error of TensorFlow's files, such as a full disk, what Python's files raise."""

    def __enter__(self) -> None:
        return

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        import tensorflow as tf

        if isinstance(error, tf.errors.OpError):
            raise OSError(error.message) from error
