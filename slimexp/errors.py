"""The errors a user can cause, as opposed to faults of ours."""

from __future__ import annotations

__all__ = ["Interrupted", "UserError"]


class UserError(ValueError):
    """Something the user can mend: a config value, a list file, an image, a folder.

    Its message is the whole answer (what, where, the rule, the way out), so the command line prints it without a
    traceback and ends with exit code 1.
    """


class Interrupted(KeyboardInterrupt):
    """The run was asked to stop by a signal.

    Like Python's own for Ctrl-C it is no Exception: nothing that mends errors may take it for one and go on.

    Attributes:
        signum: The signal's number; the exit code is 128 + signum.
    """

    def __init__(self, message: str, signum: int) -> None:
        super().__init__(message)
        self.signum = signum
