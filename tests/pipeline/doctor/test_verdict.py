from __future__ import annotations

import dataclasses
import subprocess
import sys
from typing import Any

import pytest

from slimexp.pipeline.doctor.verdict import BOTTLENECKS, MISSING_COMPILER, Verdict, verdict
from slimexp.pipeline.stats import PipelineStats, QueueStats, StageStats


def stats(
    *,
    rate: float = 400.0,
    wait: float = 0.5,
    read: tuple[int, float] = (4, 0.3),
    preprocess: tuple[int, float] = (2, 0.4),
    fills: tuple[float, float, float] = (0.5, 0.5, 0.5),
    capacities: tuple[int, int, int] = (64, 64, 2),
    cpu: float = 0.4,
    cpus: float = 8.0,
) -> PipelineStats:
    """A pipeline over ten seconds; stages as (threads, busy share), fills of the read, prefetch and batch queue."""
    names = [("read", "images"), ("prefetch", "images"), ("batch", "batches")]
    queues = [
        QueueStats(name, capacity, unit, fill)
        for (name, unit), capacity, fill in zip(names, capacities, fills, strict=True)
    ]
    return PipelineStats(
        secs=10.0,
        images=int(10 * rate),
        wait_frac=wait,
        stages=(
            StageStats("read", read[0], rate, read[1]),
            StageStats("preprocess", preprocess[0], rate, preprocess[1]),
        ),
        queues=(QueueStats("filename", 640, "names", 1.0), *queues),
        cpu_frac=cpu,
        num_cpus=cpus,
    )


def check(found: Verdict, bottleneck: str, sentence: str, *overrides: str) -> None:
    assert found == Verdict(bottleneck, sentence, overrides)
    assert found.bottleneck in BOTTLENECKS


def test_preprocessing_threads_are_too_few() -> None:
    # 205 images a second and thread at work all the time, so 1,150 with a tenth to spare take 6.2 of them.
    case = stats(rate=410, wait=0.64, preprocess=(2, 1.0), fills=(1.0, 0.0, 0.0), cpu=0.3)
    sentence = (
        "Preprocessing holds this run back: 410 images/s against 1,150 that the network takes; 7 threads would feed it."
    )
    check(verdict(case, network_images_per_sec=1150), "preprocessing", sentence, "pipeline.threads=7")


def test_a_network_measured_as_slower_than_it_was_seen_to_be_is_not_believed() -> None:
    case = stats(rate=400, wait=0.5, preprocess=(2, 1.0), fills=(1.0, 0.0, 0.0))
    assert verdict(case, network_images_per_sec=300) == verdict(case)
    assert "400 images/s against 800 that the network takes" in verdict(case, network_images_per_sec=300).sentence


def test_a_missing_compiler_is_named_where_it_would_help() -> None:
    options = {"pipeline.decoder": "auto", MISSING_COMPILER: "there is no C++ compiler (g++). Get g++."}
    told = (
        "pipeline.decoder=native would make images cheaper, where the preprocessing is one that it knows, and cannot "
        "be had yet: there is no C++ compiler (g++). Get g++. Once that is there, pipeline.decoder=auto takes it."
    )
    slow = stats(rate=410, wait=0.64, preprocess=(2, 1.0), fills=(1.0, 0.0, 0.0), cpu=0.3)
    for case in (slow, stats(cpu=0.95)):
        found, without = verdict(case, options=options), verdict(case, options={"pipeline.decoder": "auto"})
        assert found.sentence == f"{without.sentence} {told}"
        assert found.overrides == without.overrides
    assert "native" not in verdict(stats(wait=0.01), options=options).sentence


def test_the_networks_rate_is_worked_out_from_its_waiting() -> None:
    case = stats(rate=400, wait=0.5, preprocess=(2, 1.0), fills=(1.0, 0.0, 0.0))
    assert "400 images/s against 800 that the network takes; 5 threads would feed it." in verdict(case).sentence


def test_threads_beyond_the_cores_are_not_advised() -> None:
    case = stats(rate=100, wait=0.75, preprocess=(1, 1.0), fills=(1.0, 0.0, 0.0), cpu=0.55, cpus=2)
    options = {"pipeline.decoder": "tensorflow", "pipeline.cache": "shrunk"}
    sentence = (
        "Preprocessing holds this run back: 100 images/s against 400 that the network takes; it would take 5 threads "
        "with a core each, and there are 2 cores; pipeline.decoder=native would make it cheaper."
    )
    overrides = ("pipeline.threads=2", "pipeline.decoder=native")
    check(verdict(case, options=options), "preprocessing", sentence, *overrides)


def test_threads_that_only_wait_may_be_more_than_the_cores() -> None:
    case = stats(rate=100, wait=0.75, preprocess=(4, 1.0), fills=(1.0, 0.0, 0.0), cpu=0.1, cpus=2)
    assert verdict(case).overrides == ("pipeline.threads=18",)


def test_threads_that_take_the_networks_core_bring_it_as_far_as_the_cores_go() -> None:
    case = stats(rate=100, wait=0.4, preprocess=(1, 1.0), fills=(1.0, 0.0, 0.0), cpu=0.8, cpus=2)
    found = verdict(case)
    assert "2 threads would bring it as far as 2 cores go." in found.sentence
    assert found.overrides == ("pipeline.threads=2",)


def test_threads_starved_by_other_programs() -> None:
    # The stage is the slow one by its queues, though its threads got a core for half of the time only.
    case = stats(rate=100, wait=0.4, preprocess=(4, 0.3), fills=(0.95, 0.02, 0.1), cpu=0.6, cpus=4)
    found = verdict(case, options={"pipeline.cache": "none"})
    assert "had to wait for a core or for each other" in found.sentence
    assert (found.bottleneck, found.overrides) == ("preprocessing", ("pipeline.cache=shrunk",))


