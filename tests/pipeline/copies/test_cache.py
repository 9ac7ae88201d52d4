"""Tests of slimexp.pipeline.copies.cache."""

from __future__ import annotations

import io
import logging
import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image

from slimexp.dataset.split import Split
from slimexp.errors import UserError
from slimexp.pipeline import Feed, PipelineSettings
from slimexp.pipeline.copies.cache import ShrunkCache, explain_short_side
from slimexp.pipeline.preprocessing import VggPreprocessing

Encode = Callable[..., bytes]
SHORT_SIDE = 100

# Makes the copies of all photos over and over.
RUN = """
import sys
import tensorflow as tf
from slimexp.pipeline.copies.cache import ShrunkCache

folder, *paths = sys.argv[1:]
cache = ShrunkCache(folder, short_side=100)
cache._folder.find = lambda name: None
print("ready", flush=True)
sys.stdin.readline()
while True:
    for path in paths:
        cache.read(tf.constant(path))
"""


@pytest.fixture
def photos(photo: np.ndarray, tmp_path: Path) -> list[str]:
    """The names of 12 photos of which no two are equal."""
    folder = tmp_path / "photos of [1] é"
    folder.mkdir()
    paths = [str(folder / f"{number}.jpg") for number in range(12)]
    for number, path in enumerate(paths):
        Image.fromarray(photo).rotate(9 * number).save(path, quality=80)
    return paths


@pytest.fixture
def cache_dir(tmp_path: Path) -> str:
    return str(tmp_path / "cache")


def cache_in(folder: str, **options: int) -> ShrunkCache:
    return ShrunkCache(folder, **{"short_side": SHORT_SIDE, **options})


def read_all(cache: ShrunkCache, paths: Sequence[str | bytes], *, readers: int = 3, locate: bool = True) -> list[bytes]:
    names = tf.data.Dataset.from_tensor_slices(list(paths)).batch(5)
    if locate:
        names = names.map(cache.locate)
    files = names.unbatch().map(cache.read, num_parallel_calls=readers, deterministic=True)
    return list(files.as_numpy_iterator())


def stored(cache_dir: str) -> list[Path]:
    return sorted(Path(cache_dir).glob("*/*/*.jpg"))


def size_of(contents: bytes) -> tuple[int, int]:
    return Image.open(io.BytesIO(contents)).size


def test_same_bytes_cold_and_warm_and_in_a_later_run(photos: list[str], cache_dir: str) -> None:
    cache = cache_in(cache_dir)
    cold = read_all(cache, photos)
    assert {size_of(contents) for contents in cold} == {(150, 100)}
    assert [contents.endswith(b"\xff\xd9") for contents in cold] == [True] * 12
    assert len(set(cold)) == 12
    assert sorted(path.read_bytes() for path in stored(cache_dir)) == sorted(cold)
    assert read_all(cache, photos, readers=1) == cold
    later = cache_in(cache_dir)
    assert read_all(later, photos) == cold
    assert read_all(later, photos, locate=False) == cold
    num_bytes = sum(map(len, cold))
    assert ": 12 made, 12 times one was read that was there, 0 files read as they are." in cache.summary()
    assert ": 0 made, 24 times one was read that was there" in later.summary()
    assert f" {cache_dir} holds 12 files of {num_bytes / 1000:.3g} KB together, and may hold 20 GB." in later.summary()


def test_read_works_eagerly(photos: list[str], cache_dir: str) -> None:
    cache = cache_in(cache_dir)
    made = cache.read(tf.constant(photos[0])).numpy()
    (located,) = cache.locate(tf.constant(photos[:1])).numpy()
    assert located.startswith(b"+")
    assert cache.read(tf.constant(located)).numpy() == made


