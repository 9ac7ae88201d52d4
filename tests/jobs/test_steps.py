"""`preprocessing.steps` from the configuration to a run, with what a wrong one gets told before it starts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from slimexp.errors import UserError
from slimexp.jobs import build
from slimexp.pipeline.preprocessing import LenetPreprocessing
from slimexp.pipeline.steps import SteppedPreprocessing
from slimexp.tracking import read_metrics
from tests.jobs.conftest import TINY

HERE = "tests.jobs.test_steps"
FADE = "scripts.examples.steps.fade"


def shift(image: tf.Tensor, by: float) -> tf.Tensor:
    """Adds a number."""
    return image + by


def negative(image: np.ndarray) -> np.ndarray:
    """Turns light and dark round."""
    return 255 - image


def test_a_run_with_steps(job: Any) -> None:
    steps = f"[{{numpy: {HERE}.negative, at: decoded}}, {{_target_: {FADE}, most: 0.5, num_draws: 1}}]"
    job.train(*TINY, f"preprocessing.steps={steps}", "tracking=none")
    record = json.loads((job.run_dir / "run.json").read_text())
    assert record["status"] == "FINISHED"
    assert '"num_draws": 1' in record["params"]["preprocessing.steps"]
    rows = read_metrics(job.run_dir / "metrics.jsonl")
    assert any("eval/top1" in row.metrics for row in rows)

    # The same metrics lie in the event files, each under the name of its folder.
    for folder, tag in (("train", "loss"), ("eval", "top1")):
        (file,) = (job.run_dir / "events" / folder).iterdir()
        events = list(tf.compat.v1.train.summary_iterator(str(file)))
        found = [(e.step, v.simple_value) for e in events for v in e.summary.value if v.tag == tag]
        expected = [(r.step, r.metrics[f"{folder}/{tag}"]) for r in rows if f"{folder}/{tag}" in r.metrics]
        assert [step for step, _ in found] == [step for step, _ in expected]
        np.testing.assert_allclose([v for _, v in found], [v for _, v in expected], rtol=1e-6)


def test_steps_that_draw_are_for_training_alone_unless_told_otherwise(job: Any) -> None:
    def steps(*texts: str, is_training: bool) -> list[str]:
        config = job.config(f"preprocessing.steps=[{', '.join(texts)}]")
        made = build.preprocessing(config, size_px=28, is_training=is_training)
        return [step.key[-3:] for step in made.steps] if isinstance(made, SteppedPreprocessing) else []

    fade = f"_target_: {FADE}, most: 0.5, num_draws: 1"
    texts = [f"{{{fade}}}", f"{{_target_: {HERE}.shift, by: 1}}", f"{{{fade}, when: always}}"]
    assert steps(*texts, is_training=True) == ["[0]", "[1]", "[2]"]
    assert steps(*texts, is_training=False) == ["[1]", "[2]"]
    assert steps(f"{{_target_: {HERE}.shift, by: 1, when: training}}", is_training=False) == []
    assert isinstance(build.preprocessing(job.config(), size_px=28, is_training=True), LenetPreprocessing)


def test_steps_stand_around_a_users_own_preprocessing_too(job: Any) -> None:
    config = job.config()
    config.preprocessing = {
        "_target_": "slimexp.pipeline.preprocessing.LenetPreprocessing",
        "name": "mine",
        "steps": [{"_target_": f"{HERE}.shift", "by": 3}],
    }
    made = build.preprocessing(config, size_px=8, is_training=False)
    np.testing.assert_allclose(made.finish(tf.fill([8, 8, 3], tf.constant(128, tf.uint8)), tf.zeros([1])), 3.0)
    config.preprocessing["steps"] = [{"target": "x"}]
    with pytest.raises(UserError, match=r"preprocessing\.steps\[0\]=.* must be one of the three"):
        build.check_targets(config)


@pytest.mark.parametrize(
    ("steps", "message"),
    [
        ("3", r"preprocessing\.steps=3: must be a list of steps, each \{_target_: my\.module\.function"),
        ("[3]", r"preprocessing\.steps\[0\]=3: must be \{_target_:"),
        ("[{_target_: a.b}, {op: c}]", r"preprocessing\.steps\[1\]=\{'op': 'c'\}: must be one of the three"),
        ("[{_target_: a.b, numpy: a.c}]", r"preprocessing\.steps\[0\]=.*must be one of the three"),
        ("[{numpy: 3}]", r"preprocessing\.steps\[0\]\.numpy=3: must be text"),
        ("[{library: a.so}]", r"preprocessing\.steps\[0\]\.op=null: must be text"),
        ("[{_target_: a.b, at: start}]", r"preprocessing\.steps\[0\]\.at=start: must be decoded or finished"),
        ("[{_target_: a.b, when: never}]", r"preprocessing\.steps\[0\]\.when=never: must be training or always"),
        ("[{_target_: a.b, num_draws: 0}]", r"preprocessing\.steps\[0\]\.num_draws=0: must be a whole number of 1"),
        ("[{_target_: a.b, num_draws: true}]", r"preprocessing\.steps\[0\]\.num_draws=True: must be a whole"),
    ],
)
def test_the_form_of_steps_is_checked_with_the_configuration(job: Any, steps: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        job.config(f"preprocessing.steps={steps}")


@pytest.mark.parametrize(
    ("step", "message"),
    [
        (f"{{_target_: {HERE}.shft, by: 1}}", r"steps\[0\]\._target_=.*shft: .*The nearest is .*\.shift\."),
        (f"{{numpy: {HERE}s.shift}}", r"steps\[0\]\.numpy=.*: cannot import tests\.jobs\.test_stepss"),
        (f"{{_target_: {HERE}.shift, by: 1, buy: 1}}", r"steps\[0\] \(.*shift\) cannot be called so: .*buy"),
        ("{library: none.so, op: fade}", r"steps\[0\]\.library=/.*/none\.so: there is no such file"),
    ],
)
def test_what_steps_name_is_looked_up_before_work_starts(job: Any, step: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        build.check_targets(job.config(f"preprocessing.steps=[{step}]"))


def test_a_librarys_path_counts_from_the_folder_of_the_start(job: Any, tmp_path: Path) -> None:
    config = job.config("preprocessing.steps=[{library: ops/fade.so, op: fade}, {_target_: a.b}]")
    assert config.preprocessing.steps[0]["library"] == str(tmp_path / "ops" / "fade.so")
