"""Says in one message what Hydra has to say about a command that it cannot compose."""

from __future__ import annotations

import difflib
import re
from pathlib import Path

from hydra.errors import OverrideParseException
from omegaconf.errors import ConfigAttributeError, ConfigKeyError, OmegaConfBaseException

from slimexp.jobs.starting import disk_trouble
from slimexp.validation import unknown_key

__all__ = ["explain"]


def explain(error: Exception) -> str:
    """Rewrites Hydra's account of a bad override: which key, which value, the rule, and the nearest real one."""
    cause = error.__cause__
    if isinstance(cause, (ConfigAttributeError, ConfigKeyError)) and cause.full_key:
        if cause.full_key.startswith("model.network."):
            return (
                f"{cause.full_key}: an argument that the file does not name is added with a plus: +{cause.full_key}=..."
            )
        return unknown_key(cause.full_key)
    if isinstance(cause, OmegaConfBaseException) and cause.full_key:
        return f"{cause.full_key}: {str(cause).splitlines()[0]}"
    trouble = disk_trouble(error, Path.cwd()) if isinstance(error, OSError) else None
    if trouble is not None:
        return trouble
    message = str(error).split("\nConfig search path:")[0].strip()
    if isinstance(error, OverrideParseException):
        return (
            f"{message.splitlines()[0]}\nA value with blanks, quotes, '=', '~' or letters beyond ASCII is quoted for "
            "Hydra, and once more for the shell: 'dataset.root=\"my photos\"'."
        )
    missing = re.search(r"Could not find '([\w/]+)/(\w+)'", message)
    options = re.findall(r"\n\t(\S+)", message)
    if missing and options:
        group, option = missing.groups()
        if (group, option) == ("pipeline", "tuned"):
            return (
                "pipeline=tuned: there is no such option yet: job=benchmark, alone or in a sweep such as -m "
                "job=benchmark pipeline.threads=1,2,4, writes it into the folder it is started in. Until then there "
                f"are {', '.join(options)}."
            )
        close = difflib.get_close_matches(option, options, n=1, cutoff=0.7)
        guess = f"the nearest is {close[0]}, of" if close else "there are"
        return f"{group}={option}: there is no such option; {guess} {', '.join(options)}."
    return message
