"""Keeps passwords out of what is shown, stored and sent.

Three rules: the value of a key that is named like a secret becomes `***`, and so does the password in an address
(`postgresql://user:***@host/db`), and so do the tokens that well-known services make, which tell themselves by their
first letters. All work on text alone, so they also fit messages of other libraries. Where a text leaves it open how far
a value goes, too much of it is masked rather than too little.
"""

from __future__ import annotations

import enum
import re
import shlex
from collections.abc import Mapping, Sequence
from pathlib import PurePosixPath
from typing import Any

__all__ = [
    "MASK",
    "is_secret_key",
    "mask_command",
    "mask_diff",
    "mask_override",
    "mask_settings",
    "mask_text",
    "mask_tree",
]

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
# The password may hold an `@` and a `/` of its own, so the last `@` of the word ends it; `:5000/` is a port.
_USER_AND_PASSWORD = re.compile(
    r"(\b[A-Za-z][A-Za-z0-9+.\-]{0,30}://[^\s/:@?#]*):(?:(?!\d{1,5}[/?#])(?:(?!://)\S)+|[^\s/]+)@"
)
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
# What stands before a value: `API_TOKEN=`, `password = `, `"token": `, `environ["TOKEN"] = `; `token: str = `.
_NAME = r"(?<![\w.\-])(?P<key>[\w.\-]{1,100})[\"'\\]{0,8}\]?"
_SIGN = r"(?P<sign>[ \t]{0,20}[:=]{1,2}[ \t]{0,20})"
_KEY = re.compile(_NAME + _SIGN)
_PROGRAM_KEY = re.compile(_NAME + r"(?:[ \t]{0,20}:[ \t]{0,20}[\w.\[\]| ]{1,60}?(?==))?" + _SIGN)
_QUOTES = re.compile(r"[rbfu]{0,2}(?P<quotes>[\"'\\]*[\"'])", re.I)
_IN_SINGLE = re.compile(r"'(?:[^'\\\n]|\\.|'')*'")
_IN_DOUBLE = re.compile(r'"(?:[^"\\\n]|\\.)*"')
_REFERENCE = re.compile(r"\$\{[^\n{}]*\}")
# In a message a word, and what commas without a blank join to it; between braces all up to the next comma.
_WORD = re.compile(r"(?:[^\s,;&'\"})\]]|,(?=[^\s,]))+")
_ITEM = re.compile(r"(?:\\.|[^,}\]\n\\])+")
# How far back, and how far on over lines, a value's surroundings are looked at: a line may be a megabyte.
_LOOK_BACK, _LOOK_ON = 2000, 5000
# `key: rest` of YAML, and whether a line below it is a key of its own.
_YAML_KEY = re.compile(r"(?P<indent>[ \t]*)(?:- +)*[\"']?(?P<key>[\w.\-]{1,100})[\"']?[ \t]*:(?P<rest>|[ \t].*)")
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


class _Kind(enum.Enum):
    """What a text is: in each, a value ends elsewhere."""

    MESSAGE = enum.auto()
    SETTINGS = enum.auto()
    PROGRAM = enum.auto()


def mask_text(text: str) -> str:
    """Replaces what is secret in a message, a value or an override by `***`.

    That is the passwords and tokens of addresses, known kinds of tokens, and the value in `KEY=VALUE`, or within braces
    in `KEY: VALUE`, where the key is named like a secret.
    """
    return _mask_values(_mask_marked(text), _Kind.MESSAGE)


def mask_settings(text: str) -> str:
    """Replaces what is secret in a configuration file: what `mask_text` does, and the values in `KEY: VALUE`."""
    return _mask_values(_mask_blocks(_mask_marked(text), 0), _Kind.SETTINGS)


def mask_tree(value: Any) -> Any:
    """Returns nested mappings and lists, e.g. of a YAML file, with what is secret in them replaced."""
    if isinstance(value, Mapping):
        return {
            key: MASK if is_secret_key(str(key)) and not _is_no_secret(item) else mask_tree(item)
            for key, item in value.items()
        }
    if isinstance(value, (list, tuple)):
        return [mask_tree(item) for item in value]
    return mask_override(value) if isinstance(value, str) else value


def mask_override(word: str) -> str:
    """Replaces what is secret in one override, `+tracking.tags={token: abc}`, or any other word of a command."""
    match = _ASSIGNMENT.fullmatch(word)
    if match and is_secret_key(match["key"]) and not _is_no_secret(match["value"]):
        return f"{match['sigil']}{match['key']}={MASK}"
    return mask_text(word)


def mask_diff(diff: str) -> str:
    """Replaces what is secret in the output of `git diff`.

    In the source of a program only what is quoted counts, as `token = next(tokens)` is none; in every other file all.
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
        masked = MASK if secret_follows and not word.startswith("-") else mask_override(word)
        secret_follows = word.startswith("--") and "=" not in word and is_secret_key(word)
        words.append(shlex.quote(masked))
    return " ".join(words)


def _mask_marked(text: str) -> str:
    """Masks what tells itself as a secret, whatever it stands in."""
    text = _USER_AND_PASSWORD.sub(rf"\1:{MASK}@", text)
    text = _HTTP_TOKEN.sub(rf"\1{MASK}@", text)
    text = _QUERY_SECRET.sub(rf"\1{MASK}", text)
    text = _PRIVATE_KEY.sub(rf"\1 {MASK} \2", text)
    return _KNOWN_TOKEN.sub(MASK, text)


def _is_no_secret(value: Any) -> bool:
    """Tells whether a value under a secret's name gives nothing away: nothing, the mask, `${oc.env:TOKEN}`."""
    text = "" if value is None else str(value).strip().strip("\"'\\").strip()
    if _REFERENCE.fullmatch(text):
        return "," not in text  # Behind a comma stands the value for when there is none.
    return text == MASK or text.lower() in _NO_SECRETS


