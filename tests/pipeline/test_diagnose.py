from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image

from slimexp.dataset.split import Split
from slimexp.pipeline.diagnose import Fault, explain_failure, explain_faults, find_fault, find_faults
from slimexp.pipeline.preprocessing import PlainPreprocessing


def write(folder: Path, contents: bytes) -> bytes:
    path = folder / "file.jpg"
    path.write_bytes(contents)
    return str(path).encode()


def reason(folder: Path, contents: bytes) -> str | None:
    fault = find_fault(write(folder, contents))
    assert fault is None or fault.is_bad_image
    return None if fault is None else fault.reason


def test_a_sound_file_has_no_fault(tmp_path: Path, photo: np.ndarray, encode: Callable) -> None:
    exif = Image.Exif()
    exif[0x0112] = 6
    for kind in ("JPEG", "PNG", "GIF", "BMP", "WEBP", "TIFF", "JPEG2000", "AVIF", "PPM"):
        assert reason(tmp_path, encode(photo, kind)) is None
    assert reason(tmp_path, encode(photo, exif=exif)) is None
    assert reason(tmp_path, encode(photo) + b"a trailer") is None
    assert reason(tmp_path, encode(Image.fromarray(photo).convert("CMYK"))) is None


def test_what_cannot_be_opened_is_no_bad_image(tmp_path: Path) -> None:
    missing = Fault("there is no such file", is_bad_image=False)
    assert find_fault(str(tmp_path / "none.jpg").encode()) == missing
    assert find_fault(bytes(tmp_path) + b"/\xff\xfe.jpg") == missing
    assert find_fault(str(tmp_path).encode()) == Fault("the file cannot be opened: Is a directory", is_bad_image=False)


def test_what_is_no_image(tmp_path: Path) -> None:
    assert reason(tmp_path, b"") == "the file is empty (0 bytes)"
    assert reason(tmp_path, b"<html>") == (
        "it is a web page, not a JPEG, PNG, GIF, BMP, WebP, TIFF, JPEG 2000, AVIF or PNM image"
    )
    assert (reason(tmp_path, b"a list of things") or "").startswith("it is something that begins with b'a list of ")


def test_damage_is_described(tmp_path: Path, photo: np.ndarray, encode: Callable) -> None:
    jpeg, png = encode(photo), encode(photo, "PNG")
    half = reason(tmp_path, jpeg[: len(jpeg) // 2])
    assert half == f"the JPEG is cut short or damaged: {len(jpeg) // 2} bytes, without the end marker"
    ended = reason(tmp_path, jpeg[: len(jpeg) // 2] + b"\xff\xd9")
    assert ended is not None
    assert ended.startswith("the JPEG is cut short: its pixel data end at byte ")
    header = reason(tmp_path, b"\xff\xd8\xff" + jpeg[500:])
    assert header is not None
    assert header.startswith("the JPEG is damaged or of a kind that cannot be read (")
    for noise in ("function_node", "[Op:", "Traceback"):
        assert noise not in header
    for contents in (png[:-3000], png[:20], encode(photo, "BMP")[:-500], encode(photo, "WEBP")[:-3000], b"BM"):
        assert "is damaged or of a kind that cannot be read (" in (reason(tmp_path, contents) or "")
    assert reason(tmp_path, encode(photo[:, :, 0].astype(np.float32), "TIFF")) == (
        "the TIFF has floating-point pixels, of unknown range; save it with 8 or 16 bits"
    )


def test_many_files_do_not_build_many_graphs(
    tmp_path: Path, photo: np.ndarray, encode: Callable, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        for width in range(20, 30):
            assert reason(tmp_path, encode(photo[:20, :width])) is None
    assert not caplog.records


def test_each_bad_file_of_a_batch_is_named(split: Split, damaged: Callable) -> None:
    bad = damaged({3: b"", 5: b"text", 8: None})
    faults = find_faults(bad, [8, 2, 3, 5, 3])
    assert list(faults) == [8, 3, 5]
    error = explain_failure(
        ValueError("the cause"),
        split=bad,
        preprocessing=PlainPreprocessing(8, is_training=False),
        indices=[8, 2, 3, 5],
        draws=np.zeros([4, 0], np.float32),
    )
    lines = str(error).splitlines()
    assert lines[0] == "3 images of a batch of 4 cannot be read:"
    assert lines[1].startswith("  train.txt:9: ")
    assert lines[1].endswith("bad 8.jpg': there is no such file")
    assert lines[-1] == "Mend or replace the files, or take them out of train.txt."
    assert str(error.__cause__) == "the cause"
    del faults[8]
    message = explain_faults(faults, split=bad, batch_size=4)
    assert message.splitlines()[-1].endswith(
        "out of train.txt; dataset.on_bad_image=skip leaves such files out, up to a limit."
    )


class Failing(PlainPreprocessing):
    num_draws = 1

    def __init__(self, stage: str) -> None:
        super().__init__(8, is_training=False)
        self._stage = stage

    def window(self, height: tf.Tensor, width: tf.Tensor, draws: tf.Tensor) -> tf.Tensor:
        assert draws.shape == [1]
        if self._stage == "window":
            raise RuntimeError("my own fault")
        return tf.stack([0, 0, height + (1 if self._stage == "outside" else 0), width])

    def finish(self, image: tf.Tensor, draws: tf.Tensor) -> tf.Tensor:
        if self._stage == "finish":
            raise RuntimeError("my own fault")
        return super().finish(image, draws)


@pytest.mark.parametrize(
    ("stage", "message"),
    [
        ("window", r"Failing.window failed on train.txt:3: '.*2.jpg', though the file is sound: RuntimeError: my own"),
        ("outside", r"Failing.window failed on .*ValueError: the window \(y 0, x 0, height 48, width 33\) leaves the"),
        ("finish", r"Failing.finish failed on train.txt:3: .*: RuntimeError: my own fault"),
        ("nowhere", "A batch could not be made, yet each of its images can be read .* The pipeline said: the cause"),
    ],
)
def test_the_stage_that_failed_is_named(split: Split, stage: str, message: str) -> None:
    error = explain_failure(
        ValueError("the cause"),
        split=split,
        preprocessing=Failing(stage),
        indices=[2],
        draws=np.zeros([1, 1], np.float32),
    )
    with pytest.raises(type(error), match=message):
        raise error


def test_a_turned_picture_is_preprocessed_as_displayed(tmp_path: Path, photo: np.ndarray, encode: Callable) -> None:
    exif = Image.Exif()
    exif[0x0112] = 6
    split = Split("train", [write(tmp_path, encode(photo[:40, :60], exif=exif))], np.zeros(1, np.int32), "list")
    for is_applied, size in ((True, "height 61, width 40"), (False, "height 41, width 60")):
        error = explain_failure(
            ValueError("the cause"),
            split=split,
            preprocessing=Failing("outside"),
            indices=[0],
            draws=np.zeros([1, 1], np.float32),
            exif=is_applied,
        )
        assert size in str(error)
