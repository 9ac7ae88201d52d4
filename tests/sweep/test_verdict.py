"""The verdict on a sweep: numbers that can be checked by hand."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from slimexp.errors import UserError
from slimexp.sweep.results import read_results
from slimexp.sweep.scores import best_of, choose_metric, group_by_seed, is_maximized
from slimexp.sweep.verdict import SweepVerdict, judge, show_spread, show_value
from tests.sweep.synthetic import SyntheticSweep


@pytest.fixture
def sweep(tmp_path: Path) -> SyntheticSweep:
    return SyntheticSweep(tmp_path)


def verdict(sweep: SyntheticSweep, metric: str | None = None) -> SweepVerdict:
    jobs = read_results(sweep.folder)
    chosen = choose_metric(jobs, metric)
    return judge(jobs, group_by_seed(jobs, chosen), chosen, is_maximized(chosen))


@pytest.mark.parametrize(
    ("metrics", "expected"),
    [
        ({"train/loss": 1.0}, "train/loss"),
        ({"train/loss": 1.0, "eval/top1": 0.5}, "eval/top1"),
        ({"eval/top1": 0.5, "eval/mean_average_precision": 0.5}, "eval/mean_average_precision"),
        ({"eval/top1": 0.5, "benchmark/training_images_per_sec": 5.0}, "benchmark/training_images_per_sec"),
        ({"export/bytes": 1.0}, None),
    ],
    ids=["loss", "top1", "precision", "benchmark", "none"],
)
def test_the_metric_follows_from_what_there_is(
    sweep: SyntheticSweep, metrics: dict[str, float], expected: str | None
) -> None:
    sweep.train({"seed": "0"}, metrics)
    assert choose_metric(read_results(sweep.folder)) == expected


def test_a_metric_that_no_job_has(sweep: SyntheticSweep) -> None:
    sweep.train({"seed": "0"}, {"eval/top1": 0.5, "train/loss": 1.0})
    jobs = read_results(sweep.folder)
    message = (
        "sweep.metric=eval/top2: no job of the sweep has it; the nearest is eval/top1. There are eval/top1, "
        "train/images_per_sec, train/loss."
    )
    with pytest.raises(UserError, match=message):
        choose_metric(jobs, "eval/top2")
    with pytest.raises(UserError, match=r"sweep\.metric=x: no job of the sweep has left any metric\."):
        choose_metric([], "x")


@pytest.mark.parametrize(
    ("metric", "direction", "expected"),
    [
        ("eval/top1", None, True),
        ("eval/loss", None, False),
        ("time/step_secs", None, False),
        ("benchmark/training_images_per_sec", None, True),
        ("eval/loss", "maximize", True),
        ("eval/top1", "minimize", False),
    ],
)
def test_the_direction_follows_from_the_metric(metric: str, direction: str | None, expected: bool) -> None:
    assert is_maximized(metric, direction) is expected


def test_what_is_not_finite_or_not_finished_never_wins(sweep: SyntheticSweep) -> None:
    sweep.train({"a": "0"}, {"train/loss": 0.5})
    sweep.train({"a": "1"}, {"train/loss": math.nan})
    sweep.train({"a": "2"}, {"train/loss": 0.4}, status="FAILED", reason="no memory")
    sweep.train({"a": "3"}, {"train/loss": 0.3}, status="PRUNED", reason="pruned at step 4")
    jobs = read_results(sweep.folder)
    best = best_of(jobs, "train/loss", maximize=False)
    assert best is not None
    assert best.number == 0
    assert verdict(sweep).sentence == (
        "Best by train/loss (less is better): a=0, 0.5000. 1 of 4 jobs ended with train/loss not finite (a=1). "
        "1 of 4 jobs did not finish (a=2: FAILED). 1 of 4 jobs pruned, as they fell behind (a=3)."
    )


def test_without_repeats(sweep: SyntheticSweep) -> None:
    for rate, top1 in (("0.001", 0.9), ("0.01", 0.98), ("0.1", 0.95)):
        sweep.train({"learning_rate.initial": rate}, {"eval/top1": top1})
    found = verdict(sweep)
    assert found.sentence == (
        "Best by eval/top1 (more is better): learning_rate.initial=0.01, 0.9800; 0.0300 ahead of "
        "learning_rate.initial=0.1 (0.9500). Without repeats chance cannot be told from it: "
        "sweep over seed=0,1,2 as well."
    )
    assert found.overrides == ("learning_rate.initial=0.01",)
    speed = verdict(sweep, "train/images_per_sec")
    assert speed.sentence.startswith(
        "Best by train/images_per_sec (more is better): learning_rate.initial=0.001, 500, and the same for all"
    )


def test_the_best_at_the_edge(sweep: SyntheticSweep) -> None:
    for rate, top1 in (("0.001", 0.9), ("0.01", 0.91), ("0.1", 0.95)):
        sweep.train({"learning_rate.initial": rate}, {"eval/top1": top1})
    assert (
        "learning_rate.initial=0.1 is the largest that was tried: the best may lie beyond it."
        in verdict(sweep).sentence
    )


@pytest.mark.parametrize(
    ("second", "told"),
    [
        # Welch: 0.02 / sqrt(2 * 1e-4 / 3) = 2.449 with 4 degrees of freedom, p = 0.070.
        ((0.94, 0.95, 0.96), "within the noise of the seeds (Welch's t-test over the seeds: p = 0.07)."),
        # 0.07 / sqrt(2 * 1e-4 / 3) = 8.57, p = 0.001.
        ((0.89, 0.90, 0.91), "more than the seeds make of it (Welch's t-test over the seeds: p = 0.001)."),
    ],
    ids=["noise", "real"],
)
def test_repeats_tell_what_chance_does(sweep: SyntheticSweep, second: tuple[float, ...], told: str) -> None:
    for optimizer, values in (("adam", (0.96, 0.97, 0.98)), ("sgd", second)):
        for seed, value in enumerate(values):
            sweep.train({"optimizer": optimizer, "seed": str(seed)}, {"eval/top1": value})
    found = verdict(sweep)
    assert found.sentence.startswith(
        "Best by eval/top1 (more is better): optimizer=adam, 0.9700 ± 0.0100 over 3 seeds (the best single job is "
        "lenet optimizer=adam seed=2, 0.9800); "
    )
    assert found.sentence.endswith(told)
    assert found.overrides == ("optimizer=adam",)
    assert found.best is not None
    assert found.best.number == 2


def test_seeds_alone_are_one_group(sweep: SyntheticSweep) -> None:
    for seed, value in enumerate((0.96, 0.97, math.nan)):
        sweep.train({"seed": str(seed)}, {"eval/top1": value})
    assert verdict(sweep).sentence == (
        "Best by eval/top1 (more is better): all jobs, 0.9650 ± 0.0071 over 2 seeds. 1 of 3 jobs ended with eval/top1 "
        "not finite (seed=2)."
    )


def test_threads_do_not_change_what_is_learned(sweep: SyntheticSweep) -> None:
    for threads, speed in (("1", 100.0), ("2", 190.0), ("4", 180.0)):
        sweep.train({"pipeline.threads": threads}, {"eval/top1": 0.9}, speed=speed)
    found = verdict(sweep)
    assert found.sentence == (
        "Best by eval/top1 (more is better): threads=2, 0.9000, and the same for all settings; of these it is the "
        "fastest, 190 images/s. Held back by: network."
    )
    assert found.overrides == ("pipeline.threads=2",)


def test_benchmarks_over_threads_and_readers(sweep: SyntheticSweep) -> None:
    for number, rate in enumerate((200, 390, 400, 380, 210, 400, 410, 395, 205, 395, 405, 400)):
        threads, readers = 2 ** (number % 4), 1 + number // 4
        bottleneck = "preprocessing" if threads == 1 else "cores"
        settings = {"pipeline.threads": str(threads), "pipeline.readers": str(readers)}
        sweep.benchmark(settings, rate, rate - 10, bottleneck)
    found = verdict(sweep)
    assert found.sentence == (
        "Fastest with the network: threads=4 readers=2, 400 images/s, 1 % ahead of the next (within the noise: the "
        "rounds overlap); threads=2 readers=1 gives 95 % of that. Held back by: cores."
    )
    assert found.overrides == ("pipeline.threads=2", "pipeline.readers=1")
    assert found.best is not None
    assert found.best.number == 6


def test_a_busy_machine_shows_in_the_networks_own_rate(sweep: SyntheticSweep) -> None:
    for threads, network in ((1, 220.0), (2, 950.0)):
        sweep.benchmark({"pipeline.threads": str(threads)}, 400, 0.9 * network, "network", network=network)
    assert verdict(sweep).sentence.endswith(
        "The network alone, which none of these settings touches, came to 220 in one job and to 950 images/s in "
        "another: something disturbed the measurement, so run it again on a quiet machine, or with more "
        "benchmark.rounds."
    )


def test_another_batch_size_is_no_disturbance(sweep: SyntheticSweep) -> None:
    for size, network in ((8, 220.0), (32, 950.0)):
        sweep.benchmark({"pipeline.batch_size": str(size)}, 400, 0.9 * network, "network", network=network)
    assert verdict(sweep).sentence.endswith("Held back by: network.")


def test_advice_beyond_what_was_tried(sweep: SyntheticSweep) -> None:
    advice = ("pipeline.threads=12", "pipeline.cache=shrunk")
    for threads in (1, 2, 4):
        sweep.benchmark({"pipeline.threads": str(threads)}, 100 * threads, 95 * threads, "preprocessing", advice=advice)
    found = verdict(sweep)
    assert found.sentence == (
        "Fastest with the network: threads=4, 380 images/s, 100 % ahead of the next. Held back by: preprocessing. "
        "Not tried: pipeline.threads=12 pipeline.cache=shrunk."
    )
    assert found.advice[0].untried == advice


def test_each_network_gets_its_own_advice(sweep: SyntheticSweep) -> None:
    for model, rates in (("lenet", (100, 200)), ("vgg16", (50, 50))):
        for threads, rate in zip((1, 2), rates, strict=True):
            sweep.benchmark({"model": model, "pipeline.threads": str(threads)}, 300, rate, "network")
    found = verdict(sweep)
    assert [(one.context, one.overrides) for one in found.advice] == [
        ("model=lenet", ("pipeline.threads=2",)),
        ("model=vgg16", ("pipeline.threads=1",)),
    ]
    assert "model=vgg16: Fastest with the network: threads=1, 50 images/s, 0 % ahead" in found.sentence


@pytest.mark.parametrize("status", ["FAILED", "NOT_RUN", "KILLED"])
def test_where_nothing_worked(sweep: SyntheticSweep, status: str) -> None:
    for seed in range(10):
        sweep.job({"seed": str(seed)}, status=status)
    found = verdict(sweep)
    names = "; ".join(f"seed={seed}: {status}" for seed in range(8))
    assert found.sentence == f"10 of 10 jobs did not finish ({names}; and 2 more)."
    assert found.best is None
    assert found.overrides == ()


def test_jobs_without_metrics(sweep: SyntheticSweep) -> None:
    sweep.job({"model": "lenet"})
    assert verdict(sweep).sentence == "1 job finished; there is no metric to compare by."


def test_numbers_are_written_with_what_they_tell() -> None:
    values = (0.98333, 1250.4, 2.5e-5, 0.0, math.nan, math.inf, -math.inf, 12.3456, None)
    assert [show_value(value) for value in values] == [
        *("0.9833", "1,250", "2.5e-05", "0.0000", "NaN", "inf", "-inf", "12.35", "-")
    ]
    spreads = ((0.98333, 0.0039), (504.8, 22.4), (1e-5, 2e-6), (12.34, 0.56), (0.95, 0.0))
    assert [show_spread(*spread) for spread in spreads] == [
        *("0.9833 ± 0.0039", "505 ± 22", "1e-05 ± 2e-06", "12.3 ± 0.6", "0.9500 ± 0.0000")
    ]


def test_what_to_set_is_what_the_command_said(sweep: SyntheticSweep) -> None:
    asked = {"dataset.root": 'dataset.root="my photos"', "model.network.boom": "+model.network.boom='a,b=c'"}
    sweep.train({"dataset.root": "my photos", "model.network.boom": "a,b=c"}, {"eval/top1": 0.9})
    sweep.record.jobs[0].overrides = ["seed=3", *asked.values()]
    sweep.train({"dataset.root": "old", "model.network.boom": "no"}, {"eval/top1": 0.8})
    assert verdict(sweep).overrides == tuple(asked.values())


def test_jobs_of_another_command_count_for_nothing(sweep: SyntheticSweep) -> None:
    sweep.train({}, {"eval/top1": 0.9}, asked=False)
    sweep.train({}, {"eval/top1": 0.8})
    assert verdict(sweep).sentence == "Best by eval/top1 (more is better): lenet, 0.8000."


def test_repeats_are_of_seeds_only_where_the_seed_differs(sweep: SyntheticSweep) -> None:
    for top1 in (0.8, 0.9):
        sweep.train({"seed": "1"}, {"eval/top1": top1})
    assert "0.8500 ± 0.0707 over 2 runs" in verdict(sweep).sentence
    sweep.train({"seed": "2"}, {"eval/top1": 0.85})
    assert "0.8500 ± 0.0500 over 3 seeds" in verdict(sweep).sentence
