"""Says in one message what Hydra has to say about a command that it cannot compose."""

from __future__ import annotations

import difflib
import re
import sys
from pathlib import Path

from hydra.errors import OverrideParseException
from omegaconf.errors import ConfigAttributeError, ConfigKeyError, OmegaConfBaseException

from slimexp.config import CONFIG_DIR
from slimexp.jobs.starting import disk_trouble
from slimexp.validation import unknown_key
from slimexp.wrong_values import explain_value

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
        return explain_value(cause)
    trouble = disk_trouble(error, Path.cwd()) if isinstance(error, OSError) else None
    if trouble is not None:
        return trouble
    message = str(error).split("\nConfig search path:")[0].strip()
    if isinstance(error, OverrideParseException):
        return (
            f"{message.splitlines()[0]}\nA value with blanks, quotes, '=', '~' or letters beyond ASCII is quoted for "
            "Hydra, and once more for the shell: 'dataset.root=\"my photos\"'."
        )
    if message.startswith("Config group override must be"):
        return f"{_group_override()} must name an option of its group, e.g. model=vgg16; --help lists them."
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


def _group_override() -> str:
    """Returns the word of the command that gives a group something else than a name; Hydra does not say which."""
    groups = {path.name for path in CONFIG_DIR.iterdir() if path.is_dir()}
    words = [word for word in sys.argv[1:] if word.partition("=")[0].lstrip("+") in groups]
    odd = next((word for word in words if not re.match(r"[A-Za-z_]", word.partition("=")[2].replace("null", ""))), None)
    return f"{odd}:" if odd else "what is given to a group"
