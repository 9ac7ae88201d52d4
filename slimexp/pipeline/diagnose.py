"""Why a batch could not be made: which files are bad and what is wrong with each, or which stage failed."""

from __future__ import annotations

import concurrent.futures
import dataclasses
import functools
import os
import stat
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from slimexp.dataset.record_split import RecordSplit
from slimexp.dataset.split import AnySplit
from slimexp.errors import UserError
from slimexp.pipeline.images.decode import decode_window
from slimexp.pipeline.images.formats import READABLE_FORMATS, BadImage, describe, identify
from slimexp.pipeline.images.jpeg_data import check_pixel_data
from slimexp.pipeline.images.jpeg_header import find_end, read_jpeg_header
from slimexp.pipeline.images.pillow_decode import cause_of, decode_in_python
from slimexp.pipeline.preprocessing.base import PreprocessingLike
from slimexp.pipeline.record_faults import read_pictures
from slimexp.pipeline.steps import StepError, inner_of

__all__ = [
    "Fault",
    "explain_failure",
    "explain_faults",
    "find_fault",
    "find_fault_in",
    "find_faults",
    "read_image_file",
]

_MOST_THREADS = 8


@dataclasses.dataclass(frozen=True)
class Fault:
    """What is wrong with a file.

    Attributes:
        reason: In words that follow the file's name and a colon.
        is_bad_image: Whether the file could be read and its contents are the trouble. Only such a file may be skipped;
            one that is not there or may not be opened points to something amiss around it.
    """

    reason: str
    is_bad_image: bool = True


def explain_failure(
    error: Exception,
    *,
    split: AnySplit,
    preprocessing: PreprocessingLike,
    indices: Sequence[int],
    draws: np.ndarray,
    exif: bool = True,
) -> UserError:
    """Reads the examples of a failed batch again, one by one, to say what the matter is.

    Args:
        error: What the pipeline raised.
        split: The examples.
        preprocessing: The preprocessing that ran.
        indices: The batch's example numbers.
        draws: float32 [len(indices), num_draws], their random numbers.
        exif: Whether EXIF orientations were applied.

    Returns:
        An error to raise. It names every bad file of the batch with the reason; or, when the files are sound, the
        stage that failed and the example it failed on, with that failure as its cause.
    """
    faults = find_faults(split, indices, exif=exif)
    if faults:
        return _caused(explain_faults(faults, split=split, batch_size=len(indices)), error)
    for index, row in zip(indices, draws, strict=True):
        failure = _run_stages(split, index, preprocessing, tf.constant(row, tf.float32), exif)
        if failure is not None:
            stage, cause = failure
            if isinstance(cause, StepError):
                return _caused(f"{cause} The image was {_name(split, index)}, whose file is sound.", cause)
            return _caused(
                f"{stage} failed on {_name(split, index)}, though the file is sound: "
                f"{type(cause).__name__}: {cause_of(cause)}",
                cause,
            )
    return _caused(
        "A batch could not be made, yet each of its images can be read and preprocessed now. A file system that "
        "fails now and then would explain it; start again to go on from the last checkpoint. The pipeline said: "
        f"{cause_of(error)}",
        error,
    )


def explain_faults(faults: Mapping[int, Fault], *, split: AnySplit, batch_size: int) -> str:
    """Returns the message that names a batch's bad files."""
    count = "1 image" if len(faults) == 1 else f"{len(faults)} images"
    lines = [f"  {_name(split, index)}: {fault.reason}" for index, fault in faults.items()]
    way_out = f"Mend or replace the files, or take them out of {split.source}"
    if isinstance(split, RecordSplit):
        way_out = "Write the shards again without these records, or with good ones"
    if all(fault.is_bad_image for fault in faults.values()):
        what = "records" if isinstance(split, RecordSplit) else "files"
        way_out += f"; dataset.on_bad_image=skip leaves such {what} out, up to a limit"
    return f"{count} of a batch of {batch_size} cannot be read:\n" + "\n".join(lines) + f"\n{way_out}."


def find_faults(split: AnySplit, indices: Iterable[int], *, exif: bool = True) -> dict[int, Fault]:
    """Reads and decodes some examples' files, several at a time.

    Args:
        split: The examples.
        indices: Their numbers; each is looked at once.
        exif: Whether EXIF orientations are applied.

    Returns:
        The faults of those that have one, in the order asked for.
    """
    indices = list(dict.fromkeys(indices))
    if isinstance(split, RecordSplit):
        pictures = read_pictures(split, indices)

        def find(index: int) -> Fault | None:
            picture = pictures[index]
            return Fault(picture, is_bad_image=False) if isinstance(picture, str) else find_fault_in(picture, exif=exif)
    else:

        def find(index: int) -> Fault | None:
            return find_fault(split.paths[index], exif=exif)

    workers = min(_MOST_THREADS, os.cpu_count() or 1)
    with concurrent.futures.ThreadPoolExecutor(workers, "slimexp_diagnose") as pool:
        faults = pool.map(find, indices)
        return {index: fault for index, fault in zip(indices, faults, strict=True) if fault is not None}