def test_decoding_is_named_where_it_was_measured() -> None:
    case = stats(preprocess=(2, 1.0), fills=(1.0, 0.0, 0.0))
    assert ", and 85 % of its time is decoding; 5 threads" in verdict(case, decode_share=0.85).sentence
    assert "decoding" not in verdict(case, decode_share=0.3).sentence


def test_reading_is_slow() -> None:
    case = stats(rate=100, wait=0.5, read=(4, 0.98), fills=(0.05, 0.02, 0.0))
    sentence = (
        "Reading files holds this run back: 100 images/s against 200 that the network takes; 9 readers would feed it."
    )
    check(verdict(case), "reading", sentence, "pipeline.readers=9")


def test_reading_from_a_disk_that_is_far_too_slow() -> None:
    case = stats(rate=100, wait=0.95, read=(4, 1.0), fills=(0.05, 0.02, 0.0))
    found = verdict(case, options={"pipeline.cache": "none"})
    assert "100 images/s against 1,000 or more that the network takes" in found.sentence
    assert "against 1,500 that" in verdict(case, network_images_per_sec=1500).sentence
    assert (
        "it would take 44 readers; try 16, and if that is no faster, put the files on a faster disk" in found.sentence
    )
    assert found.overrides == ("pipeline.readers=16", "pipeline.cache=shrunk")
    case = stats(rate=100, wait=0.95, read=(64, 0.98), fills=(0.05, 0.02, 0.0))
    found = verdict(case)
    assert "more readers than there are will hardly help; put the files on a faster disk." in found.sentence
    assert found.overrides == ()


def test_batching_is_slow() -> None:
    case = stats(fills=(1.0, 0.95, 0.1))
    found = verdict(case, options={"pipeline.decoder": "tensorflow"})
    assert found.sentence.startswith("Putting batches together holds this run back: 400 images/s against 800")
    assert (found.bottleneck, found.overrides) == ("batching", ("pipeline.decoder=native",))
    assert verdict(case).overrides == ()


def test_the_network() -> None:
    case = stats(rate=300, wait=0.01, preprocess=(4, 0.4), fills=(1.0, 1.0, 1.0))
    sentence = "The network holds this run back: it waited for input 1 % of the time; 2 threads would do."
    check(verdict(case), "network", sentence)
    case = stats(rate=300, wait=0.01, preprocess=(1, 0.4), fills=(1.0, 1.0, 1.0), cpu=0.99)
    check(verdict(case), "network", "The network holds this run back: it waited for input 1 % of the time.")


def test_they_keep_pace() -> None:
    found = verdict(stats(wait=0.1))
    assert found.bottleneck == "balanced"
    assert found.sentence.startswith("Network and input keep pace: the network waited for input 10 % of the time.")


def test_waiting_behind_a_full_queue_is_no_waiting_for_input() -> None:
    assert verdict(stats(wait=0.1, fills=(1.0, 1.0, 1.0))).bottleneck == "network"


@pytest.mark.parametrize(
    ("fills", "capacities", "override"),
    [
        ((0.5, 0.3, 0.3), (1, 64, 8), "pipeline.queues.read.capacity=64"),
        ((0.9, 0.5, 0.1), (64, 32, 8), "pipeline.queues.prefetch.capacity=128"),
        ((0.9, 0.7, 0.5), (64, 64, 1), "pipeline.queues.batch.capacity=4"),
        ((0.9, 0.7, 0.5), (64, 64, 2), "pipeline.queues.batch.capacity=8"),
    ],
)
def test_a_queue_chokes(fills: Any, capacities: Any, override: str) -> None:
    found = verdict(stats(fills=fills, capacities=capacities))
    assert found.bottleneck == "queue"
    assert found.overrides == (override,)
    name, _, capacity = override.removeprefix("pipeline.queues.").partition(".capacity=")
    assert found.sentence.startswith(f"The {name} queue of ")
    assert int(capacity) >= 4


def test_the_queues_unit_is_named() -> None:
    assert "The read queue of 1 image chokes: " in verdict(stats(capacities=(1, 64, 8))).sentence
    assert "The batch queue of 1 batch chokes: " in verdict(stats(capacities=(64, 64, 1))).sentence
    assert "The batch queue of 2 batches chokes: " in verdict(stats(capacities=(64, 64, 2))).sentence


def test_all_cores_are_at_work() -> None:
    case = stats(rate=100, wait=0.5, cpu=0.97, cpus=2, preprocess=(2, 1.0), fills=(1.0, 0.0, 0.0))
    options = {"pipeline.decoder": "tensorflow", "pipeline.cache": "none"}
    sentence = (
        "All 2 cores are at work: more threads bring nothing. The network waited for input 50 % of the time. For the "
        "200 images/s that the network takes it would be 3.9. What helps is a machine with more cores, or less work "
        "an image, pipeline.decoder=native, pipeline.cache=shrunk."
    )
    found = verdict(case, options=options)
    check(found, "cores", sentence, "pipeline.decoder=native", "pipeline.cache=shrunk")
    assert str(found) == f"{sentence} Set: pipeline.decoder=native pipeline.cache=shrunk"
    one = dataclasses.replace(case, num_cpus=1.0)
    assert verdict(one).sentence.startswith("The one core is at work")
    assert verdict(one).overrides == ()


def test_nothing_was_measured() -> None:
    found = verdict(dataclasses.replace(stats(), images=0))
    check(found, "unknown", "Too few steps were made to say what holds the run back.")
    assert str(found) == found.sentence
    assert verdict(None) == found


def test_it_needs_no_tensorflow() -> None:
    script = "import slimexp.pipeline.doctor.verdict, sys; sys.exit('tensorflow' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0