def test_known_copies_are_read_without_python(
    photos: list[str], cache_dir: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    cold = read_all(cache_in(cache_dir), photos)
    later = cache_in(cache_dir)

    def refuse(path: bytes) -> None:
        raise AssertionError(path)

    monkeypatch.setattr(later, "_find_or_make", refuse)
    assert read_all(later, photos) == cold


def test_graph_has_no_state(cache_dir: str) -> None:
    # In deterministic mode TensorFlow would call a graph that has some for one image at a time. These are the names
    # that it gives to calls, conditionals and Python functions in which it sees state.
    for folder in (cache_dir, cache_dir + "*"):
        cache = cache_in(folder)
        for function, shape in ((cache.locate, [None]), (cache.read, [])):
            graph = tf.function(function).get_concrete_function(tf.TensorSpec(shape, tf.string)).graph.as_graph_def()
            ops = {node.op for part in (graph, *graph.library.function) for node in _nodes(part)}
            assert "PyFuncStateless" in ops
            assert not ops & {"StatefulPartitionedCall", "If", "PyFunc", "EagerPyFunc"}


def _nodes(part: Any) -> Any:
    return part.node_def if hasattr(part, "node_def") else part.node


def test_what_needs_no_copy_is_read_as_it_is(photo: np.ndarray, encode: Encode, tmp_path: Path, cache_dir: str) -> None:
    image = Image.fromarray(photo)
    large = encode(image)
    files = {
        "small": encode(image.resize((500, 100))),
        "png": encode(image, "PNG"),
        "cmyk": encode(image.convert("CMYK")),
        "cut": large[:9000],
        "no end": large[:-2],
        "head": large[:50],
        "text": b"not a picture",
        "empty": b"",
    }
    paths = [str(tmp_path / name) for name in files]
    for path, contents in zip(paths, files.values(), strict=True):
        Path(path).write_bytes(contents)
    cache = cache_in(cache_dir)
    for _ in range(2):
        assert read_all(cache, paths) == list(files.values())
    assert "0 made, 0 times one was read that was there, 8 files read as they are." in cache.summary()
    assert not os.path.exists(cache_dir)


def test_long_header_is_read_to_its_end(photo: np.ndarray, encode: Encode, tmp_path: Path, cache_dir: str) -> None:
    path = tmp_path / "long.jpg"
    path.write_bytes(encode(photo, icc_profile=b"p" * 200_000))
    (contents,) = read_all(cache_in(cache_dir), [str(path)])
    assert size_of(contents) == (150, 100)
    assert len(contents) < 20_000


def test_missing_file_fails_as_always(tmp_path: Path, cache_dir: str) -> None:
    missing = str(tmp_path / "missing.jpg")
    for locate in (True, False):
        with pytest.raises(tf.errors.NotFoundError, match=r"missing\.jpg; No such file"):
            read_all(cache_in(cache_dir), [missing], locate=locate)
    with pytest.raises(tf.errors.OpError):
        read_all(cache_in(cache_dir), [str(tmp_path)])


def test_name_that_is_no_utf8(photo: np.ndarray, tmp_path: Path, cache_dir: str) -> None:
    path = os.fsencode(tmp_path) + b"/\xff\xfe.jpg"
    with open(path, "wb") as file:
        Image.fromarray(photo).save(file, "JPEG")
    cache = cache_in(cache_dir)
    assert read_all(cache, [path]) == read_all(cache, [path])
    assert "1 made, 1 time one" in cache.summary()


def test_changed_original_is_made_anew(photo: np.ndarray, photos: list[str], cache_dir: str) -> None:
    cache = cache_in(cache_dir)
    (before,) = read_all(cache, photos[:1])
    Image.fromarray(255 - photo).save(photos[0], quality=80)
    (after,) = read_all(cache, photos[:1])
    assert after != before
    assert len(stored(cache_dir)) == 2
    # The time alone counts too: contents can change and the size stay.
    status = os.stat(photos[0])
    os.utime(photos[0], ns=(status.st_atime_ns, status.st_mtime_ns + 1000))
    assert read_all(cache, photos[:1]) == [after]
    assert len(stored(cache_dir)) == 3


def test_settings_have_copies_of_their_own(photos: list[str], cache_dir: str) -> None:
    for short_side, quality in ((100, 90), (120, 90), (100, 50)):
        (contents,) = read_all(cache_in(cache_dir, short_side=short_side, quality=quality), photos[:1])
        assert min(size_of(contents)) == short_side
    assert len(stored(cache_dir)) == 3


@pytest.mark.parametrize("special", ["", "x[y]*? {z}"])
def test_copies_may_be_removed_or_damaged_in_use(photos: list[str], cache_dir: str, special: str) -> None:
    cache_dir = os.path.join(cache_dir, special)
    cache = cache_in(cache_dir)
    cold = read_all(cache, photos)
    located = cache.locate(tf.constant(photos))
    first, second, *_, last = stored(cache_dir)
    first.unlink()
    second.write_bytes(b"")
    last.write_bytes(bytes(last.stat().st_size))
    files = tf.data.Dataset.from_tensor_slices(located).map(cache.read, num_parallel_calls=3)
    assert list(files.as_numpy_iterator()) == cold
    assert sorted(path.read_bytes() for path in stored(cache_dir)) == sorted(cold)
    shutil.rmtree(cache_dir)
    assert list(files.as_numpy_iterator()) == cold
    assert len(stored(cache_dir)) == 12


def test_full_or_forbidden_folder_changes_nothing(
    photos: list[str], tmp_path: Path, cache_dir: str, caplog: pytest.LogCaptureFixture
) -> None:
    cold = read_all(cache_in(str(tmp_path / "other")), photos)
    max_bytes = sum(map(len, cold)) // 2
    full = cache_in(cache_dir, max_bytes=max_bytes)
    (tmp_path / "file").write_bytes(b"")
    forbidden = cache_in(str(tmp_path / "file" / "cache"))
    with caplog.at_level(logging.WARNING, "slimexp"):
        for cache, why in ((full, f"raise pipeline.cache_max_bytes={max_bytes}, "), (forbidden, "can't be written to")):
            caplog.clear()
            for _ in range(2):
                assert read_all(cache, photos) == cold
            (message,) = caplog.messages
            assert message.startswith("Smaller copies of photos are no longer stored: ")
            assert why in message
    kept = sum(path.stat().st_size for path in stored(cache_dir))
    assert max_bytes // 2 < kept <= max_bytes
    assert "Nothing more was stored, as " in full.summary()
    assert "24 times a copy was made only to be read." in forbidden.summary()


def test_processes_share_a_folder_and_one_is_killed(photos: list[str], tmp_path: Path, cache_dir: str) -> None:
    command = [sys.executable, "-c", RUN, cache_dir, *photos]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        expected = read_all(cache_in(str(tmp_path / "other")), photos)
        assert other.stdout is not None
        assert other.stdin is not None
        assert other.stdout.readline() == "ready\n"
        other.stdin.write("go\n")
        other.stdin.flush()
        while not stored(cache_dir):
            time.sleep(0.001)
        cache = cache_in(cache_dir)
        assert read_all(cache, photos) == expected
        other.kill()
    assert sorted(path.read_bytes() for path in stored(cache_dir)) == sorted(expected)
    later = cache_in(cache_dir)
    assert read_all(later, photos) == expected
    # Before the first file that it adds, a run counts anew what the killed one may have left uncounted.
    Path(photos[0]).touch()
    read_all(later, photos[:1])
    assert int(Path(cache_dir, "usage").read_text()) == sum(path.stat().st_size for path in stored(cache_dir))


def test_slow_look_ups_are_made_in_parallel(cache_dir: str, monkeypatch: pytest.MonkeyPatch) -> None:
    cache = cache_in(cache_dir)
    looking = threading.Barrier(10, timeout=60)
    order = iter(range(24))

    def slow(path: bytes) -> bytes:
        if next(order) < 4:
            time.sleep(0.003)
        else:
            looking.wait()
        return b"=" + path

    monkeypatch.setattr(cache, "_locate", slow)
    names = [b"%d" % number for number in range(24)]
    assert cache.locate(tf.constant(names)).numpy().tolist() == [b"=" + name for name in names]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"short_side": 0}, "pipeline.cache_short_side=0 is refused: it must be at least 1 pixel"),
        ({"max_bytes": 0}, "pipeline.cache_max_bytes=0 is refused: it must be at least 1"),
        ({"quality": 101}, "quality=101 is refused: it must be in 1..100"),
        (
            {"folder": "gs://bucket/x"},
            "pipeline.cache_dir=gs://bucket/x is refused: it must be a folder of this machine",
        ),
    ],
)
def test_values_out_of_range_are_refused(options: dict[str, int], message: str) -> None:
    with pytest.raises(UserError, match=message):
        ShrunkCache(**options)  # type: ignore[arg-type]