def find_fault(path: bytes, *, exif: bool = True) -> Fault | None:
    """Reads and decodes an image file, by the pipeline's own code.

    Args:
        path: The file's name.
        exif: Whether EXIF orientations are applied.

    Returns:
        What is wrong with the file, or None if it is sound.
    """
    contents = read_image_file(path)
    return contents if isinstance(contents, Fault) else find_fault_in(contents, exif=exif)


def read_image_file(path: bytes) -> bytes | Fault:
    """Reads a file, or says why it cannot be read."""
    try:
        mode = os.stat(path).st_mode
        if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
            # Reading a named pipe or a socket would wait without end.
            return Fault("it is not a regular file, but a pipe, a socket or a device", is_bad_image=False)
        with open(path, "rb") as file:
            return file.read()
    except FileNotFoundError:
        what = "it is a link to nothing" if os.path.islink(path) else "there is no such file"
        return Fault(what, is_bad_image=False)
    except ValueError:
        return Fault("its name has a NUL byte, which no file name can have", is_bad_image=False)
    except OSError as error:
        return Fault(f"the file cannot be opened: {error.strerror}", is_bad_image=False)


def find_fault_in(contents: bytes, *, exif: bool = True) -> Fault | None:
    """Decodes an image file's contents; see `find_fault`."""
    kind = identify(contents)
    if not contents:
        return Fault("the file is empty (0 bytes)")
    if kind is None:
        return Fault(f"it is {describe(contents)}, not a {READABLE_FORMATS} image")
    try:
        with tf.device("/CPU:0"):
            _decode_whole(exif)(tf.constant(contents))
    except Exception as error:
        return Fault(_reason(contents, kind, error, exif))
    if kind == "JPEG" and (missing := check_pixel_data(contents, read_jpeg_header(contents))) is not None:
        return Fault(missing)
    return None


@functools.cache
def _decode_whole(exif: bool) -> Any:
    # Asked for a size of 1, it decodes all of a JPEG's data, but makes an eighth of the picture of them.
    return tf.function(
        lambda contents: decode_window(
            contents, lambda height, width: tf.stack([0, 0, height, width]), exif=exif, size_px=1
        ),
        input_signature=[tf.TensorSpec([], tf.string)],
        autograph=False,  # Looking for Python's `if` takes seconds, and there is none on tensors.
    )


def _reason(contents: bytes, kind: str, error: Exception, exif: bool) -> str:
    """Says in words why a picture could not be decoded."""
    try:
        if kind == "JPEG":
            header = read_jpeg_header(contents)
            find_end(contents, header)
            if (missing := check_pixel_data(contents, header)) is not None:
                return missing
        else:
            decode_in_python(contents, exif=exif)
    except BadImage as fault:
        return str(fault)
    return f"the {kind} is damaged or of a kind that cannot be read ({cause_of(error)})"


def _run_stages(
    split: AnySplit, index: int, preprocessing: PreprocessingLike, draws: tf.Tensor, exif: bool
) -> tuple[str, Exception] | None:
    """Runs the pipeline's stages for one example; returns the one that fails, with its exception."""
    name = type(inner_of(preprocessing)).__name__
    stage = f"{name}.window"
    try:
        with tf.device("/CPU:0"):
            contents = _contents(split, index)
            height, width = _shown_size(contents.numpy(), exif)
            window = preprocessing.window(tf.constant(height), tf.constant(width), draws)
            y, x, rows, columns = (int(number) for number in window)
            if min(y, x) < 0 or min(rows, columns) < 1 or y + rows > height or x + columns > width:
                raise ValueError(
                    f"the window (y {y}, x {x}, height {rows}, width {columns}) leaves the picture of height "
                    f"{height} and width {width}"
                )
            stage = "Decoding the window"
            image = decode_window(contents, lambda *_: tf.constant([y, x, rows, columns]), exif=exif)
            stage = f"{name}.finish"
            preprocessing.finish(image, draws)
    except Exception as error:
        return stage, error
    return None


def _contents(split: AnySplit, index: int) -> tf.Tensor:
    return (
        tf.constant(read_pictures(split, [index])[index])
        if isinstance(split, RecordSplit)
        else tf.io.read_file(split.paths[index])
    )


def _shown_size(contents: bytes, exif: bool) -> tuple[int, int]:
    """Returns the height and width of a sound picture as displayed."""
    if identify(contents) != "JPEG":
        height, width = decode_in_python(contents, exif=exif).shape[:2]
        return height, width
    header = read_jpeg_header(contents)
    swaps = exif and header.orientation >= 5
    return (header.width, header.height) if swaps else (header.height, header.width)


def _name(split: AnySplit, index: int) -> str:
    # repr, so that blanks and other characters that cannot be seen show.
    return f"{split.origin(index)}: {split.path(index)!r}"


def _caused(message: str, cause: BaseException) -> UserError:
    error = UserError(message)
    error.__cause__ = cause
    return error
