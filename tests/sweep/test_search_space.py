"""Hydra's sweep grammar, read as spaces."""

from __future__ import annotations

import pytest
from hydra.core.override_parser.overrides_parser import OverridesParser

from slimexp.errors import UserError
from slimexp.sweep.search_space import Space, combinations, split


def parse(*overrides: str) -> tuple[list[str], list[Space]]:
    return split(OverridesParser.create().parse_overrides(list(overrides)))


def space(override: str) -> Space:
    fixed, spaces = parse(override)
    assert fixed == []
    return spaces[0]


@pytest.mark.parametrize(
    ("text", "low", "high", "step", "log", "integer"),
    [
        ("interval(0, 1)", 0.0, 1.0, None, False, False),
        ("tag(log, interval(1e-4, 1e-1))", 1e-4, 1e-1, None, True, False),
        ("int(interval(1, 8))", 1, 8, 1, False, True),
        ("range(8, 65, 8)", 8, 64, 8, False, True),
        ("range(10, 1, -2)", 2, 10, 2, False, True),
        ("tag(log, range(1, 101))", 1, 100, 1, True, True),
        ("range(0, 1, 0.25)", 0.0, 0.75, 0.25, False, False),
    ],
)
def test_numbers(text, low, high, step, log, integer):
    found = space(f"a.b={text}")
    assert (found.low, found.high, found.step, found.log, found.integer) == (low, high, step, log, integer)
    assert found.choices == ()
    assert found.name == "a.b"
    assert found.text == text
    distribution = found.distribution()
    assert (distribution.low, distribution.high, distribution.log) == (low, high, log)


@pytest.mark.parametrize("text", ["adam,momentum", "choice(adam, momentum)", "choice(adam, momentum, adam)"])
def test_choices(text):
    found = space(f"optimizer={text}")
    assert found.choices == ("adam", "momentum")
    assert found.distribution().choices == ("adam", "momentum")
    assert found.values() == ["adam", "momentum"]
    assert found.corners() == ["adam", "momentum"]


def test_what_is_not_a_space_is_kept_as_written_and_the_last_one_counts():
    fixed, spaces = parse("+x=1", "~y", "z='a b'", "optimizer=adam,sgd", "w=1,2", "optimizer=sgd", "+x=range(3)")
    assert fixed == ["~y", "z='a b'", "optimizer=sgd"]
    assert [(s.key, s.name) for s in spaces] == [("w", "w"), ("+x", "x")]


@pytest.mark.parametrize(
    ("text", "value", "shown"),
    [
        ("interval(0, 1)", 0.123456789, "0.1235"),
        ("interval(0, 1)", 1.0, "1.0"),
        ("interval(1000, 1001)", 1000.123456, "1000.1235"),
        ("interval(-5e-6, 1e-6)", -1.23456789e-6, "-1.2346e-06"),
        ("tag(log, interval(1e-4, 1e-1))", 0.00374540118, "0.0037454"),
        ("tag(log, interval(1e-4, 1e-1))", 1e-4, "0.0001"),
        ("tag(log, interval(1e-9, 1))", 2.34567891e-9, "2.3457e-09"),
        ("interval(0.33333333, 0.66666666)", 0.66666665, "0.66666666"),  # Rounding stays within.
        ("interval(0.33333333, 0.66666666)", 0.33333334, "0.33333333"),
        ("range(0, 1, 0.1)", 0.30000000000000004, "0.3"),
        ("int(interval(1, 8))", 8, "8"),
        ("tag(log, range(1, 101))", 100, "100"),
        ("choice(1, 2)", "1", "1"),
    ],
)
def test_values_are_short_and_within_the_space(text, value, shown):
    assert space(f"a={text}").value_text(value) == shown


def test_combinations_are_counted_where_they_can_be():
    _, spaces = parse("a=1,2", "b=range(0, 1, 0.25)", "c=int(interval(1, 3))")
    found = combinations(spaces, at_most=24)
    assert found is not None
    assert len(found) == 24
    assert found[0] == {"a": "1", "b": 0.0, "c": 1}
    assert found[-1] == {"a": "2", "b": 0.75, "c": 3}
    assert combinations(spaces, at_most=23) is None
    _, spaces = parse("a=1,2", "b=interval(0, 1)")
    assert combinations(spaces, at_most=10**6) is None


@pytest.mark.parametrize(
    ("override", "message"),
    [
        (
            "seed=1",
            r"there is nothing to search\. Give a key a space, e\.g\. 'learning_rate\.initial=tag\(log, interval",
        ),
        ("a=interval(1, 1)", r"a=interval\(1, 1\): an interval goes from a number to a larger one\."),
        ("a=interval(5, 1)", "goes from a number to a larger one"),
        ("a=interval(0, inf)", "goes from a number to a larger one"),
        ("a=tag(log, interval(0, 1))", "a log scale has no 0; begin above 0"),
        ("a=tag(log, range(1, 10, 2))", "in steps of 1"),
        ("a=tag(log, choice(1, 2))", "choices have no log scale"),
        ("a=tag(fast, interval(0, 1))", "the tag fast is unknown; there is only log"),
        ("a=range(3, 3)", r"the range is empty; range\(1, 4\) is 1, 2, 3"),
        ("a=range(1, 3, 0)", "a range with the step 0 has no end"),
        ("sweep.search.sampler=tpe,random", r"sweep\.search\.sampler=tpe,random: is the same for all trials"),
        ("tracking=mlflow,none", "is the same for all trials"),
        ("job=train,benchmark", "is the same for all trials"),
    ],
)
def test_a_space_that_makes_no_sense_is_refused(override, message):
    with pytest.raises(UserError, match=message):
        parse(override)
