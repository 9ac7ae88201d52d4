"""The list of every kind of odd or broken image file: each gives the right image, or is named with a reason.

All of them go through the training feed, by both decoders, and through the check.
"""

from __future__ import annotations

import dataclasses
import io
import os
import re
import struct
import zipfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image, ImageOps
from sklearn.datasets import load_sample_images

from slimexp.dataset.split import Split
from slimexp.errors import UserError
from slimexp.pipeline import Feed, PipelineSettings
from slimexp.pipeline.check.examine import Examiner, Finding
from slimexp.pipeline.check.walk import walk
from slimexp.pipeline.native import ops
from slimexp.pipeline.preprocessing import PlainPreprocessing
from slimexp.pipeline.skipping import SkippedImages

SIZE_PX = 32
DECODERS = [
    "tensorflow",
    pytest.param("native", marks=pytest.mark.skipif(not ops.available(), reason="The native op is not built.")),
]
PHOTO = Image.fromarray(load_sample_images().images[0]).resize((60, 40))
PIXELS = np.asarray(PHOTO)


@dataclasses.dataclass(frozen=True)
class Case:
    """A file and what is to become of it: a picture, uint8 [height, width, 3], or a reason."""

    name: str
    contents: bytes
    picture: np.ndarray | None = None
    reason: str = ""


def encoded(image: Image.Image, kind: str, **options: Any) -> bytes:
    buffer = io.BytesIO()
    # A copy, and for each a further frame of its own: Pillow leaves what it was told for one format in the image.
    further = {"append_images": [image.rotate(180)]} if options.get("save_all") else {}
    image.copy().save(buffer, kind, **options, **further)
    return buffer.getvalue()


def rgb(image: Image.Image) -> np.ndarray:
    return np.asarray(image.convert("RGB"))


def grey_png_of_16_bits(values: np.ndarray) -> bytes:
    def chunk(name: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))

    header = struct.pack(">IIBBBBB", values.shape[1], values.shape[0], 16, 0, 0, 0, 0)
    rows = b"".join(b"\0" + row.astype(">u2").tobytes() for row in values)
    parts = chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + parts


def with_adobe_transform(contents: bytes, transform: int) -> bytes:
    """Says that a JPEG's four channels are CMYK (0) or YCCK (2)."""
    at = contents.find(b"Adobe")
    return contents[: at + 11] + bytes([transform]) + contents[at + 12 :]


def ycck() -> tuple[bytes, np.ndarray]:
    """Encodes the photo as YCCK without black: YCbCr of its inversion, as Adobe's programs write it."""
    y, cb, cr = (np.asarray(band) for band in ImageOps.invert(PHOTO).convert("YCbCr").split())
    black = np.full_like(y, 255)
    planes = Image.merge("CMYK", [Image.fromarray(plane) for plane in (y, cb, cr, black)])
    # Pillow inverts on writing.
    inverted = Image.eval(planes, lambda value: 255 - value)
    return with_adobe_transform(encoded(inverted, "JPEG", quality=95, subsampling=0), 2), PIXELS


