"""Scopes are prefixes; one that matches nothing is named, with the nearest."""

from __future__ import annotations

import pytest

from slimexp.errors import UserError
from slimexp.training.scopes import in_scopes, nearest_scopes, resolve_scopes

NAMES = [f"vgg_16/{layer}/{leaf}" for layer in ("conv1/conv1_1", "fc6", "fc7", "fc8") for leaf in ("weights", "biases")]
HEADS = ("vgg_16/fc8", "vgg_16/aux")


def resolved(*asked: str, heads: tuple[str, ...] = HEADS) -> tuple[str, ...]:
    return resolve_scopes("restore.exclude", asked, NAMES, heads=heads, network="vgg_16")


def test_a_scope_is_a_plain_prefix():
    assert in_scopes("vgg_16/fc8/weights", ["vgg_16/fc8"])
    assert in_scopes("vgg_16/fc8/weights", ["vgg_16/fc"])
    assert not in_scopes("vgg_16/fc8/weights", ["fc8"])
    assert not in_scopes("vgg_16/fc8/weights", [])


def test_heads_stand_for_those_that_are_there():
    assert resolved("heads", "vgg_16/fc7", "vgg_16/fc8") == ("vgg_16/fc8", "vgg_16/fc7")


def test_every_scope_that_matches_nothing_is_named_with_the_nearest():
    with pytest.raises(
        UserError, match=r"(?s)exclude=\[vgg_16/fc8,fc7,vgg16/conv1\]: no variable of vgg_16 begins"
    ) as e:
        resolved("vgg_16/fc8", "fc7", "vgg16/conv1")
    assert "fc7: the nearest are vgg_16/fc7" in str(e.value)
    assert "vgg16/conv1: the nearest are vgg_16/conv1, " in str(e.value)
    assert "vgg_16/fc8:" not in str(e.value)


def test_heads_that_are_not_declared_or_not_there_are_an_error():
    with pytest.raises(UserError, match=r"restore\.exclude=heads: vgg_16 does not say which scopes its heads have"):
        resolved("heads", heads=())
    with pytest.raises(UserError, match=r"heads: vgg_16 declares net/logits, but no variable is there"):
        resolved("heads", heads=("net/logits",))


def test_nearest_scopes_are_scopes_or_names():
    assert nearest_scopes("InceptionV3/fc8", NAMES)[0] == "vgg_16/fc8"
    assert nearest_scopes("vgg_16/fc8/weight", NAMES)[0] == "vgg_16/fc8/weights"
    assert nearest_scopes("x", []) == []
