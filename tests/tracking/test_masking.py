from __future__ import annotations

import time

import pytest

from slimexp.tracking.masking import is_secret_key, mask_command, mask_diff, mask_settings, mask_text


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
        ("sk-proj-" + "x" * 30, "***"),
        ("mssql+pyodbc:///?odbc_connect=PWD%3Dabc", "mssql+pyodbc:///?odbc_connect=***"),
        ("-----BEGIN RSA PRIVATE KEY-----\nabc\n-----END RSA", "-----BEGIN RSA PRIVATE KEY----- *** -----END RSA"),
    ],
    ids=["override", "environment", "no secrets", "known", "known key", "query", "key block"],
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
