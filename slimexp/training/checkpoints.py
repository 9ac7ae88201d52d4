"""Checkpoints: TensorFlow V2 bundles keyed by TF-Slim's variable names, complete or not there at all.

A bundle is written under a temporary name and renamed, its index last: a run that is killed in between leaves the
earlier checkpoints as they were. `tf.train.load_checkpoint`, `tf.train.latest_checkpoint` and TF-Slim read them.
"""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import tensorflow as tf

from slimexp.errors import UserError

__all__ = ["Checkpoints"]

_PREFIX = "model.ckpt"
_DATA, _INDEX = ".data-00000-of-00001", ".index"


class Checkpoints:
    """The checkpoints of one run, in one folder: `model.ckpt-N.{index,data-00000-of-00001}` and the file `checkpoint`.

    Only one process may write into a folder.

    Args:
        folder: Created when the first checkpoint is saved.
        max_to_keep: How many of the latest to keep; older ones are deleted after a new one is complete.
    """

    def __init__(self, folder: str | Path, *, max_to_keep: int = 5) -> None:
        self.folder = Path(folder)
        self.max_to_keep = max_to_keep

    def steps(self) -> list[int]:
        """Returns the steps of all complete checkpoints, ascending."""
        pattern = re.compile(rf"{re.escape(_PREFIX)}-(\d+){re.escape(_INDEX)}")
        names = os.listdir(self.folder) if self.folder.is_dir() else []
        found = (pattern.fullmatch(name) for name in names)
        steps = (int(match.group(1)) for match in found if match)
        return sorted(step for step in steps if self._file(step, _DATA).exists())

    def latest_step(self) -> int | None:
        """Returns the step of the last complete checkpoint, or None."""
        return max(self.steps(), default=None)

    def prefix(self, step: int) -> str:
        """Returns the path that `tf.train.load_checkpoint` takes for the checkpoint of `step`."""
        return str(self.folder / f"{_PREFIX}-{step}")

    def save(self, step: int, values: Mapping[str, np.ndarray]) -> str:
        """Writes a checkpoint and then deletes those beyond `max_to_keep`.

        Args:
            step: The global step, which becomes part of the name.
            values: Variable name -> value; the bytes written depend on nothing else.

        Returns:
            The checkpoint's prefix.

        Raises:
            UserError: If the folder cannot be written (no room, no permission).
        """
        temporary = str(self.folder / f".{_PREFIX}-{step}.tmp")
        names = sorted(values)
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            tf.raw_ops.SaveV2(
                prefix=temporary,
                tensor_names=names,
                shape_and_slices=[""] * len(names),
                tensors=[tf.convert_to_tensor(values[name]) for name in names],
            )
            for part in (_DATA, _INDEX):  # The index last: it is what makes the checkpoint one.
                os.replace(temporary + part, self._file(step, part))
            keep = [*(s for s in self.steps() if s != step), step][-self.max_to_keep :]
            self._write_state(keep)
            self._delete(set(self.steps()) - set(keep))
        except (OSError, tf.errors.OpError) as error:
            raise UserError(
                f"run_dir: the checkpoint of step {step} cannot be written to {self.folder}: {_first_line(error)}. "
                "Make room or choose another run_dir; earlier checkpoints are untouched."
            ) from error
        finally:
            for left in self.folder.glob(f".{_PREFIX}-*.tmp*"):  # Also those of a run that was killed.
                left.unlink(missing_ok=True)
        return self.prefix(step)

    def keep_only(self, step: int) -> None:
        """Deletes all checkpoints but that of `step`, which the folder's latest then is."""
        others = set(self.steps()) - {step}
        if others:
            self._write_state([step])
            self._delete(others)

    def load(self, step: int) -> dict[str, np.ndarray]:
        """Reads every value of the checkpoint of `step`.

        Raises:
            UserError: If it is damaged.
        """
        earlier = [str(other) for other in self.steps() if other != step]
        try:
            # TensorFlow's reader takes a prefix for a pattern, and `[`, `*` and `?` in a folder's name for parts of
            # it; so it reads through links in a folder with a plain name.
            with tempfile.TemporaryDirectory() as folder:
                for part in (_DATA, _INDEX):
                    os.symlink(self._file(step, part).resolve(), Path(folder) / f"{_PREFIX}{part}")
                reader = tf.train.load_checkpoint(str(Path(folder) / _PREFIX))
                return {name: reader.get_tensor(name) for name in reader.get_variable_to_shape_map()}
        except (tf.errors.OpError, ValueError, RuntimeError, IndexError) as error:
            way_out = f"go on from step {' or '.join(earlier)}" if earlier else "start anew"
            raise UserError(
                f"{self.prefix(step)}: the checkpoint cannot be read: {_first_line(error)}. "
                f"Delete its two files to {way_out}."
            ) from error

    def _file(self, step: int, part: str) -> Path:
        return Path(self.prefix(step) + part)

    def _write_state(self, steps: list[int]) -> None:
        # Relative names, so that the folder can be moved.
        names = [f"{_PREFIX}-{step}" for step in steps]
        state = tf.compat.v1.train.generate_checkpoint_state_proto(
            str(self.folder), model_checkpoint_path=names[-1], all_model_checkpoint_paths=names
        )
        temporary = self.folder / f".{_PREFIX}-state.tmp"
        temporary.write_text(str(state), encoding="utf-8")
        os.replace(temporary, self.folder / "checkpoint")

    def _delete(self, steps: set[int]) -> None:
        for step in steps:
            for part in (_INDEX, _DATA):  # The index first, so that no half checkpoint is ever found.
                self._file(step, part).unlink(missing_ok=True)


def _first_line(error: BaseException) -> str:
    message = getattr(error, "message", None) or getattr(error, "strerror", None) or str(error)
    line = str(message).splitlines()[0] if str(message) else type(error).__name__
    # What TensorFlow wraps around the cause: {{function_node ...}} before it, [Op:...] behind it.
    return re.sub(r"\{\{.*?\}\} ?|; .*tempstate.*| ?\[Op:\w+\].*", "", line).strip(" .")
