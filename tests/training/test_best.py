"""The best checkpoint by a metric: what is kept, what a run that goes on knows of it, and when to give up."""

from __future__ import annotations

import json
import logging
import math

import numpy as np
import pytest

from slimexp.training.best import BestKeeper
from slimexp.training.checkpoints import Checkpoints


def state_of(step):
    return lambda: {"w": np.float32([step]), "global_step": np.int64(step)}


def update(keeper, step, value):
    return keeper.update(step, value, state_of(step))


def kept(folder):
    checkpoints = Checkpoints(folder / "best")
    record = json.loads((folder / "best" / "best.json").read_text())
    assert checkpoints.steps() == [record["step"]]
    assert f"model.ckpt-{record['step']}" in (folder / "best" / "checkpoint").read_text()
    np.testing.assert_array_equal(checkpoints.load(record["step"])["w"], [record["step"]])
    return record


@pytest.mark.parametrize(("maximize", "best"), [(True, 20), (False, 30)])
def test_the_best_is_kept_and_nothing_else(tmp_path, maximize, best):
    keeper = BestKeeper(tmp_path, "eval/top1", maximize=maximize)
    values = {10: 0.5, 20: 0.8, 30: 0.4, 40: 0.6, 50: math.nan}
    improved = [step for step, value in values.items() if update(keeper, step, value)]
    assert improved == ([10, 20] if maximize else [10, 30])
    assert kept(tmp_path) == {"metric": "eval/top1", "step": best, "value": values[best]}
    assert keeper.num_without_improvement == (50 - best) // 10
    assert not keeper.is_exhausted
    assert f"eval/top1 {values[best]:.4f} at step {best}: {tmp_path}/best/model.ckpt-{best}" in keeper.describe()


def test_an_equal_value_is_no_improvement(tmp_path):
    keeper = BestKeeper(tmp_path, "eval/top1", maximize=True, patience=2)
    assert [update(keeper, step, 0.5) for step in (1, 2, 3)] == [True, False, False]
    assert keeper.is_exhausted
    text = (
        r"No better eval/top1 in 2 evaluations (0.5000 at step 1): training ends early (trainer.early_stop_patience=2)."
    )
    assert keeper.explain_stop() == text


def test_a_run_that_goes_on_knows_its_best(tmp_path):
    keeper = BestKeeper(tmp_path, "eval/loss", maximize=False, patience=2)
    for step, value in ((1, 0.5), (2, 0.3), (3, 0.4)):
        update(keeper, step, value)
    again = BestKeeper(tmp_path, "eval/loss", maximize=False, patience=2, evaluated=[(1, 0.5), (2, 0.3), (3, 0.4)])
    assert again.best == keeper.best
    assert (again.num_without_improvement, again.is_exhausted) == (1, False)
    assert not update(again, 3, 0.4)  # The last one made up for counts once.
    assert again.num_without_improvement == 1
    assert not update(again, 4, 0.35)
    assert again.is_exhausted
    assert kept(tmp_path)["step"] == 2


def test_it_goes_back_to_before_the_best(tmp_path):
    """The run was killed after evaluation 4, its last checkpoint is of step 2: the steps are made again."""
    keeper = BestKeeper(tmp_path, "eval/loss", maximize=False, patience=1)
    update(keeper, 4, 0.3)
    again = BestKeeper(tmp_path, "eval/loss", maximize=False, patience=1, evaluated=[(2, 0.5)])
    assert not update(again, 3, 0.4)
    assert not update(again, 4, 0.3)
    assert again.num_without_improvement == 0
    assert not update(again, 5, 0.4)
    assert again.is_exhausted


def test_a_kill_between_checkpoint_and_record_leaves_the_old_best(tmp_path):
    keeper = BestKeeper(tmp_path, "eval/top1", maximize=True)
    update(keeper, 1, 0.5)
    Checkpoints(tmp_path / "best", max_to_keep=2).save(2, state_of(2)())
    again = BestKeeper(tmp_path, "eval/top1", maximize=True, evaluated=[(1, 0.5)])
    assert again.best.step == 1
    assert kept(tmp_path)["step"] == 1


def test_what_cannot_be_gone_on_with_is_said(tmp_path, caplog):
    caplog.set_level(logging.INFO)
    update(BestKeeper(tmp_path, "eval/top1", maximize=True), 1, 0.5)
    other = BestKeeper(tmp_path, "eval/loss", maximize=False, evaluated=[])
    assert other.best is None
    assert "trainer.keep_best=eval/loss: the best so far was chosen by eval/top1" in caplog.text
    (tmp_path / "best" / "model.ckpt-1.index").unlink()
    assert BestKeeper(tmp_path, "eval/top1", maximize=True, evaluated=[]).best is None
    assert "the best checkpoint, of step 1, is gone" in caplog.text
    (tmp_path / "best" / "best.json").write_text("{")
    assert BestKeeper(tmp_path, "eval/top1", maximize=True, evaluated=[]).best is None
    assert "best.json cannot be read" in caplog.text
    assert "no evaluation gave a eval/top1" in BestKeeper(tmp_path, "eval/top1", maximize=True).describe()
    assert (tmp_path / "best-1").is_dir()  # A run that starts anew touches nothing of an earlier one.
    assert "is now in best-1" in caplog.text
