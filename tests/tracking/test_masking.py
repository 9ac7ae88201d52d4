from __future__ import annotations

import time

import pytest

from slimexp.tracking.masking import is_secret_key, mask_command, mask_text


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
