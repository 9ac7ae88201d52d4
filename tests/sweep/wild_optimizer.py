"""An optimizer that ends its job in the way it is told, until a file says that it is mended."""

import os
import signal
import sys
from pathlib import Path

from slimexp.training.optimizers import sgd


def make(rate, how):
    if not Path("mended").exists():
        if how == "exit":
            sys.exit(0)
        if how == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        if how == "blow_up":
            return sgd(lambda: rate() * 1e30)
    return sgd(rate)
