"""Decodes one file after another in full, by the decoder that training takes."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
from typing import Any

import numpy as np
import tensorflow as tf

from slimexp.pipeline.check.kinds import Kind, kind_of
from slimexp.pipeline.diagnose import Fault, find_fault_in
from slimexp.pipeline.native import build, ops

__all__ = ["DIGEST_BYTES", "Examiner", "Finding"]

DIGEST_BYTES = 16


@dataclasses.dataclass(frozen=True)
class Finding:
    """What became of one example.

    Attributes:
        index: Its number in the split.
        fault: What is wrong with it; None if it can be used.
        num_bytes: The size of its picture, encoded; 0 if it could not be read.
        digest: A hash of those bytes, `DIGEST_BYTES` long; None if they could not be read.
        kind: What the picture's header says, if it could be read.
        is_damaged: Whether decoding met with damage within a JPEG's pixel data, which leaves a picture all the same.
        labels: A record's labels, as in `Split`; None of a file.
    """

    index: int
    fault: Fault | None
    num_bytes: int = 0
    digest: bytes | None = None
    kind: Kind | None = None
    is_damaged: bool = False
    labels: np.ndarray | None = None


class Examiner:
    """Tells whether pictures are sound. May be used by several threads at once.

    Attributes:
        finds_damage: Whether damage in the midst of a JPEG's pixel data is found, of which TensorFlow does not tell.
    """

    def __init__(self, *, decoder: str = "auto", exif: bool = True, threads: int = 1) -> None:
        """Chooses the decoder.

        Args:
            decoder: As `pipeline.decoder`. The native op is made use of where it can be had, unless this is
                `tensorflow`.
            exif: Whether EXIF orientations are applied.
            threads: How many calls may come at once.
        """
        self._exif = exif
        self.finds_damage = decoder != "tensorflow" and build.ensure()[0] is not None
        self._decode_natively = _native_decoder(threads) if self.finds_damage else None

    def examine(self, index: int, contents: bytes, labels: np.ndarray | None = None) -> Finding:
        """Decodes a picture.

        Args:
            index: The example's number.
            contents: The picture, encoded.
            labels: The example's labels, to be handed on.
        """
        digest = hashlib.blake2b(contents, digest_size=DIGEST_BYTES).digest()
        made = functools.partial(Finding, index, num_bytes=len(contents), digest=digest, labels=labels)
        kind = kind_of(contents)
        is_left = False  # By the native op, which does take pictures of this kind.
        if self._decode_natively is not None and kind is not None and kind.format == "JPEG":
            with tf.device("/CPU:0"):
                is_taken, is_whole = self._decode_natively(tf.constant([contents]))
            if is_whole:
                return made(None, kind=kind)
            is_left = bool(is_taken)
        fault = find_fault_in(contents, exif=self._exif)
        return made(fault, kind=kind, is_damaged=is_left and fault is None)


@functools.cache
def _native_decoder(threads: int) -> Any:
    """Returns a function from one file's bytes, string [1], to whether the op takes it, and found it without damage."""

    @tf.function(input_signature=[tf.TensorSpec([1], tf.string)], autograph=False)
    def decode(contents: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        sizes, _ = ops.read_headers(contents, exif=False)
        last = tf.maximum(sizes, 1) - 1
        # For the last pixel alone all coded data have to be gone through, but no others are made of them.
        windows = tf.concat([last, tf.ones_like(last)], axis=1)
        _, is_done = ops.decode_windows(
            contents,
            windows,
            tf.ones([1], tf.int32),
            tf.constant([False]),
            size_px=1,
            threads=threads,
            pool="slimexp check",
        )
        return sizes[0, 0] > 0, is_done[0]

    return decode
