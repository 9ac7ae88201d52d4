"""The best checkpoint so far by an evaluation metric, kept apart from the others; and when to give up waiting for more.

RUN_DIR/best/  checkpoint  model.ckpt-N.*  best.json: {"metric": "eval/top1", "step": N, "value": 0.98}
"""

from __future__ import annotations

import dataclasses
import json
import logging
import math
import shutil
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

import numpy as np

from slimexp.evaluation.tables import replace_file
from slimexp.training.checkpoints import Checkpoints

__all__ = ["BEST_FOLDER", "RECORD", "Best", "BestKeeper"]

BEST_FOLDER, RECORD = "best", "best.json"
_log = logging.getLogger("slimexp")


@dataclasses.dataclass(frozen=True)
class Best:
    """What the kept checkpoint is.

    Attributes:
        metric: E.g. `eval/top1`.
        step: The step of the checkpoint and of its evaluation.
        value: The metric's.
    """

    metric: str
    step: int
    value: float


class BestKeeper:
    """Keeps the checkpoint of the best evaluation, and counts those after it.

    Args:
        folder: The run's; the checkpoint goes into `best/` there.
        metric: By which to choose, e.g. `eval/top1`.
        maximize: Whether larger values are better.
        patience: How many evaluations in a row may be no better than the best; None: any number.
        evaluated: Step and value of the evaluations that the run has made before, when it goes on; None when it
            starts anew: what an earlier run has left there is then renamed.

    Attributes:
        best: The best so far, or None.
    """

    def __init__(
        self,
        folder: Path,
        metric: str,
        *,
        maximize: bool,
        patience: int | None = None,
        evaluated: Iterable[tuple[int, float]] | None = None,
    ) -> None:
        self.metric = metric
        self._maximize = maximize
        self._patience = patience
        self._folder = folder / BEST_FOLDER
        # The one before stays until the record names the new one: there is a best at any time.
        self._checkpoints = Checkpoints(self._folder, max_to_keep=2)
        self.best: Best | None = None
        if evaluated is None:
            _set_aside(self._folder)
        else:
            self.best = self._known()
        since = -1 if self.best is None else self.best.step
        self._evaluated_since = {step for step, _ in evaluated or () if step > since}

    @property
    def num_without_improvement(self) -> int:
        """The number of evaluations since the best one."""
        return len(self._evaluated_since)

    @property
    def is_exhausted(self) -> bool:
        """Whether as many evaluations as may be were no better than the best."""
        return self._patience is not None and self.num_without_improvement >= self._patience

    def update(self, step: int, value: float, state: Callable[[], Mapping[str, np.ndarray]]) -> bool:
        """Takes note of an evaluation, and keeps the state if it is the best.

        Args:
            step: The step of the evaluation.
            value: The metric's; NaN is worse than anything.
            state: Gives what the checkpoint of this step holds.

        Returns:
            Whether it is the best so far.
        """
        if math.isnan(value) or (self.best is not None and not self._is_better(value, self.best.value)):
            if self.best is None or step > self.best.step:
                self._evaluated_since.add(step)
            return False
        self._checkpoints.save(step, state())
        self.best = Best(self.metric, step, value)
        text = json.dumps(dataclasses.asdict(self.best), indent=1)
        replace_file(self._folder / RECORD, lambda path: path.write_text(f"{text}\n", encoding="utf-8"))
        self._checkpoints.keep_only(step)
        self._evaluated_since.clear()
        return True

    def describe(self) -> str:
        """Returns the best and where it is, in words."""
        if self.best is None:
            return f"Best:        no evaluation gave a {self.metric} that is a number"
        best = self.best
        return f"Best:        {best.metric} {best.value:.4f} at step {best.step}: {self._checkpoints.prefix(best.step)}"

    def explain_stop(self) -> str:
        """Returns why training ends before its last step, in words."""
        best = "there was none yet" if self.best is None else f"{self.best.value:.4f} at step {self.best.step}"
        return (
            f"No better {self.metric} in {self.num_without_improvement} evaluations ({best}): training ends early "
            f"(trainer.early_stop_patience={self._patience})."
        )

    def _is_better(self, value: float, than: float) -> bool:
        return value > than if self._maximize else value < than

    def _known(self) -> Best | None:
        """Returns the best that the folder's record names, if its checkpoint is there."""
        try:
            values = json.loads((self._folder / RECORD).read_text(encoding="utf-8"))
            best = Best(str(values["metric"]), int(values["step"]), float(values["value"]))
        except FileNotFoundError:
            return None
        except (OSError, ValueError, KeyError, TypeError) as error:
            _log.warning("%s cannot be read (%s): the best is looked for anew.", self._folder / RECORD, error)
            return None
        if best.metric != self.metric:
            _log.warning(
                "trainer.keep_best=%s: the best so far was chosen by %s; from here on it is looked for anew.",
                self.metric,
                best.metric,
            )
            return None
        if best.step not in self._checkpoints.steps():
            _log.warning(
                "%s: the best checkpoint, of step %d, is gone; it is looked for anew.", self._folder, best.step
            )
            return None
        self._checkpoints.keep_only(best.step)  # A run may have been killed before it named a newer one.
        return best


def _set_aside(folder: Path) -> None:
    if not folder.is_dir():
        return
    number = 1
    while (target := folder.with_name(f"{folder.name}-{number}")).exists():
        number += 1
    shutil.move(folder, target)
    _log.info("The best checkpoint of an earlier run in %s is now in %s.", folder.parent, target.name)
