from __future__ import annotations

import enum

import pytest

from slimexp.tracking.params import MAX_KEY_LENGTH, MAX_PARAM_LENGTH, flatten, legal_key, shorten


class Colour(enum.Enum):
    RED = "red"


def test_flatten_reads_like_overrides() -> None:
    config = {
        "pipeline": {"threads": 8, "queues": {"read": {"capacity": 640}}, "shuffle": True},
        "restore": {"checkpoint": None, "exclude": ["a/Logits", "b"], "name_map": [{"pattern": "x", "replace": "y"}]},
        "rate": 0.01,
        "colour": Colour.RED,
        "empty": {},
        "none": [],
    }
    assert flatten(config) == {
        "pipeline.threads": "8",
        "pipeline.queues.read.capacity": "640",
        "pipeline.shuffle": "true",
        "restore.checkpoint": "null",
        "restore.exclude": "[a/Logits, b]",
        "restore.name_map": '[{"pattern": "x", "replace": "y"}]',
        "rate": "0.01",
        "colour": "red",
        "empty": "{}",
        "none": "[]",
    }


def test_flatten_masks_secrets() -> None:
    config = {"a": {"password": "x", "token": None}, "uri": "http://u:p@h", "users": [{"secret": "s", "name": "n"}]}
    assert flatten(config) == {
        "a.password": "***",
        "a.token": "null",
        "uri": "http://u:***@h",
        "users": '[{"secret": "***", "name": "n"}]',
    }


def test_flatten_keeps_keys_apart_that_become_equal() -> None:
    assert flatten({"a@b": 1, "a=b": 2, "a_b": 3}) == {"a_b": "1", "a_b_2": "2", "a_b_3": "3"}


def test_flatten_shortens_visibly() -> None:
    value = flatten({"labels": "x" * 7000})["labels"]
    assert len(value) == MAX_PARAM_LENGTH
    assert value.endswith(" ... (7000 characters)")


def test_shorten_leaves_what_fits() -> None:
    assert shorten("12345", 5) == "12345"


@pytest.mark.parametrize(
    ("key", "legal"),
    [
        ("train/loss", "train/loss"),
        ("a[0]", "a_0_"),
        ("//a//b/", "a/b"),
        ("../a/./b", "__/a/_/b"),
        ("", "_"),
        ("étiquette 中", "étiquette 中"),
        ("a\nb", "a_b"),
    ],
)
def test_legal_key(key: str, legal: str) -> None:
    assert legal_key(key) == legal
    from mlflow.utils.validation import _validate_metric_name

    _validate_metric_name(legal)


def test_legal_key_keeps_long_keys_apart() -> None:
    first, second = legal_key("k" * 300 + "1"), legal_key("k" * 300 + "2")
    assert len(first) == len(second) == MAX_KEY_LENGTH
    assert first != second
