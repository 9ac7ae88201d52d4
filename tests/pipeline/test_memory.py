from __future__ import annotations

import logging
from pathlib import Path

import numpy as np
import pytest

from slimexp.dataset.record_split import LabelFormat, RecordSplit
from slimexp.dataset.split import Split
from slimexp.errors import UserError
from slimexp.pipeline.memory import available_bytes, check_memory, full_queues, mean_encoded_bytes
from slimexp.pipeline.settings import PipelineSettings

MIB = 2**20


def files(folder: Path, sizes: list[int]) -> list[bytes]:
    folder.mkdir()
    paths = []
    for number, size in enumerate(sizes):
        path = folder / f"{number}"
        path.write_bytes(bytes(size))
        paths.append(str(path).encode())
    return paths


@pytest.fixture
def split(tmp_path: Path) -> Split:
    """Ten files of 1000 bytes."""
    return Split("train", files(tmp_path / "files", [1000] * 10), np.zeros(10, np.int32), "train.txt")


@pytest.fixture
def records(tmp_path: Path) -> RecordSplit:
    """Ten records in two shards of 50,000 bytes together, 5,000 a record."""
    shards = tuple(files(tmp_path / "shards", [20_000, 30_000]))
    return RecordSplit("train", shards, np.array([4, 6]), "train-*", "image", LabelFormat("label", "class", 2))


def test_what_full_queues_take() -> None:
    settings = PipelineSettings(batch_size=10, read_capacity=50)
    found = {q.name: (q.capacity, q.total) for q in full_queues(settings, encoded_bytes=1000, image_bytes=600)}
    assert found == {
        "filename": (200, 200 * 128),
        "read": (50, 50_000),
        "prefetch": (20, 12_000),
        "batch": (2, 2 * 10 * 600),
    }


def test_mean_sizes(split: Split, records: RecordSplit) -> None:
    assert mean_encoded_bytes(split) == 1000
    assert mean_encoded_bytes(records) == 5000


def test_queues_that_fit_are_let_by(split: Split, caplog: pytest.LogCaptureFixture) -> None:
    check_memory(split, PipelineSettings(), image_bytes=600_000)
    check_memory(split, PipelineSettings(), image_bytes=600_000, free_bytes=200 * MIB)
    assert not caplog.messages


def test_queues_that_take_half_are_warned_of(split: Split, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    settings = PipelineSettings(prefetch_capacity=600, batch_capacity=1)
    check_memory(split, settings, image_bytes=MIB, free_bytes=1000 * MIB)
    (message,) = caplog.messages
    assert "The pipeline's queues take 632.1 MiB when they are full, and 1000.0 MiB of memory are free" in message
    assert "prefetch: 600 images x 1.0 MiB = 600.0 MiB" in message
    assert "Set pipeline.queues.prefetch.capacity=467 or less" in message


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (PipelineSettings(prefetch_capacity=2000), r"Set pipeline\.queues\.prefetch\.capacity=435 or less, or give"),
        (PipelineSettings(batch_capacity=50), r"Set pipeline\.queues\.batch\.capacity=13 or less"),
        (PipelineSettings(batch_size=1000), r"Lower pipeline\.batch_size=1000 or model\.image_size"),
    ],
)
def test_queues_that_do_not_fit_are_refused(split: Split, settings: PipelineSettings, message: str) -> None:
    with pytest.raises(UserError, match=rf"(?s)^pipeline\.queues: refused, as they would not fit.*{message}"):
        check_memory(split, settings, image_bytes=MIB, free_bytes=1000 * MIB)


def test_a_shuffle_buffer_that_does_not_fit(records: RecordSplit) -> None:
    settings = PipelineSettings(batch_size=10, read_min_after_dequeue=300_000)
    message = (
        r"(?s)read: 300,100 images x 4\.9 KiB = 1\.4 GiB.*Set pipeline\.queues\.read\.capacity=104[0-9]{3} or less and "
        r"pipeline\.queues\.read\.min_after_dequeue=104[0-9]{3} or less"
    )
    fitted = settings.fitted(is_sequential=True, is_training=True)
    with pytest.raises(UserError, match=message):
        check_memory(records, fitted, image_bytes=1000, free_bytes=1000 * MIB)


def test_what_is_free_is_the_least_of_machine_and_groups(tmp_path: Path) -> None:
    (tmp_path / "self").mkdir()
    (tmp_path / "meminfo").write_text("MemTotal: 9000 kB\nMemFree: 1 kB\nMemAvailable:    8000 kB\n")
    assert available_bytes(tmp_path) == 8000 * 1024
    group = tmp_path / "cgroup" / "job"
    group.mkdir(parents=True)
    (tmp_path / "self" / "cgroup").write_text("0::/job\n")
    mount = f"30 1 0:26 / {tmp_path}/cgroup rw shared:4 - cgroup2 cgroup rw\n"
    (tmp_path / "self" / "mountinfo").write_text(mount)
    assert available_bytes(tmp_path) == 8000 * 1024
    (group / "memory.max").write_text("max\n")
    (group / "memory.current").write_text("900\n")
    assert available_bytes(tmp_path) == 8000 * 1024
    (group / "memory.max").write_text("1000\n")
    assert available_bytes(tmp_path) == 100
    (group / "memory.stat").write_text("anon 500\ninactive_file 250\nactive_file 50\n")
    assert available_bytes(tmp_path) == 350
    (group.parent / "memory.max").write_text("20")
    (group.parent / "memory.current").write_text("30")
    assert available_bytes(tmp_path) == 0


def test_version_1_of_the_groups(tmp_path: Path) -> None:
    group = tmp_path / "cgroup" / "job"
    group.mkdir(parents=True)
    (tmp_path / "self").mkdir()
    (tmp_path / "self" / "cgroup").write_text("4:memory:/job\n2:cpu,cpuacct:/\n")
    mount = f"30 1 0:26 / {tmp_path}/cgroup rw - cgroup cgroup rw,memory\n"
    (tmp_path / "self" / "mountinfo").write_text(mount)
    (group / "memory.limit_in_bytes").write_text("1000")
    (group / "memory.usage_in_bytes").write_text("800")
    (group / "memory.stat").write_text("total_inactive_file 50\n")
    assert available_bytes(tmp_path) == 250


def test_a_system_that_does_not_say(tmp_path: Path) -> None:
    assert available_bytes(tmp_path) is None
