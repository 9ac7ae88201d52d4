"""Reading files of which some are bad: each is named with its fault, the others come through in order."""

from __future__ import annotations

import os

import pytest

from slimexp.export.reading import AllBadError, BadFiles, FileReader, as_split
from slimexp.pipeline import Feed, PipelineSettings
from slimexp.pipeline.preprocessing import PlainPreprocessing
from tests.export.pictures import encoded, smooth

# `odd` is whole, but for its pixels: that shows only as it is decoded.
BAD = {
    "empty.jpg": (b"", "the file is empty (0 bytes)"),
    "text.png": (b"not a picture", "it is something that begins with b'not a pictur'"),
    "half.jpg": (None, "the JPEG is cut short or damaged"),
    "half.png": (None, "the PNG is damaged"),
    "odd.png": (None, "the PNG is damaged"),
}


@pytest.fixture
def files(tmp_path):
    def files(*names):
        for number, name in enumerate(names):
            content = encoded(smooth(20, 20, seed=number), "PNG" if name.endswith("png") else "JPEG")
            if name.startswith("half"):
                content = content[: len(content) // 2]
            elif name.startswith("odd"):
                at = content.index(b"IDAT") + 10
                content = content[:at] + bytes(len(content) - at - 12) + content[-12:]
            elif name in BAD:
                content = BAD[name][0]
            if not name.startswith("missing"):
                (tmp_path / name).write_bytes(content)
        return [os.fsencode(tmp_path / name) for name in names]

    return files


def read(paths, batch_size=3):
    """Returns each file's fault, or the mean of its pixels."""
    split, reader = as_split(paths, "test"), FileReader()
    bad = BadFiles(split, reader)
    found = []
    feed = Feed(
        split,
        preprocessing=PlainPreprocessing(8),
        settings=PipelineSettings(threads=2, readers=2, batch_size=batch_size, decoder="tensorflow"),
        seed=0,
        is_training=False,
        read_file=reader,
        skipped=bad,
    )
    with feed:
        for batch in feed:
            for image in batch["image"].numpy():
                if len(found) < len(paths):
                    found.append(bad.reason(len(found)) or image.mean())
    return found


def test_faults_are_named_and_the_others_come_in_order(files):
    good = files("0.jpg", "1.jpg", "2.png", "3.jpg")
    paths = [
        good[0],
        *files("missing.jpg", "empty.jpg", "half.jpg"),
        good[1],
        *files("text.png", "half.png", "odd.png"),
        good[2],
        good[0],
        good[3],
    ]
    found = read(paths)
    names = {2: "empty.jpg", 3: "half.jpg", 5: "text.png", 6: "half.png", 7: "odd.png"}
    for place, text in {1: "there is no such file", **{place: BAD[name][1] for place, name in names.items()}}.items():
        assert found[place].startswith(text)
    assert [found[place] for place in (0, 4, 8, 9, 10)] == read([good[0], good[1], good[2], good[0], good[3]])


def test_a_whole_batch_of_damaged_pictures_is_passed_over(files):
    bad = files("odd.png", "odd2.png", "missing.jpg")
    good = files("0.jpg")
    found = read([*bad, *good, *bad[:2]])
    assert [isinstance(entry, str) for entry in found] == [True, True, True, False, True, True]


def test_nothing_but_bad_files_ends(files):
    with pytest.raises(AllBadError):
        read(files("odd.png", "half.png"), batch_size=2)
    # These need no decoding to be known, so that nothing fails.
    found = read(files("missing.jpg", "empty.jpg", "text.png"), batch_size=2)
    assert all(isinstance(entry, str) for entry in found)


def test_a_file_that_may_not_be_opened_says_why(tmp_path):
    reader = FileReader()
    reader.read(os.fsencode(tmp_path))
    reader.read(b"a\0b")
    assert list(reader.faults.values()) == [
        "the file cannot be opened: Is a directory",
        "the file cannot be opened: embedded null byte",
    ]
