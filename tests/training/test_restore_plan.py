"""The restore table for every way in which two sets of names can fit, and the way out that its error names."""

from __future__ import annotations

import pytest

from slimexp.errors import UserError
from slimexp.training.name_map import NameRule
from slimexp.training.restore_plan import Rules, is_training_state, make_plan
from slimexp.training.restore_report import check_plan, describe_plan, plan_rows

MODEL = {
    "net/conv1/weights": (3, 3, 3, 4),
    "net/conv1/BatchNorm/moving_mean": (4,),
    "net/conv10/weights": (3, 3, 4, 4),
    "net/logits/weights": (4, 20),
    "net/logits/biases": (20,),
    "net/aux/weights": (4, 20),
}
BODY = list(MODEL)[:3]
HEADS = ("net/logits", "net/aux")
CHECKPOINT = {
    **{name: (*shape[:-1], 1001) if name.startswith(HEADS) else shape for name, shape in MODEL.items()},
    "net/conv1/weights/Momentum": (3, 3, 3, 4),
    "global_step": (),
}


def planned(checkpoint=CHECKPOINT, heads=HEADS, **rules):
    rules = Rules(**rules)
    plan = make_plan(MODEL, checkpoint, rules, heads=heads, network="my_net")
    check_plan(plan, rules, origin="x.ckpt", heads=heads, network="my_net")
    return plan


def names(plan, status):
    return [row.variable or row.source for row in plan.of(status)]


def test_heads_are_left_out_and_training_state_is_not_asked_for():
    plan = planned(exclude=["heads"])
    assert names(plan, "restored") == BODY
    assert names(plan, "excluded") == list(MODEL)[3:]
    assert names(plan, "training state") == ["global_step", "net/conv1/weights/Momentum"]
    assert names(plan, "unused") == []
    assert plan.match_rate == 1
    assert plan.sources == {name: name for name in BODY}


def test_what_to_exclude_is_said_to_the_letter():
    with pytest.raises(UserError, match=r"does not fit my_net, 3 of 6 variables \(50 %\) match") as e:
        planned()
    assert "3 have another shape:\n  net/logits/weights: [4, 20] here, [4, 1001] there" in str(e.value)
    assert "add restore.exclude=[net/logits,net/aux] (or restore.exclude=heads)." in str(e.value)
    planned(exclude=["net/logits", "net/aux"])


def test_a_forgotten_auxiliary_head_is_added_to_what_was_excluded():
    with pytest.raises(UserError, match=r"add restore\.exclude=\[net/logits,net/aux\] \(or restore\.exclude=heads\)"):
        planned(exclude=["net/logits"])


def test_layers_that_are_no_heads_are_named_so_that_no_other_goes_with_them():
    checkpoint = {**CHECKPOINT, "net/conv1/weights": (5, 5, 3, 4)}
    with pytest.raises(UserError, match=r"restore\.exclude=\[heads,net/conv1/\]\.") as e:
        planned(checkpoint, exclude=["heads"])
    assert "follows model.image_size" in str(e.value)
    assert names(planned(checkpoint, exclude=["heads", "net/conv1/"]), "restored") == ["net/conv10/weights"]


def test_ignore_missing_is_for_what_is_missing_only():
    checkpoint = {name: shape for name, shape in CHECKPOINT.items() if "moving_mean" not in name}
    with pytest.raises(
        UserError,
        match=r"(?s)1 is not in the checkpoint:\n  net/conv1/BatchNorm/moving_mean\n.*exclude=\[heads,net/conv1/\], or "
        r"restore\.ignore_missing=true for what is missing\.",
    ):
        planned(checkpoint, exclude=["heads"])
    plan = planned(checkpoint, exclude=["heads"], ignore_missing=True)
    assert names(plan, "missing in the checkpoint") == ["net/conv1/BatchNorm/moving_mean"]
    with pytest.raises(UserError, match="3 have another shape"):
        planned(checkpoint, ignore_missing=True)


@pytest.mark.parametrize("ignore_missing", [False, True])
def test_a_checkpoint_of_another_network_stops_whatever_is_ignored(ignore_missing):
    with pytest.raises(UserError, match=r"none of the 6 variables of my_net is in the checkpoint \(0 %\)") as e:
        planned({"other/a": (1,), "other/b": (2,)}, ignore_missing=ignore_missing)
    assert "The model has   net/conv1/weights, net/conv1/BatchNorm/moving_mean, net/conv10/weights, ..." in str(e.value)
    assert "The checkpoint  other/a, other/b\nIt is the checkpoint of another network" in str(e.value)
    with pytest.raises(UserError, match="The checkpoint  nothing"):
        planned({}, ignore_missing=ignore_missing)


def test_a_prefix_change_that_would_match_is_suggested_and_works():
    checkpoint = {name.replace("net/", "old/model/"): shape for name, shape in MODEL.items()}
    with pytest.raises(UserError, match=r"6 of 6 would match with\n  'restore\.name_map=\[\{pattern: \"\^net/\", rep"):
        planned(checkpoint)
    plan = planned(checkpoint, name_map=[NameRule("^net/", "old/model/")])
    assert plan.match_rate == 1
    assert plan.sources["net/conv1/weights"] == "old/model/conv1/weights"


def test_include_and_exclude_together():
    plan = planned(include=["net/conv"], exclude=["net/conv10"])
    assert names(plan, "restored") == BODY[:2]
    with pytest.raises(UserError, match=r"of the 6 variables of my_net none is left to restore"):
        planned(include=["net/conv1"], exclude=["net"])
    with pytest.raises(UserError, match=r"restore\.include=\[net/covn1\]: .*\n  net/covn1: the nearest are net/conv1"):
        planned(include=["net/covn1"])


def test_the_table_in_words_and_as_rows():
    plan = planned({**CHECKPOINT, "net/extra/weights": (2, 2)}, exclude=["heads"])
    text = describe_plan(plan)
    assert text.startswith("3 of 3 variables restored (100 %)\n  restored                      3            256 values")
    assert "  excluded                      3            180 values  net/logits, net/aux" in text
    assert "  unused                        1              4 values  net/extra" in text
    assert "    excluded                  net/logits/biases" in text
    assert plan_rows(plan)[3] == {
        "variable": "net/logits/weights",
        "status": "excluded",
        "in_checkpoint": "net/logits/weights",
        "shape": "[4, 20]",
        "shape_in_checkpoint": "[4, 1001]",
    }
    assert plan_rows(plan)[-1]["variable"] is None


def test_a_large_table_is_shortened():
    model = {f"net/conv{n}/weights": (1,) for n in range(40)}
    plan = make_plan(model, model, Rules())
    assert len(describe_plan(plan).splitlines()) == 2
    plan = make_plan(model, {name: (1,) if n > 18 else (2,) for n, name in enumerate(model)}, Rules())
    with pytest.raises(UserError, match=r"\.\.\. and 14 more, see restore\.csv\n"):
        check_plan(plan, Rules(), origin="x")


def test_slots_lie_below_their_variables():
    there = {"a/weights": 0, "a/weights/Adam": 0, "a/BatchNorm/beta": 0, "beta1_power": 0, "global_step": 0}
    assert [name for name in there if is_training_state(name, there)] == [
        "a/weights/Adam",
        "beta1_power",
        "global_step",
    ]