def _mask_values(text: str, kind: _Kind) -> str:
    parts, done, position, line_end = [], 0, 0, -1
    pattern = _PROGRAM_KEY if kind is _Kind.PROGRAM else _KEY
    while match := pattern.search(text, position):
        position = match.end("key")
        if not is_secret_key(match["key"]):
            continue
        before = text[max(0, match.start() - _LOOK_BACK) : match.start()]
        in_braces = "{" in before and before.rstrip(" \t\n\"'\\+")[-1:] in ("{", ",") and ":" in match["sign"]
        if kind is _Kind.MESSAGE and match["sign"] != "=" and not in_braces:
            continue
        start = match.end()
        if line_end < start:
            line_end = text.find("\n", start)
            line_end = len(text) if line_end < 0 else line_end
        outer = _open_quote(before.rpartition("\n")[2])
        end, quotes = _value_end(text, start, line_end, kind, outer, in_braces)
        if end <= start or _is_no_secret(text[start:end].rstrip(",")):
            continue
        if not quotes and kind is _Kind.SETTINGS and ":" in match["sign"] and not outer:
            quotes = "'"  # Bare stars would be no YAML.
        parts += [text[done:start], quotes, MASK, quotes]
        done = position = end
    return "".join([*parts, text[done:]])


def _open_quote(line: str) -> str:
    """Returns the quote that is open at the end of the beginning of a line."""
    return next((quote for quote in "'\"" if line.count(quote) % 2), "")


def _value_end(text: str, start: int, line_end: int, kind: _Kind, outer: str, in_braces: bool) -> tuple[int, str]:
    """Returns where a value ends, `start` if there is none, and the quotes around it."""
    reference = _REFERENCE.match(text, start)
    if reference:
        return reference.end(), ""
    quoted = _QUOTES.match(text, start)
    if quoted:
        return _quoted_end(text, quoted, line_end, outer)
    if text[start : start + 1] in tuple("[{("):
        end = _bracket_end(text, start, line_end)
        is_data = kind is not _Kind.PROGRAM or outer != "" or any(quote in text[start:end] for quote in "'\"")
        return (end if is_data else start), ""
    if kind is _Kind.PROGRAM and not outer:
        return start, ""
    if in_braces or kind is not _Kind.SETTINGS:
        bare = (_ITEM if in_braces else _WORD).match(text, start)
        if not bare:
            return start, ""
        return start + len(bare[0].rstrip()), ""
    value = text[start:line_end].rstrip()
    # The head of a block, a comment, an alias: the value is elsewhere.
    if re.match(r"[|>][+\-\d]{0,2}$|#|\*(?!\*)", value):
        return start, ""
    return start + len(value) - bool(outer and value.endswith(outer)), ""


def _quoted_end(text: str, quoted: re.Match[str], line_end: int, outer: str) -> tuple[int, str]:
    quotes = quoted["quotes"]
    begin = quoted.start("quotes")
    if len(quotes) == 1 and quotes != outer:
        whole = (_IN_SINGLE if quotes == "'" else _IN_DOUBLE).match(text, begin)
        return (whole.end() if whole else line_end), quotes
    if quotes in ("''", '""', '\\"\\"') and outer != quotes[-1]:
        return quoted.end(), ""  # Nothing, in quotes.
    # Doubled within a quoted text, escaped, three of them, or what a shell makes of one: `'"'"'`.
    for closing in dict.fromkeys((quotes, quotes[::-1])):
        end = text.find(closing, quoted.end(), line_end if len(quotes) != 3 else quoted.end() + _LOOK_ON)
        if end >= 0:
            return end + len(closing), quotes
    return line_end, quotes


def _bracket_end(text: str, start: int, line_end: int) -> int:
    depth = 0
    for match in re.compile(r"[\[{(]|[\]})]").finditer(text, start, start + _LOOK_ON):
        depth += 1 if match[0] in "[{(" else -1
        if depth == 0:
            return match.end()
    return line_end


def _mask_blocks(text: str, margin: int) -> str:
    """Masks the lines below a secret's key in YAML: the items of a list, a block of text, a value's further lines.

    Args:
        text: The lines.
        margin: How many characters stand before each line, as in a diff.
    """
    lines = text.split("\n")
    inside: int | None = None  # The indent of the key that the line is below.
    has_value = False
    for number, line in enumerate(lines):
        body = line[margin:]
        indent = len(body) - len(body.lstrip())
        key = _YAML_KEY.fullmatch(body) if ":" in body else None
        if inside is not None and body.strip():
            is_item = body.lstrip().startswith("- ")
            if (indent > inside and (has_value or is_item or not key)) or (is_item and indent == inside):
                mark = "" if has_value else "'"
                lines[number] = f"{line[:margin]}{body[:indent]}{'- ' * is_item}{mark}{MASK}{mark}"
                continue
            inside = None
        if key and is_secret_key(key["key"]):
            rest = key["rest"].partition(" #")[0].strip()
            if rest[:1] not in ("{", "["):
                inside, has_value = len(key["indent"]), rest != ""
    return "\n".join(lines)


def _mask_file_diff(part: str) -> str:
    name = re.search(r"(?m)^\+\+\+ (?:b/)?(.+?)\t?$", part)
    is_program = name is not None and PurePosixPath(name[1].strip('"')).suffix.lower() in _PROGRAMS
    part = _mask_marked(part)
    return _mask_values(part, _Kind.PROGRAM) if is_program else _mask_values(_mask_blocks(part, 1), _Kind.SETTINGS)
