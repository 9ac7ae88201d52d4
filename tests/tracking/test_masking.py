from __future__ import annotations

import shlex
import time

import pytest

from slimexp.tracking.masking import (
    is_secret_key,
    mask_command,
    mask_diff,
    mask_override,
    mask_settings,
    mask_text,
    mask_tree,
)


@pytest.mark.parametrize(
    ("key", "secret"),
    [
        ("tracking.password", True),
        ("aws.secret_access_key", True),
        ("dbPassword", True),
        ("api-token", True),
        ("credentials", True),
        ("model.num_tokens", False),
        ("tokenizer", False),
        ("key", False),
        ("secret.threads", False),  # The last part names the value.
        ("pipeline.threads", False),
    ],
)
def test_is_secret_key(key: str, secret: bool) -> None:
    assert is_secret_key(key) is secret


@pytest.mark.parametrize(
    ("text", "masked"),
    [
        ("postgresql://me:pa@ss@db:5432/x", "postgresql://me:***@db:5432/x"),
        ("failed: http://u:p@h/a and http://v:q@i", "failed: http://u:***@h/a and http://v:***@i"),
        ("https://ghp_abc@github.com/a/b", "https://***@github.com/a/b"),
        ("ssh://git@github.com/a/b", "ssh://git@github.com/a/b"),
        ("http://h/?access_token=abc&x=1", "http://h/?access_token=***&x=1"),
        ("http://127.0.0.1:5000", "http://127.0.0.1:5000"),
        ("sqlite:////home/a@b/mlflow.db", "sqlite:////home/a@b/mlflow.db"),
        ("redis://:pw@host", "redis://:***@host"),
        ("http://me:pa/ss@h", "http://me:***@h"),
        ('url="http://me:sl/ash@pw@h/x"', 'url="http://me:***@h/x"'),
        ("http://u:p@h/a,http://v:q/r@i", "http://u:***@h/a,http://v:***@i"),
        ("http://h:5000/a@b and http://u:1234@h", "http://h:5000/a@b and http://u:***@h"),
    ],
)
def test_mask_text(text: str, masked: str) -> None:
    assert mask_text(text) == masked


def test_long_lines_take_no_time() -> None:
    began = time.perf_counter()
    for text in ("a" * 200_000, "http://" * 30_000, "?" + "token" * 40_000, "a:" * 100_000):
        mask_text(text)
    assert time.perf_counter() - began < 2


def test_mask_command_quotes_and_masks() -> None:
    words = ["python", "-m", "slimexp", "tracking.uri=http://a:b@c", "+x.token=t=u", "dataset.root=my photos"]
    assert (
        mask_command(words) == "python -m slimexp 'tracking.uri=http://a:***@c' '+x.token=***' 'dataset.root=my photos'"
    )


@pytest.mark.parametrize(
    ("text", "masked"),
    [
        ("tracking.tags.api_token=abc: bad", "tracking.tags.api_token=*** bad"),
        ("DB_PASSWORD='a b' X=1", "DB_PASSWORD='***' X=1"),
        ("num_tokens=5 tokenizer=x token=null", "num_tokens=5 tokenizer=x token=null"),
        ("got ghp_" + "a1" * 20 + " and AKIAABCDEFGHIJKLMNOP", "got *** and ***"),
        ("ValueError: x.token=abc at password=a=b==", "ValueError: x.token=*** at password=***"),
        ("sk-proj-" + "x" * 30, "***"),
        ("mssql+pyodbc:///?odbc_connect=PWD%3Dabc", "mssql+pyodbc:///?odbc_connect=***"),
        ("-----BEGIN RSA PRIVATE KEY-----\nabc\n-----END RSA", "-----BEGIN RSA PRIVATE KEY----- *** -----END RSA"),
    ],
    ids=["override", "environment", "no secrets", "behind another key", "known", "known key", "query", "key block"],
)
def test_what_tells_itself_as_a_secret(text: str, masked: str) -> None:
    assert mask_text(text) == masked
    assert mask_text(masked) == masked


def test_settings_are_masked_and_stay_yaml() -> None:
    text = (
        "uri: http://u:p@h/x\ntags:\n  api_token: abc def\n  tokens: 3\n  password: null\n  secret: ${oc.env:X}\n"
        "- +x.token=abc\n- 'tracking.uri=http://a:b@c'\n"
    )
    masked = mask_settings(text)
    assert masked == (
        "uri: http://u:***@h/x\ntags:\n  api_token: '***'\n  tokens: 3\n  password: null\n  secret: ${oc.env:X}\n"
        "- +x.token=***\n- 'tracking.uri=http://a:***@c'\n"
    )
    assert mask_settings(masked) == masked


def test_a_command_with_options_and_dictionaries() -> None:
    words = ["slimexp", "--api-token", "abc", "+x={token: abc, n: 1}", "HF_TOKEN=x", "-m", "--token=9"]
    assert mask_command(words) == ("slimexp --api-token '***' '+x={token: ***, n: 1}' 'HF_TOKEN=***' -m '--token=***'")


