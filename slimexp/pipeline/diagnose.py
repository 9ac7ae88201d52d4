"""Why a batch could not be made: which files are bad and what is wrong with each, or which stage failed."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from slimexp.dataset.split import Split
from slimexp.errors import UserError
from slimexp.pipeline.decode import decode_whole, decode_window
from slimexp.pipeline.preprocessing.base import PreprocessingLike

__all__ = ["explain_failure", "find_fault"]

# What files begin with, in the order in which they are tried.
_READABLE = {
    b"\xff\xd8\xff": "JPEG",
    b"\x89PNG\r\n\x1a\n": "PNG",
    b"GIF8": "GIF",
    b"BM": "BMP",
}
_OTHERS = {
    b"II*\0": "a TIFF image",
    b"MM\0*": "a TIFF image",
    b"8BPS": "a Photoshop file",
    b"%PDF": "a PDF",
    b"PK\x03\x04": "a ZIP archive",
    b"\x1f\x8b": "a gzip archive",
    b"version https://git-lfs": "a Git LFS pointer, so the file itself was never fetched",
    b"<?xml": "XML",
    b"<svg": "an SVG drawing",
    b"<!doctype html": "a web page",
    b"<html": "a web page",
}


def explain_failure(
    error: Exception,
    *,
    split: Split,
    preprocessing: PreprocessingLike,
    indices: Sequence[int],
    seeds: np.ndarray,
) -> UserError:
    """Reads the examples of a failed batch again, one by one, to say what the matter is.

    Args:
        error: What the pipeline raised.
        split: The examples.
        preprocessing: The preprocessing that ran.
        indices: The batch's example numbers.
        seeds: int64 [len(indices), 2], their seeds.

    Returns:
        An error to raise. It names every bad file of the batch with the reason; or, when the files are sound, the
        stage that failed and the example it failed on, with that failure as its cause.
    """
    faults = {}
    for index in dict.fromkeys(indices):
        fault = find_fault(split.paths[index])
        if fault is not None:
            faults[index] = fault
    if faults:
        count = "1 image" if len(faults) == 1 else f"{len(faults)} images"
        lines = [f"  {_name(split, index)}: {fault}" for index, fault in faults.items()]
        return _caused(
            f"{count} of a batch of {len(indices)} cannot be read:\n" + "\n".join(lines) + "\n"
            f"Mend or replace the files, or take them out of {split.source}.",
            error,
        )
    for index, seed in zip(indices, seeds, strict=True):
        failure = _run_stages(split.paths[index], preprocessing, tf.constant(seed, tf.int64))
        if failure is not None:
            stage, cause = failure
            return _caused(
                f"{stage} failed on {_name(split, index)}, though the file is sound: "
                f"{type(cause).__name__}: {_message(cause)}",
                cause,
            )
    return _caused(
        "A batch could not be made, yet each of its images can be read and preprocessed now. A file system that "
        "fails now and then would explain it; start again to go on from the last checkpoint. The pipeline said: "
        f"{_message(error)}",
        error,
    )


def find_fault(path: bytes) -> str | None:
    """Reads and decodes an image file.

    Args:
        path: The file's name.

    Returns:
        What is wrong with the file, or None if it is sound.
    """
    try:
        with open(path, "rb") as file:
            contents = file.read()
    except FileNotFoundError:
        return "there is no such file"
    except OSError as error:
        return f"the file cannot be opened: {error.strerror}"
    if not contents:
        return "the file is empty (0 bytes)"
    kind = _readable_kind(contents)
    if kind is None:
        return f"it is {_describe(contents)}, not a JPEG, PNG, GIF, BMP or WebP image"
    try:
        with tf.device("/CPU:0"):
            decode_whole(tf.constant(contents))
    except Exception as error:
        if kind == "JPEG" and not contents.endswith(b"\xff\xd9"):
            return f"the JPEG is cut short or damaged: {len(contents)} bytes, without the end marker"
        unreadable = _unreadable_variant(kind, contents)
        if unreadable is not None:
            return unreadable
        return f"the {kind} is damaged or of a kind that cannot be read ({_message(error)})"
    return None


def _run_stages(path: bytes, preprocessing: PreprocessingLike, seed: tf.Tensor) -> tuple[str, Exception] | None:
    """Runs the pipeline's stages for one example; returns the one that fails, with its exception."""
    name = type(preprocessing).__name__
    stage = f"{name}.window"
    try:
        with tf.device("/CPU:0"):
            contents = tf.io.read_file(path)
            height, width = (int(side) for side in decode_whole(contents).shape[:2])
            window = preprocessing.window(tf.constant(height), tf.constant(width), seed)
            y, x, rows, columns = (int(number) for number in window)
            if min(y, x) < 0 or min(rows, columns) < 1 or y + rows > height or x + columns > width:
                raise ValueError(
                    f"the window (y {y}, x {x}, height {rows}, width {columns}) leaves the picture of height "
                    f"{height} and width {width}"
                )
            stage = "Decoding the window"
            image = decode_window(contents, lambda *_: window)
            stage = f"{name}.finish"
            preprocessing.finish(image, seed)
    except Exception as error:
        return stage, error
    return None


