"""Names in the model become names in the checkpoint; a map that would make them match is found."""

from __future__ import annotations

import pytest

from slimexp.errors import UserError
from slimexp.training.name_map import NameRule, map_names, show_rules, suggest_rules


def test_the_first_example_of_the_seed():
    """`name_in_checkpoint` returns 'vgg16/' + var.op.name."""
    assert map_names(["conv1/weights", "conv1/bias"], [NameRule("^", "vgg16/")]) == {
        "conv1/weights": "vgg16/conv1/weights",
        "conv1/bias": "vgg16/conv1/bias",
    }


def test_the_second_example_of_the_seed():
    """`name_in_checkpoint` replaces 'weights' by 'params1' and 'bias' by 'params2'."""
    rules = [NameRule("weights", "params1"), NameRule("bias", "params2")]
    assert map_names(["conv1/weights", "conv1/bias"], rules) == {
        "conv1/weights": "conv1/params1",
        "conv1/bias": "conv1/params2",
    }


def test_rules_act_one_after_the_other_and_know_groups():
    rules = [NameRule(r"^net/", ""), NameRule(r"conv(\d)_(\d)", r"block\1/conv\2")]
    assert map_names(["net/conv1_2/weights"], rules) == {"net/conv1_2/weights": "block1/conv2/weights"}


def test_a_rule_that_matches_nothing_and_one_that_merges_are_errors():
    with pytest.raises(UserError, match=r"the pattern '\^vgg/' is in no variable's name .* nearest are vgg_16, "):
        map_names(["vgg_16/fc8/weights"], [NameRule("^vgg/", "")])
    with pytest.raises(UserError, match=r"makes 'a/x' of both 'a/weights' and 'a/biases'"):
        map_names(["a/weights", "a/biases"], [NameRule("weights|biases", "x")])


SHAPES = {
    "vgg_16/conv1/conv1_1/weights": (3, 3, 3, 8),
    "vgg_16/conv1/conv1_1/biases": (8,),
    "vgg_16/conv2/conv2_1/weights": (3, 3, 8, 8),
    "vgg_16/conv2/conv2_1/biases": (8,),
    "vgg_16/fc8/weights": (1, 1, 8, 5),
    "vgg_16/fc8/biases": (5,),
}


@pytest.mark.parametrize(
    ("there", "rules"),
    [
        (lambda name: name.replace("vgg_16", "old/net"), [NameRule("^vgg_16/", "old/net/")]),
        (lambda name: name.removeprefix("vgg_16/"), [NameRule("^vgg_16/", "")]),
        (lambda name: f"model.a/{name}", [NameRule("^", "model.a/")]),
        (
            lambda name: name.replace("vgg_16", "v").replace("weights", "kernel").replace("biases", "bias"),
            [NameRule("^vgg_16/", "v/"), NameRule("/weights$", "/kernel"), NameRule("/biases$", "/bias")],
        ),
    ],
)
def test_a_map_that_would_match_is_found(there, rules):
    checkpoint = {there(name): shape for name, shape in SHAPES.items()}
    assert suggest_rules(SHAPES, checkpoint) == (rules, 6)
    assert all(checkpoint[now] == SHAPES[name] for name, now in map_names(SHAPES, rules).items())


def test_a_map_need_not_match_all_but_most():
    checkpoint = {f"x/{name}": shape for name, shape in SHAPES.items() if "fc8" not in name}
    assert suggest_rules(SHAPES, {**checkpoint, "x/vgg_16/fc8/weights": (1, 1, 8, 1000)}) == ([NameRule("^", "x/")], 4)
    few = dict(list(checkpoint.items())[:2])
    assert suggest_rules(SHAPES, few) == ([], 0)


def test_no_map_is_found_where_there_is_none():
    assert suggest_rules(SHAPES, {"other/a/b": (7, 7), "global_step": ()}) == ([], 0)
    assert suggest_rules(SHAPES, SHAPES) == ([], 0)
    assert suggest_rules(SHAPES, {}) == ([], 0)
    assert suggest_rules({}, SHAPES) == ([], 0)


def test_rules_are_shown_as_an_override():
    assert show_rules([NameRule("^a/", "b/")]) == """'restore.name_map=[{pattern: "^a/", replace: "b/"}]'"""
