from __future__ import annotations

import contextlib
import subprocess
import sys
from pathlib import Path

import pytest

from slimexp.errors import UserError
from slimexp.sweep.gpus import own_gpus, visible_gpus
from tests.sweep.launching import put_gpus


@pytest.fixture
def four_gpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put_gpus(tmp_path, 4, monkeypatch)


def test_jobs_get_a_gpu_each_and_share_those_with_the_fewest_jobs(four_gpus: None, tmp_path: Path) -> None:
    with contextlib.ExitStack() as jobs:
        shown = [jobs.enter_context(own_gpus(1, tmp_path))["CUDA_VISIBLE_DEVICES"] for _ in range(6)]
        assert shown == ["0", "1", "2", "3", "0", "1"]
    with own_gpus(1, tmp_path) as again:
        assert again == {"CUDA_VISIBLE_DEVICES": "0", "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}


def test_a_job_of_several_gpus_gets_different_ones(four_gpus: None, tmp_path: Path) -> None:
    with own_gpus(1, tmp_path), own_gpus(2, tmp_path) as two, own_gpus(2, tmp_path) as other:
        assert two["CUDA_VISIBLE_DEVICES"] == "1,2"
        assert other["CUDA_VISIBLE_DEVICES"] == "3,0"


def test_a_killed_process_gives_its_gpu_back(four_gpus: None, tmp_path: Path) -> None:
    code = (
        "import sys, time, pathlib; from slimexp.sweep.gpus import own_gpus\n"
        "with own_gpus(1, pathlib.Path(sys.argv[1])) as shown:\n"
        "    print(shown['CUDA_VISIBLE_DEVICES'], flush=True); time.sleep(60)"
    )
    process = subprocess.Popen([sys.executable, "-c", code, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "0\n"
    with own_gpus(1, tmp_path) as meanwhile:
        assert meanwhile["CUDA_VISIBLE_DEVICES"] == "1"
    process.kill()
    process.communicate()
    with own_gpus(1, tmp_path) as afterwards:
        assert afterwards["CUDA_VISIBLE_DEVICES"] == "0"


def test_only_what_the_command_may_use_is_shared_out(
    four_gpus: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2, GPU-8a")
    with own_gpus(1, tmp_path) as one, own_gpus(1, tmp_path) as other:
        assert (one, other) == ({"CUDA_VISIBLE_DEVICES": "2"}, {"CUDA_VISIBLE_DEVICES": "GPU-8a"})
    with pytest.raises(UserError, match=r"sweep.gpus_per_job=3: there are 2 GPUs that may be used \(2, GPU-8a\)"):
        own_gpus(3, tmp_path).__enter__()
    for hidden in ("", "-1", "-1,0"):
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", hidden)
        assert visible_gpus() == []


def test_without_a_gpu_nothing_is_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with own_gpus(2, tmp_path) as environment:
        assert environment == {}
    broken = tmp_path / "nvidia-smi"
    broken.write_text("#!/bin/sh\nexit 9\n")
    broken.chmod(0o755)
    assert visible_gpus() == []
