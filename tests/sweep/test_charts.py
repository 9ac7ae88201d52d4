"""The charts of a sweep: which there are, and what is drawn."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import matplotlib.figure
import pytest
from PIL import Image

from slimexp.sweep import charts
from slimexp.sweep.charts import numeric_keys, write_charts
from slimexp.sweep.results import read_results
from slimexp.sweep.scores import best_of
from tests.sweep.synthetic import SyntheticSweep


@pytest.fixture
def sweep(tmp_path: Path) -> SyntheticSweep:
    return SyntheticSweep(tmp_path)


@pytest.fixture
def figures(monkeypatch: pytest.MonkeyPatch) -> list[matplotlib.figure.Figure]:
    """Collects the figures that are drawn, to look into them."""
    drawn: list[matplotlib.figure.Figure] = []
    saved = charts.saved_figure

    def keep(*arguments: Any) -> Any:
        manager = saved(*arguments)
        enter = manager.__enter__

        class Kept:
            def __enter__(self) -> matplotlib.figure.Figure:
                drawn.append(enter())
                return drawn[-1]

            def __exit__(self, *error: Any) -> Any:
                return manager.__exit__(*error)

        return Kept()

    monkeypatch.setattr(charts, "saved_figure", keep)
    return drawn


def labels(axes: Any) -> list[str]:
    return axes.get_legend_handles_labels()[1]


def draw(sweep: SyntheticSweep, metric: str, maximize: bool = True, verdict: str = "All is well.") -> list[str]:
    jobs = read_results(sweep.folder)
    files = write_charts(sweep.folder, jobs, metric, verdict, best_of(jobs, metric, maximize))
    for path in files:
        with Image.open(path) as image:
            assert min(image.size) > 400
        assert path.stat().st_size < 250_000
    return [path.name for path in files]


def test_benchmarks_over_threads(sweep: SyntheticSweep, figures: list[matplotlib.figure.Figure]) -> None:
    for threads, rate in ((1, 200), (2, 390), (4, 400), (8, 380)):
        sweep.benchmark({"pipeline.threads": str(threads)}, rate, rate - 10)
    sweep.job({"pipeline.threads": "16"}, status="FAILED")
    assert draw(sweep, "benchmark/training_images_per_sec") == ["sweep_threads.png"]
    (figure,) = figures
    assert figure.get_suptitle() == "Images a second against pipeline.threads\nAll is well."
    upper, lower = figure.axes
    assert upper.get_title(loc="left").splitlines() == [
        "lenet at 28 px, on digits (1,438 images), AMD EPYC, 4 cores",
        "medians; bars from the slowest to the fastest round",
    ]
    assert set(labels(upper)) == {
        "network alone",
        "pipeline and network together",
        "pipeline alone",
        "decode + preprocess + batch, from memory",
        "read files",
    }
    assert set(labels(lower)) == {
        *("filename queue", "read queue", "prefetch queue", "batch queue", "a job without a result")
    }
    assert upper.get_ylabel() == "images/s"
    assert lower.get_ylabel() == "queue fill"
    assert lower.get_xlabel() == "pipeline.threads (preprocessing threads)"
    assert [text.get_text() for text in lower.get_xticklabels()] == ["1", "2", "4", "8", "16"]
    assert upper.get_yscale() == "log"  # Reading makes 8000.
    network = next(line for line in upper.get_lines() if line.get_label() == "network alone")
    assert set(network.get_ydata()) == {600.0}


def test_benchmarks_over_two_numbers(sweep: SyntheticSweep, figures: list[matplotlib.figure.Figure]) -> None:
    for readers in (1, 2):
        for threads in (1, 2):
            settings = {"pipeline.threads": str(threads), "pipeline.readers": str(readers), "seed": "0"}
            sweep.benchmark(settings, 300 * threads, 290 * threads)
    assert draw(sweep, "benchmark/training_images_per_sec") == ["sweep_threads.png", "sweep_readers.png"]
    assert set(labels(figures[0].axes[0])) == {"network alone", "readers=1", "readers=2"}
    assert figures[0].axes[1].get_ylabel() == "batch queue fill"
    assert figures[0].axes[0].get_yscale() == "linear"


def test_networks_that_differ_have_limits_of_their_own(
    sweep: SyntheticSweep, figures: list[matplotlib.figure.Figure]
) -> None:
    for model, network in (("lenet", 2000.0), ("vgg16", 60.0)):
        for threads in (1, 2):
            sweep.benchmark({"model": model, "pipeline.threads": str(threads)}, 300, network * 0.9, network=network)
    draw(sweep, "benchmark/training_images_per_sec")
    dashed = [line for line in figures[0].axes[0].get_lines() if line.get_linestyle() == "--" and len(line.get_xdata())]
    assert sorted({float(y) for line in dashed for y in line.get_ydata()}) == [60.0, 2000.0]


def test_a_learning_rate(sweep: SyntheticSweep, figures: list[matplotlib.figure.Figure]) -> None:
    for optimizer, plus in (("adam", 0.0), ("sgd", 0.01)):
        for rate, top1 in (("0.01", 0.9), ("0.05", 0.8), ("1", math.nan)):
            for seed in (0, 1):
                settings = {"learning_rate.initial": rate, "optimizer": optimizer, "seed": str(seed)}
                sweep.train(settings, {"eval/top1": top1 + plus + 0.02 * seed}, speed=100.0)
    assert draw(sweep, "eval/top1") == ["sweep_learning_rate_initial.png"]
    upper, lower = figures[0].axes
    assert figures[0].get_suptitle() == (
        "eval/top1 against learning_rate.initial: best 0.9300 with learning_rate.initial=0.01 optimizer=sgd seed=1"
    )
    assert lower.get_xscale() == "log"
    assert [text.get_text() for text in lower.get_xticklabels()] == ["0.01", "0.05", "1"]
    assert set(labels(upper)) == {"best job", "optimizer=adam", "optimizer=sgd"}
    assert labels(lower) == ["a job without a result"]
    adam = next(c for c in upper.containers if c.get_label() == "optimizer=adam")
    assert list(adam[0].get_ydata()) == pytest.approx([0.91, 0.81])  # The means of the seeds.
    (bars,) = adam[2]
    low, high = sorted(point[1] for point in bars.get_segments()[0])
    assert (low, high) == pytest.approx((0.91 - 0.01 * math.sqrt(2), 0.91 + 0.01 * math.sqrt(2)))


def test_a_search_is_a_cloud_of_points(sweep: SyntheticSweep, figures: list[matplotlib.figure.Figure]) -> None:
    for number in range(13):
        sweep.train(
            {"learning_rate.initial": str(0.001 * 1.7**number), "model.weight_decay": str(1e-5 * 1.3**number)},
            {"train/loss": 10.0 ** (number - 6)},
        )
    assert draw(sweep, "train/loss", maximize=False) == ["sweep_learning_rate_initial.png", "sweep_weight_decay.png"]
    assert labels(figures[0].axes[0]) == ["best job"]
    assert figures[0].axes[0].get_yscale() == "log"
    assert all(line.get_linestyle() == "None" for line in figures[0].axes[0].get_lines())


def test_names_that_end_alike(sweep: SyntheticSweep) -> None:
    for number in (1, 2):
        settings = {"pipeline.queues.read.capacity": str(number), "pipeline.queues.batch.capacity": str(number)}
        sweep.train(settings, {"train/loss": 1.0})
    assert draw(sweep, "train/loss") == ["sweep_read_capacity.png", "sweep_batch_capacity.png"]


@pytest.mark.parametrize("values", [("lenet", "vgg16"), ("1", "1"), ("1", "auto")], ids=["words", "same", "mixed"])
def test_what_is_no_number_has_no_chart(sweep: SyntheticSweep, values: tuple[str, str]) -> None:
    for value in values:
        sweep.train({"model": value, "seed": "0"}, {"train/loss": 1.0})
    jobs = read_results(sweep.folder)
    assert numeric_keys(jobs) == []
    assert write_charts(sweep.folder, jobs, "train/loss", "", None) == []
    assert write_charts(sweep.folder, [], "train/loss", "", None) == []


def test_a_long_verdict_is_wrapped(sweep: SyntheticSweep, figures: list[matplotlib.figure.Figure]) -> None:
    for threads in (1, 2):
        sweep.benchmark({"pipeline.threads": str(threads)}, 100, 90)
    draw(sweep, "benchmark/training_images_per_sec", verdict="5 $ and 5 $, " * 80)
    assert len(figures[0].get_suptitle().splitlines()) == 6
