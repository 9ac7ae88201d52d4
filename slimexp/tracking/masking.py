"""Keeps passwords out of what is shown, stored and sent.

Two rules: the value of a key that is named like a secret becomes `***`, and so does the password in an address
(`postgresql://user:***@host/db`). Both work on text alone, so they also fit messages of other libraries.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence

__all__ = ["MASK", "is_secret_key", "mask_command", "mask_text"]

MASK = "***"

# Whole words only: `num_tokens` and `tokenizer` are no secrets, `api_token` is.
_SECRET_WORDS = frozenset(
    {
        *("password", "passwd", "pwd", "passphrase", "secret", "secrets"),
        *("token", "credential", "credentials", "apikey", "authorization"),
    }
)
_SECRET_PAIRS = re.compile(r"(?:^|_)(?:api|access|private|secret|signing|encryption)_key(?:_|$)")

# Bounded repeats: a diff or a log may hold lines of many thousand letters.
# The password may hold an `@` of its own, so the last one before the next `/` or blank ends it.
_USER_AND_PASSWORD = re.compile(r"(\b[A-Za-z][A-Za-z0-9+.\-]{0,30}://[^\s/:@?#]*):[^\s/]+@")
# `https://TOKEN@host`: a lone user name is a token there, while `ssh://git@host` is just a user.
_HTTP_TOKEN = re.compile(r"(https?://)[^\s/:@?#]+@")
_QUERY_SECRET = re.compile(
    r"([?&][\w.\-]{0,40}(?:password|passwd|secret|token|api_?key|signature)[\w.\-]{0,40}=)[^&\s#]+", re.I
)
_ASSIGNMENT = re.compile(r"(?P<sigil>[+~]{0,2})(?P<key>[\w./@:\-]+)=(?P<value>.+)", re.DOTALL)


def is_secret_key(key: str) -> bool:
    """Tells whether a key is named like a secret, e.g. `tracking.api_token` or `dbPassword`."""
    last = key.replace("/", ".").rsplit(".", 1)[-1]
    snake = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", last).replace("-", "_").lower()
    return not _SECRET_WORDS.isdisjoint(snake.split("_")) or bool(_SECRET_PAIRS.search(snake))


def mask_text(text: str) -> str:
    """Replaces the passwords and tokens of all addresses in a text by `***`."""
    text = _USER_AND_PASSWORD.sub(rf"\1:{MASK}@", text)
    text = _HTTP_TOKEN.sub(rf"\1{MASK}@", text)
    return _QUERY_SECRET.sub(rf"\1{MASK}", text)


def mask_command(argv: Sequence[str]) -> str:
    """Joins a command line so that a shell would read it back, with the secrets replaced.

    Args:
        argv: The words of the command, overrides such as `tracking.uri=http://user:pass@host` among them.

    Returns:
        The quoted command in one line.
    """
    words = []
    for word in argv:
        match = _ASSIGNMENT.fullmatch(word)
        if match and is_secret_key(match["key"]):
            word = f"{match['sigil']}{match['key']}={MASK}"
        words.append(shlex.quote(mask_text(word)))
    return " ".join(words)