def test_default_folder(photos: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLIMEXP_CACHE", str(tmp_path / "own"))
    read_all(ShrunkCache(short_side=SHORT_SIDE), photos[:1])
    assert len(stored(str(tmp_path / "own" / "shrunk"))) == 1


def test_short_side_that_is_too_small_is_explained() -> None:
    # As VGG's training: from a photo whose short side becomes 256 to 512, a window of 224.
    frac = 224 / np.arange(256, 513)
    assert explain_short_side(512, size_px=224, window_sides=512 * frac) is None
    warning = explain_short_side(256, size_px=224, window_sides=256 * frac)
    assert warning is not None
    assert warning.startswith("pipeline.cache_short_side=256 is small for this preprocessing: 100% of its crops ")
    assert "than the 224 x 224 that the network takes" in warning
    # Half of the sides, of which 384 is the median, fall below 224 for a photo of less than 384.
    assert "With pipeline.cache_short_side=384 half of them would have enough." in warning


def test_through_the_whole_pipeline_cold_and_warm(tmp_path: Path) -> None:
    photos = []
    for number in range(6):
        noise = np.random.default_rng(number).integers(0, 256, (20, 26, 3), np.uint8)
        photo = tmp_path / f"{number}.jpg"
        Image.fromarray(noise).resize((260, 200), Image.Resampling.BICUBIC).save(photo)
        photos.append(str(photo).encode())
    split = Split("train", photos, np.arange(6, dtype=np.int32) % 2, "photos")

    def images(readers: int, threads: int) -> list[np.ndarray]:
        cache = ShrunkCache(str(tmp_path / "copies"), short_side=64)
        settings = PipelineSettings(batch_size=3, readers=readers, threads=threads)
        preprocessing = VggPreprocessing(32, is_training=True)
        access = {"read_file": cache.read, "locate": cache.locate}
        feed = Feed(split, preprocessing=preprocessing, settings=settings, seed=1, is_training=True, **access)
        with feed:
            return [next(feed)["image"].numpy() for _ in range(5)]

    cold, warm = images(1, 1), images(3, 2)
    assert len(list((tmp_path / "copies").rglob("*.jpg"))) == 6
    assert all((one == other).all() for one, other in zip(cold, warm, strict=True))
