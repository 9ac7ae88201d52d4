"""Jobs that end in every way there is, without TensorFlow; the seed says how. Copied to where a sweep is started."""

import json
import os
import signal
import sys
import time
from pathlib import Path

from slimexp.errors import UserError
from slimexp.sweep.membership import current
from slimexp.tracking import Tracker
from slimexp.training.signals import StopSignals


def run(config, overrides):
    """Records a run whose only metric is its seed, and ends as the seed says."""
    place = current()
    folder = Path(config.run_dir)
    with (
        StopSignals(),
        Tracker.start(
            backend=config.tracking.backend.value,
            uri=config.tracking.uri,
            experiment=config.tracking.experiment,
            run_name=place.name,
            run_dir=folder,
            tags=place.tags,
            params={"seed": config.seed},
        ) as tracker,
    ):
        with open(folder / "starts.txt", "a", encoding="utf-8") as file:
            file.write(f"{os.getpid()} {json.dumps(overrides)} GPU {os.environ.get('CUDA_VISIBLE_DEVICES')}\n")
        print(f"seed {config.seed} at work", flush=True)
        tracker.log_metrics(1, {"eval/top1": config.seed / 10})
        end = _ENDS.get(config.seed)
        if end is not None:
            end(folder)


def _exit(folder):
    sys.exit(0)


def _die(folder):
    os.kill(os.getpid(), signal.SIGKILL)


def _fail(folder):
    raise RuntimeError("a fault of its own")


def _leave(folder):
    os._exit(0)


def _mend(folder):
    """Fails until a file says that the cause is gone."""
    if not (Path.cwd() / "mended").exists():
        raise UserError("something that the user can mend")


def _wait(folder):
    """Works until it is stopped, and goes on from what it has saved then."""
    if (folder / "saved").exists():
        return
    (folder / "waiting").touch()
    try:
        time.sleep(60)
    except KeyboardInterrupt:
        (folder / "saved").touch()
        raise


def _spoil(folder):
    """Leaves the sweep a record that cannot be written, and its next job no folder."""
    (folder.parent / f"sweep.json.{os.getppid()}.tmp").mkdir()
    (folder.parent / "1").touch()


def _fill(folder):
    """Meets a disk that is full."""
    with open("/dev/full", "w") as file:
        file.write("x")


_ENDS = {3: _exit, 4: _die, 5: _fail, 6: _leave, 7: _mend, 8: _wait, 9: _spoil, 10: _fill}