def _name(split: Split, index: int) -> str:
    # repr, so that blanks and other characters that cannot be seen show.
    return f"{split.origin(index)}: {split.path(index)!r}"


def _readable_kind(contents: bytes) -> str | None:
    if contents[:4] == b"RIFF" and contents[8:12] == b"WEBP":
        return "WebP"
    return next((kind for magic, kind in _READABLE.items() if contents.startswith(magic)), None)


def _unreadable_variant(kind: str, contents: bytes) -> str | None:
    """Says what to do about a sound file of a kind that TensorFlow reads only in part; None: it is none of these."""
    if kind == "WebP" and contents[12:16] == b"VP8X" and contents[20] & 0x12 == 0x02:  # Animation, and no alpha.
        return (
            "it is an animated WebP without transparency, which cannot be read; save its first frame as a still picture"
        )
    if kind == "BMP" and len(contents) >= 34:
        header_bytes, bits = int.from_bytes(contents[14:18], "little"), int.from_bytes(contents[28:30], "little")
        if header_bytes < 40:
            return "it is a BMP with the old OS/2 header, which cannot be read; save it as a PNG"
        if bits not in (8, 24, 32):
            count = "1 bit" if bits == 1 else f"{bits} bits"
            return f"it is a BMP of {count} a pixel, and only 8, 24 and 32 can be read; save it as a PNG"
        if int.from_bytes(contents[30:34], "little") in (1, 2):
            return "it is a run-length encoded BMP, which cannot be read; save it as a PNG"
    return None


def _describe(contents: bytes) -> str:
    start = contents[:64].removeprefix(b"\xef\xbb\xbf").lstrip().lower()
    for magic, what in _OTHERS.items():
        if contents.startswith(magic) or start.startswith(magic.lower()):
            return what
    if contents[4:8] == b"ftyp":
        return f"an ISO media file ({contents[8:12].decode('ascii', 'replace')}: HEIC, AVIF or video)"
    if not any(contents[:4096]):
        return f"{len(contents)} bytes that begin with zeros alone"
    return f"something that begins with {contents[:12]!r}"


def _message(error: BaseException) -> str:
    """Returns an error's message without TensorFlow's notes on the graph."""
    text = error.message if isinstance(error, tf.errors.OpError) else str(error)
    text = re.sub(r"\{\{function_node [^}]*\}\}\s*|\s*\[Op:\w+\]( name: *)?", "", text)
    return text.strip() or "no message"


def _caused(message: str, cause: BaseException) -> UserError:
    error = UserError(message)
    error.__cause__ = cause
    return error
