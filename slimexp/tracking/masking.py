"""Keeps passwords out of what is shown, stored and sent.

Three rules: the value of a key that is named like a secret becomes `***`, and so does the password in an address
(`postgresql://user:***@host/db`), and so do the tokens that well-known services make, which tell themselves by their
first letters. All work on text alone, so they also fit messages of other libraries.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from pathlib import PurePosixPath

__all__ = ["MASK", "is_secret_key", "mask_command", "mask_diff", "mask_settings", "mask_text"]

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
    r"([?&][\w.\-]{0,40}(?:password|passwd|secret|token|api_?key|signature|odbc_connect)[\w.\-]{0,40}=)[^&\s#]+", re.I
)
# GitHub, GitLab, Hugging Face, OpenAI and their like, Slack, AWS; JSON web tokens; private keys.
_KNOWN_TOKEN = re.compile(
    r"\b(?:gh[oprsu]_\w{20,255}|github_pat_\w{20,255}|glpat-[\w\-]{20,255}|hf_\w{20,255}|sk-[\w\-]{20,255}"
    r"|xox[abprs]-[\w\-]{10,255}|AKIA[0-9A-Z]{16}|eyJ[\w\-]{10,}\.eyJ[\w\-]{10,}\.[\w\-]+)"
)
_PRIVATE_KEY = re.compile(r"(-----BEGIN [A-Z ]{0,40}PRIVATE KEY-----).*?(-----END|\Z)", re.DOTALL)
# `API_TOKEN=abc`, as in an environment or an override, without blanks around the sign.
_SETTING = re.compile(
    r"(?<![\w.\-])(?P<start>(?P<key>[\w.\-]{1,100})=)(?P<value>\"[^\"\n]*\"|'[^'\n]*'|[^\s,;&'\"})\]]+)"
)
# `password = 'abc'`, `"token": "abc"`: what a program or a configuration says.
_QUOTED = re.compile(
    r"(?<![\w.\-])(?P<start>(?P<key>[\w.\-]{1,100})[\"']?\]?[ \t]*[:=]{1,2}[ \t]*)"
    r"(?P<value>[rbf]?\"[^\"\n]+\"|[rbf]?'[^'\n]+')"
)
# `password: abc`, to the end of the line, as YAML, .env and .ini files have it.
_UNQUOTED = re.compile(
    r"(?<![\w.\-])(?P<start>(?P<key>[\w.\-]{1,100})[\"']?[ \t]*[:=][ \t]*)(?P<value>[^\s\"'{\[|>&*#][^\n]*)"
)
_NO_SECRETS = frozenset({"", "null", "none", "~", "true", "false"})
# Files in which an unquoted value is a name or a call.
_PROGRAMS = frozenset(
    {".py", ".pyi", ".c", ".cc", ".cpp", ".cu", ".h", ".hpp", ".js", ".ts", ".java", ".go", ".rs", ".md"}
)
_ASSIGNMENT = re.compile(r"(?P<sigil>[+~]{0,2})(?P<key>[\w./@:\-]+)=(?P<value>.+)", re.DOTALL)


def is_secret_key(key: str) -> bool:
    """Tells whether a key is named like a secret, e.g. `tracking.api_token` or `dbPassword`."""
    last = key.replace("/", ".").rsplit(".", 1)[-1]
    snake = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", last).replace("-", "_").lower()
    return not _SECRET_WORDS.isdisjoint(snake.split("_")) or bool(_SECRET_PAIRS.search(snake))


def mask_text(text: str) -> str:
    """Replaces what is secret in a message, a value or a command by `***`.

    That is the passwords and tokens of addresses, known kinds of tokens, and the value in `KEY=VALUE` where the key is
    named like a secret.
    """
    return _SETTING.sub(_mask_value, _mask_marked(text))


def mask_settings(text: str) -> str:
    """Replaces what is secret in a configuration file: what `mask_text` does, and the values in `KEY: VALUE`."""
    text = _QUOTED.sub(_mask_value, _mask_marked(text))
    return _SETTING.sub(_mask_value, _UNQUOTED.sub(_mask_line, text))


def mask_diff(diff: str) -> str:
    """Replaces what is secret in the output of `git diff`.

    In the source of a program only quoted values count, since `token = next(tokens)` is none; in every other file all.
    """
    parts = re.split(r"(?m)^(?=diff --git )", diff)
    return "".join(_mask_file_diff(part) for part in parts)


def mask_command(argv: Sequence[str]) -> str:
    """Joins a command line so that a shell would read it back, with the secrets replaced.

    Args:
        argv: The words of the command, overrides such as `tracking.uri=http://user:pass@host` among them. After an
            option that is named like a secret, `--api-token abc`, the next word is one.

    Returns:
        The quoted command in one line.
    """
    words = []
    secret_follows = False
    for word in argv:
        match = _ASSIGNMENT.fullmatch(word)
        if secret_follows and not word.startswith("-"):
            word = MASK
        elif match and is_secret_key(match["key"]):
            word = f"{match['sigil']}{match['key']}={MASK}"
        secret_follows = word.startswith("--") and "=" not in word and is_secret_key(word)
        # A dictionary in an override, `+x={token: abc}`, has its keys inside.
        words.append(shlex.quote(_mask_inside(word)))
    return " ".join(words)


def _mask_marked(text: str) -> str:
    """Masks what tells itself as a secret, whatever it stands in."""
    text = _USER_AND_PASSWORD.sub(rf"\1:{MASK}@", text)
    text = _HTTP_TOKEN.sub(rf"\1{MASK}@", text)
    text = _QUERY_SECRET.sub(rf"\1{MASK}", text)
    text = _PRIVATE_KEY.sub(rf"\1 {MASK} \2", text)
    return _KNOWN_TOKEN.sub(MASK, text)


def _mask_value(match: re.Match[str]) -> str:
    value = match["value"].strip()
    if value.lower().strip("'\"") in _NO_SECRETS or not is_secret_key(match["key"]):
        return match[0]
    if value == MASK or value.startswith("${"):  # `${oc.env:TOKEN}` names a secret and is none.
        return match[0]
    quote = value[-1] if value[-1] in "'\"" and value[-1] in value[:-1][:2] else ""
    return f"{match['start']}{quote}{MASK}{quote}"


def _mask_line(match: re.Match[str]) -> str:
    masked = _mask_value(match)
    # Bare stars would be no YAML.
    return masked.replace(MASK, f"'{MASK}'") if masked != match[0] and ":" in match["start"] else masked


def _mask_inside(word: str) -> str:
    word = mask_text(word)
    if "{" not in word:
        return word
    inside = re.compile(r"(?<![\w.\-])(?P<start>(?P<key>[\w.\-]{1,100})[\"']?[ \t]*:[ \t]*)(?P<value>[^\s,{}\[\]]+)")
    return inside.sub(_mask_value, word)


def _mask_file_diff(part: str) -> str:
    name = re.search(r"(?m)^\+\+\+ (?:b/)?(.+?)\t?$", part)
    is_program = name is not None and PurePosixPath(name[1].strip('"')).suffix.lower() in _PROGRAMS
    return _QUOTED.sub(_mask_value, _mask_marked(part)) if is_program else mask_settings(part)