def sound_cases() -> list[Case]:
    jpeg = encoded(PHOTO, "JPEG", quality=95, subsampling=0)
    grey, palette, one_bit = PHOTO.convert("L"), PHOTO.quantize(32), PHOTO.convert("1")
    alpha, grey_alpha = PHOTO.copy(), grey.convert("LA")
    alpha.putalpha(grey)
    animated = {"save_all": True}
    deep = np.asarray(grey).astype(np.uint16) * 257
    cases = [
        Case("plain.jpg", jpeg, PIXELS),
        Case("progressive.jpg", encoded(PHOTO, "JPEG", quality=95, subsampling=0, progressive=True), PIXELS),
        Case("trailer.jpg", jpeg + b"and a note of the camera's", PIXELS),
        Case("restarts.jpg", encoded(PHOTO, "JPEG", quality=95, restart_marker_blocks=2), PIXELS),
        Case("grey.jpg", encoded(grey, "JPEG", quality=95), rgb(grey)),
        Case("cmyk.jpg", encoded(PHOTO.convert("CMYK"), "JPEG", quality=95, subsampling=0), PIXELS),
        Case("ycck.jpg", *ycck()),
        Case("two pictures.mpo", encoded(PHOTO, "MPO", quality=95, subsampling=0, **animated), PIXELS),
        Case("mid grey.jpg", encoded(Image.new("RGB", (50, 30), (128, 128, 128)), "JPEG"), np.full([30, 50, 3], 128)),
        Case("plain.png", encoded(PHOTO, "PNG"), PIXELS),
        Case("grey.png", encoded(grey, "PNG"), rgb(grey)),
        Case("grey alpha.png", encoded(grey_alpha, "PNG"), rgb(grey)),
        Case("alpha.png", encoded(alpha, "PNG"), PIXELS),
        Case("palette.png", encoded(palette, "PNG"), rgb(palette)),
        Case("one bit.png", encoded(one_bit, "PNG"), rgb(one_bit)),
        Case("sixteen bits.png", grey_png_of_16_bits(deep), rgb(grey)),
        Case("animated.png", encoded(PHOTO, "PNG", **animated), PIXELS),
        Case("plain.gif", encoded(palette, "GIF"), rgb(palette)),
        Case("animated.gif", encoded(palette, "GIF", **animated), rgb(palette)),
        Case("plain.bmp", encoded(PHOTO, "BMP"), PIXELS),
        Case("plain.tif", encoded(PHOTO, "TIFF"), PIXELS),
        Case("pages.tiff", encoded(PHOTO, "TIFF", compression="tiff_lzw", **animated), PIXELS),
        Case("plain.webp", encoded(PHOTO, "WEBP", quality=95), PIXELS),
        Case("animated.webp", encoded(PHOTO, "WEBP", lossless=True, **animated), PIXELS),
        Case("plain.jp2", encoded(PHOTO, "JPEG2000"), PIXELS),
        Case("plain.ppm", encoded(PHOTO, "PPM"), PIXELS),
        Case("a png.jpg", encoded(PHOTO, "PNG"), PIXELS),
        Case("a jpeg.png", jpeg, PIXELS),
        Case("no ending", jpeg, PIXELS),
        Case(
            "one pixel.png", encoded(Image.new("RGB", (1, 1), (200, 20, 90)), "PNG"), np.full([1, 1, 3], (200, 20, 90))
        ),
        Case("one pixel.jpg", encoded(Image.new("L", (1, 1), 77), "JPEG", quality=100), np.full([1, 1, 3], 77)),
        Case(
            "long.jpg", encoded(Image.new("RGB", (3000, 2), (9, 99, 200)), "JPEG"), np.full([2, 3000, 3], (9, 99, 200))
        ),
        Case("high.png", encoded(Image.new("RGB", (1, 900), (9, 99, 200)), "PNG"), np.full([900, 1, 3], (9, 99, 200))),
        Case("huge.jpg", encoded(Image.new("L", (12_000, 12_000), 90), "JPEG", quality=50), np.full([9, 9, 3], 90)),
        Case("étiquettes 中文.jpg", jpeg, PIXELS),
        Case('blank, comma, "quotes".jpg', jpeg, PIXELS),
        Case("line\nbreak.jpg", jpeg, PIXELS),
    ]
    for orientation in range(1, 9):
        exif = Image.Exif()
        exif[0x0112] = orientation
        contents = encoded(PHOTO, "JPEG", quality=95, subsampling=0, exif=exif)
        stored = PIXELS.swapaxes(0, 1) if orientation >= 5 else PIXELS
        flips = {2: (0, 1), 3: (1, 1), 4: (1, 0), 6: (0, 1), 7: (1, 1), 8: (1, 0)}.get(orientation, (0, 0))
        shown = stored[:: -1 if flips[0] else 1, :: -1 if flips[1] else 1]
        cases.append(Case(f"turned {orientation}.jpg", contents, shown))
    return cases