def test_a_diff_of_a_program_and_of_settings() -> None:
    diff = (
        "diff --git a/x.py b/x.py\n--- a/x.py\n+++ b/x.py\n@@ -1 +1 @@\n+token = next(tokens)\n"
        '+password = "hunter2"\n+call(api_key=\'abc\', n=3)\n+os.environ["API_TOKEN"] = "zz"\n'
        "diff --git a/.env b/.env\n--- a/.env\n+++ b/.env\n@@\n+API_TOKEN=abc\n+export DB_PASSWORD=x y\n+MAX=3\n"
    )
    masked = mask_diff(diff)
    assert "+token = next(tokens)\n" in masked
    assert not [word for word in ("hunter2", "'abc'", "zz", "=abc", "x y") if word in masked]
    assert masked.endswith("+API_TOKEN=***\n+export DB_PASSWORD=***\n+MAX=3\n")
    began = time.monotonic()
    mask_diff("+" + "a = 'b', " * 100_000)
    mask_settings("x" * 1_000_000 + "=" + "y" * 1_000_000)
    mask_settings("x." * 500_000 + "y=" * 300_000 + "'" * 1000 + "{[" * 1000)
    assert time.monotonic() - began < 5


@pytest.mark.parametrize(
    ("word", "masked"),
    [
        ("+x={password: 'a b', token: 'c', ok: fine}", "+x={password: '***', token: '***', ok: fine}"),
        ('+x={password: "a, b", ok: 1}', '+x={password: "***", ok: 1}'),
        ("+x={token:[a,b], ok: 1}", "+x={token:***, ok: 1}"),
        ("+x={token:{a: [b, c]},ok: 1}", "+x={token:***,ok: 1}"),
        ("+x={ok: 1, password: a b\\, c}", "+x={ok: 1, password: ***}"),
        ("+x=[{password: a}, {n: 1}]", "+x=[{password: ***}, {n: 1}]"),
        ("+x={password: 'it\\'s', ok: 1}", "+x={password: '***', ok: 1}"),
        ("+x={password: 'never closed, ok: 1}", "+x={password: '***'"),
        ("+x={password: [never closed, ok: 1", "+x={password: ***"),
        ("+x={password: '', token: null, n: 1}", "+x={password: '', token: null, n: 1}"),
        ("+x={token: ${oc.env:A}, secret: ${oc.env:A,b}}", "+x={token: ${oc.env:A}, secret: ***}"),
        ("+tags.api_token=abc1,abc2", "+tags.api_token=***"),
        ("error at token: expected a name", "error at token: expected a name"),
    ],
)
def test_dictionaries_and_lists_in_an_override(word: str, masked: str) -> None:
    assert mask_override(word) == masked
    assert mask_override(masked) == masked


def test_a_shell_quoted_dictionary_in_a_message() -> None:
    """The command of a run as another program shows it."""
    shown = shlex.quote("+x={password: 'hunter2a hunter2b', ok: fine}")
    assert "hunter2" not in mask_text(shown)
    assert "ok: fine" in mask_text(shown)


def test_quotes_within_quotes_and_values_of_several_lines() -> None:
    text = (
        "- '+x={password: ''hunter2a hunter2b'', token: [tokaa, tokbb], ok: fine}'\n"
        "token:\n- tokcc\n- tokdd\nother:\n- kept\n"
        "password: hunter2a\n  hunter2b\nsecret: |\n  sesame\n\n  open\nlast: 1\nsecrets:\n  threads: 4\n"
        "api_token: {a: hunter2}\npasswd: hunter2=\npwd: a hunter2=b\nnote: token=hunter2\n"
    )
    masked = mask_settings(text)
    assert not [word for word in ("hunter2", "tokaa", "tokbb", "tokcc", "tokdd", "sesame", "open") if word in masked]
    for kept in ("ok: fine", "other:\n- kept\n", "last: 1\n", "secrets:\n  threads: 4\n"):
        assert kept in masked
    assert mask_settings(masked) == masked


def test_a_diff_of_lists_and_annotations() -> None:
    diff = (
        "diff --git a/x.py b/x.py\n+++ b/x.py\n@@ -1 +1 @@\n+token: str = 'tokaa'\n+secrets = ['tokbb', 'tokcc']\n"
        "+token = parts[0]\n+run('x.token=tokhh', \"api_token: tokii\")\n"
        "diff --git a/c.yaml b/c.yaml\n+++ b/c.yaml\n@@ -1 +1 @@\n+token: [tokdd, tokee]\n"
        " secret:\n+- tokff\n-- tokgg\n+last: 1\n"
    )
    masked = mask_diff(diff)
    assert "tok" not in masked.replace("token", "")
    assert "+token = parts[0]\n" in masked
    assert masked.endswith("+last: 1\n")
    assert masked.count("\n") == diff.count("\n")


def test_a_tree_is_masked_by_its_keys_and_words() -> None:
    tree = {
        "tags": {"password": "a b", "token": ["c"], "n": 3, "secret": "${oc.env:X}", "apikey": None},
        "overrides": ["+x={token: abc}", "+y.token=d e", "seed=1"],
        "uri": "http://u:p/q@h",
    }
    assert mask_tree(tree) == {
        "tags": {"password": "***", "token": "***", "n": 3, "secret": "${oc.env:X}", "apikey": None},
        "overrides": ["+x={token: ***}", "+y.token=***", "seed=1"],
        "uri": "http://u:***@h",
    }


def test_long_lines_with_many_secrets_take_no_time() -> None:
    began = time.perf_counter()
    for text in ("token=[", "token: 'a, ", "{token: a b, ", "password=a;", "http://a:b/", "token:\n- a\n"):
        mask_settings(text * 20_000)
        mask_text(text * 20_000)
    assert time.perf_counter() - began < 5
