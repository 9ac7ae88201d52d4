"""`auto` thread counts: measured once a run, on record, and the same when the run goes on."""

from __future__ import annotations

import json
import logging

import pytest

from slimexp.errors import UserError
from slimexp.jobs.auto import resolve_auto
from slimexp.pipeline.doctor.auto import Choice
from tests.jobs.processes import SMALL

AUTO = [*SMALL, "pipeline.threads=auto", "pipeline.readers=auto"]


@pytest.fixture
def measured(monkeypatch):
    """Lets the measurement find 3 threads and 2 readers, and counts how often it is made."""
    calls = []

    def choose(split, *, threads, readers, **options):
        calls.append((threads, readers))
        found = [Choice("pipeline.threads", 3, {1: 100.0, 3: 290.0}, "3 cores are available")] * threads
        return found + [Choice("pipeline.readers", 2, {1: 50.0, 2: 400.0}, "from the disk")] * readers

    monkeypatch.setattr("slimexp.jobs.auto.choose_counts", choose)
    return calls


def test_counts_are_measured_and_recorded(job, measured, caplog):
    with caplog.at_level(logging.INFO):
        job.train(*AUTO)
    assert measured == [(True, True)]
    assert "pipeline.threads=auto: 3 (images/s by count: 1: 100, 3: 290; 3 cores are available)" in caplog.text
    assert "2 readers, 3 preprocessing threads" in caplog.text
    (run,) = job.runs()
    assert (run.data.params["pipeline.threads"], run.data.params["pipeline.readers"]) == ("3", "2")
    assert run.data.tags["auto.pipeline.readers"].startswith("pipeline.readers=auto: 2 (")
    assert run.data.tags["bottleneck"]  # From the run's own statistics.
    assert json.loads((job.run_dir / "run.json").read_text())["params"]["pipeline.threads"] == "3"

    job.train(*AUTO, "trainer.max_steps=6")  # It goes on, and keeps its counts.
    assert measured == [(True, True)]
    (run,) = job.runs()
    assert run.data.params["pipeline.threads"] == "3"


class Record:
    """Stands in for the tracker."""

    def __init__(self) -> None:
        self.params, self.tags = {}, {}
        self.log_params, self.set_tags = self.params.update, self.tags.update


def test_one_of_them(job, measured):
    record = Record()
    config = resolve_auto(job.config("pipeline.readers=auto", "pipeline.threads=1"), None, None, record)
    assert (config.pipeline.threads, config.pipeline.readers) == (1, 2)
    assert measured == [(False, True)]
    assert record.params == {"pipeline.readers": 2}
    assert list(record.tags) == ["auto.pipeline.readers"]


def test_a_count_that_an_earlier_run_was_given_is_not_taken_for_a_measured_one(job, measured):
    earlier = {"params": {"pipeline.threads": "7", "pipeline.readers": "5"}, "tags": {"auto.pipeline.readers": "..."}}
    config = resolve_auto(job.config("pipeline.readers=auto", "pipeline.threads=auto"), None, None, Record(), earlier)
    assert (config.pipeline.threads, config.pipeline.readers) == (3, 5)
    assert measured == [(True, False)]


def test_nothing_to_do(job, measured):
    config = job.config()
    assert resolve_auto(config, None, None, Record()) is config
    assert measured == []


@pytest.mark.parametrize("value", ["abc", "1.5", "True"])
def test_other_words_are_refused(job, value):
    with pytest.raises(UserError, match=rf"pipeline\.threads={value}: must be a whole number, or auto\."):
        job.config(f"pipeline.threads={value}")