def broken_cases() -> list[Case]:
    large = Image.fromarray(load_sample_images().images[0])
    jpeg, png = encoded(large, "JPEG"), encoded(large, "PNG")
    progressive = encoded(large, "JPEG", progressive=True)
    half, end = len(jpeg) // 2, b"\xff\xd9"
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("a.jpg", jpeg)
    damaged = "is damaged or of a kind that cannot be read"
    cut = (
        "the JPEG is cut short: its pixel data end at byte .*, before the picture does, and an end marker stands there"
    )
    return [
        Case("empty.jpg", b"", reason="the file is empty \\(0 bytes\\)"),
        Case("text.jpg", b"These are no pixels.", reason="something that begins with b'These are no"),
        Case("page.jpg", b"<!DOCTYPE html><html>404</html>", reason="it is a web page, not a JPEG, PNG"),
        Case("archive.jpg", buffer.getvalue(), reason="it is a ZIP archive"),
        Case("zeros.jpg", bytes(5000), reason="5000 bytes that begin with zeros alone"),
        Case("pointer.jpg", b"version https://git-lfs.github.com/spec/v1\n", reason="a Git LFS pointer"),
        Case("phone.jpg", b"\0\0\0\x18ftypheic\0\0\0\0mif1heic", reason="HEIC or video"),
        Case("cut.jpg", jpeg[:half], reason="the JPEG is cut short or damaged: .* without the end marker"),
        Case("cut header.jpg", jpeg[:300], reason="the JPEG is cut short or damaged"),
        Case("cut with an end.jpg", jpeg[:half] + end, reason=cut),
        Case("cut late with an end.jpg", jpeg[:-2000] + end, reason=cut),
        Case("cut progressive with an end.jpg", progressive[: len(progressive) // 10] + end, reason="cut short: "),
        Case("cut.png", png[: len(png) // 2], reason=f"the PNG {damaged}"),
        Case("changed.png", png[:5000] + bytes([png[5000] ^ 255]) + png[5001:], reason=f"the PNG {damaged}"),
        Case("cut.gif", encoded(large.quantize(32), "GIF")[:900], reason=f"the GIF {damaged}"),
        Case("cut.bmp", encoded(PHOTO, "BMP")[:-900], reason=f"the BMP {damaged}"),
        Case("cut.webp", encoded(large, "WEBP")[:-900], reason=f"the WebP {damaged}"),
        Case("cut.tif", encoded(PHOTO, "TIFF")[:-900], reason=f"the TIFF {damaged}"),
        Case("bomb.png", encoded(Image.new("1", (14_000, 14_000)), "PNG"), reason="than the 178956970"),
        Case(
            "heights.tif", encoded(Image.fromarray(np.ones([9, 9], np.float32)), "TIFF"), reason="floating-point pixels"
        ),
    ]


def split_of(folder: Path, cases: list[Case]) -> Split:
    paths = []
    for case in cases:
        path = folder / case.name
        path.write_bytes(case.contents)
        paths.append(os.fsencode(path))
    return Split("train", paths, np.arange(len(cases), dtype=np.int32), "list.txt", np.arange(1, len(cases) + 1))


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[Case], Split]:
    cases = sound_cases()
    return cases, split_of(tmp_path_factory.mktemp("sound"), cases)


@pytest.fixture(scope="module")
def broken(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[Case], Split]:
    cases = broken_cases()
    return cases, split_of(tmp_path_factory.mktemp("broken"), cases)


def feed(split: Split, decoder: str, **options: Any) -> Feed:
    settings = PipelineSettings(batch_size=len(split), threads=2, readers=2, decoder=decoder)
    return Feed(
        split, preprocessing=PlainPreprocessing(SIZE_PX), settings=settings, seed=0, is_training=False, **options
    )


@pytest.mark.parametrize("decoder", DECODERS)
def test_odd_files_come_out_right(sound: tuple[list[Case], Split], decoder: str) -> None:
    cases, split = sound
    plain = PlainPreprocessing(SIZE_PX)
    with feed(split, decoder) as batches:
        images = np.concatenate([batch["image"].numpy()[batch["valid"].numpy()] for batch in batches])
    assert len(images) == len(cases)
    wrong = {}
    for case, image in zip(cases, images, strict=True):
        assert case.picture is not None
        expected = plain.finish(tf.constant(case.picture, tf.uint8), tf.zeros([1])).numpy()
        distance = np.abs(image - expected).mean() / plain.scale
        if distance > 4:
            wrong[case.name] = distance
    assert not wrong


def checked(split: Split, decoder: str) -> list[Finding]:
    found = list(walk(split, Examiner(decoder=decoder, threads=2), threads=2, readers=1))
    assert all(isinstance(finding, Finding) for finding in found)
    return sorted((f for f in found if isinstance(f, Finding)), key=lambda finding: finding.index)


@pytest.mark.parametrize("decoder", DECODERS)
def test_the_check_finds_nothing_in_odd_files(sound: tuple[list[Case], Split], decoder: str) -> None:
    cases, split = sound
    found = checked(split, decoder)
    assert {cases[finding.index].name: finding.fault for finding in found if finding.fault} == {}
    assert not [cases[finding.index].name for finding in found if finding.is_damaged]
    kinds = {cases[finding.index].name: finding.kind for finding in found}
    assert all(kinds.values())
    notes = {name: kind.notes for name, kind in kinds.items() if kind}
    assert notes["cmyk.jpg"] == notes["ycck.jpg"] == ["CMYK"]
    assert notes["grey alpha.png"] == ["grey", "with transparency (left out)"]
    assert notes["alpha.png"] == ["with transparency (left out)"]
    assert notes["palette.png"] == ["palette colours"]
    assert notes["one bit.png"] == ["1 bit"]
    assert notes["sixteen bits.png"] == ["grey", "16 bits a channel (brought to 8)"]
    for name in ("animated.png", "animated.gif", "animated.webp", "pages.tiff"):
        assert "several frames or pages (the first counts)" in notes[name]
    assert notes["progressive.jpg"] == ["progressive JPEG"]
    assert [kinds[f"turned {n}.jpg"].orientation for n in range(1, 9)] == list(range(1, 9))
    assert (kinds["huge.jpg"].height, kinds["huge.jpg"].width) == (12_000, 12_000)


@pytest.mark.parametrize("decoder", DECODERS)
def test_broken_files_are_named_alike_by_feed_and_check(
    broken: tuple[list[Case], Split], sound: tuple[list[Case], Split], decoder: str
) -> None:
    cases, split = broken
    # A good one in front, for what takes the places of the bad ones.
    paths = [sound[1].paths[0], *split.paths]
    split = Split(split.name, paths, np.zeros(len(paths), np.int32), split.source, np.arange(len(paths)))
    skipped = SkippedImages(split, path=None, max_fraction=1)
    with feed(split, decoder, skipped=skipped) as batches:
        valid = np.concatenate([batch["index"].numpy()[batch["valid"].numpy()] for batch in batches])
    by_feed = dict(skipped._reasons)
    by_check = {finding.index: finding.fault.reason for finding in checked(split, decoder) if finding.fault}
    assert valid.tolist() == [0]
    assert by_feed == by_check
    assert list(by_check) == list(range(1, len(paths)))
    wrong = {case.name: by_check[n] for n, case in enumerate(cases, 1) if not re.search(case.reason, by_check[n])}
    assert not wrong


def test_what_is_no_file_is_named_and_never_skipped(sound: tuple[list[Case], Split], tmp_path: Path) -> None:
    (tmp_path / "folder.jpg").mkdir()
    (tmp_path / "link.jpg").symlink_to("nowhere.jpg")
    os.mkfifo(tmp_path / "pipe.jpg")
    (tmp_path / "locked.jpg").write_bytes(sound[0][0].contents)
    (tmp_path / "locked.jpg").chmod(0)
    reasons = {
        b"folder.jpg": "the file cannot be opened: Is a directory",
        b"link.jpg": "it is a link to nothing",
        b"missing.jpg": "there is no such file",
        b"\xff\xfe.jpg": "there is no such file",
        b"pipe.jpg": "it is not a regular file, but a pipe, a socket or a device",
        b"locked.jpg": "the file cannot be opened: Permission denied",
    }
    if os.geteuid() == 0:
        del reasons[b"locked.jpg"]
    paths = [os.path.join(os.fsencode(tmp_path), name) for name in reasons]
    split = Split("train", paths, np.zeros(len(paths), np.int32), "list.txt")
    found = checked(split, "tensorflow")
    assert [finding.fault.reason for finding in found if finding.fault] == list(reasons.values())
    assert not any(finding.fault.is_bad_image for finding in found if finding.fault)
    # Reading a pipe would wait.
    readable = [path for path in paths if not path.endswith(b"pipe.jpg")]
    split = Split("train", readable, np.zeros(len(readable), np.int32), "list.txt")
    skipped = SkippedImages(split, path=None, max_fraction=1)
    with (
        feed(split, "tensorflow", skipped=skipped) as batches,
        pytest.raises(UserError, match="cannot be read:") as caught,
    ):
        next(batches)
    lines = [line for line in str(caught.value).splitlines() if line.startswith("  list.txt: ")]
    expected = [(os.path.basename(path).decode("utf-8", "backslashreplace"), path) for path in readable]
    assert len(lines) == len(expected)
    for line, (name, path) in zip(lines, expected, strict=True):
        assert name.removeprefix("\\xff\\xfe") in line
        assert line.endswith(f": {reasons[os.path.basename(path)]}")
