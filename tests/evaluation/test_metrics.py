from __future__ import annotations

import math
import warnings
from typing import Any

import numpy as np
import pytest
from sklearn.metrics import precision_recall_fscore_support

from slimexp.errors import UserError
from slimexp.evaluation.metrics import Accumulator

NAMES = ("ant", "bee", "cat")


def fill(
    task: str, logits: Any, labels: Any, names: tuple[str, ...] = NAMES, top_k: int = 5, batch: int = 2
) -> Accumulator:
    """Feeds the examples in batches, the last one filled up with rows that do not count."""
    accumulator = Accumulator(task, names, top_k)
    logits, labels = np.asarray(logits, np.float32), np.asarray(labels)
    for start in range(0, len(logits), batch):
        rows = np.arange(start, start + batch)
        valid = rows < len(logits)
        rows = np.where(valid, rows, 0)
        accumulator.update(logits[rows], labels[rows], valid, rows)
    return accumulator


def test_single_by_hand() -> None:
    log = math.log
    logits = [
        [log(0.5), log(0.3), log(0.2)],  # ant, right
        [log(0.2), log(0.7), log(0.1)],  # bee, right
        [log(0.6), log(0.3), log(0.1)],  # bee, taken for an ant
        [log(0.1), log(0.1), log(0.8)],  # ant, taken for a cat
        [log(0.1), log(0.8), log(0.1)],  # bee, right
    ]
    accumulator = fill("single", logits, [0, 1, 1, 0, 1], top_k=2)
    summary = accumulator.summarize()
    assert summary == {
        "eval/examples": 5,
        "eval/loss": pytest.approx(-(log(0.5) + log(0.7) + log(0.3) + log(0.1) + log(0.8)) / 5),
        "eval/top1": pytest.approx(3 / 5),
        "eval/top2": pytest.approx(5 / 5),  # The last ant ties with bee for second place; the lower class wins.
        "eval/balanced_accuracy": pytest.approx((1 / 2 + 2 / 3) / 2),  # There is no cat.
    }
    np.testing.assert_array_equal(accumulator.confusion_matrix(), [[1, 0, 1], [1, 2, 0], [0, 0, 0]])
    assert accumulator.confusion_matrix().dtype == np.int64
    assert accumulator.per_class() == [
        {"class": "ant", "precision": 0.5, "recall": 0.5, "f1": 0.5, "support": 2, "predicted": 2},
        {
            "class": "bee",
            "precision": 1.0,
            "recall": pytest.approx(2 / 3),
            "f1": pytest.approx(0.8),
            "support": 3,
            "predicted": 2,
        },
        {"class": "cat", "precision": 0.0, "recall": 0.0, "f1": 0.0, "support": 0, "predicted": 1},
    ]
    first = accumulator.predictions()[0]
    assert (first["index"], first["truth"]) == (0, "ant")
    assert first["best"] == [("ant", pytest.approx(0.5)), ("bee", pytest.approx(0.3))]


def test_multi_by_hand() -> None:
    # Label 0: scores 2, 1, -1 with truths +, -, +: precision 1 at recall 1/2, 2/3 at recall 1: AP = 1/2 + 1/3.
    # Label 1: only negatives counted. Label 2: one counted, a positive: AP = 1.
    logits = [[2.0, -3.0, 0.0], [1.0, 1.0, 9.0], [-1.0, 5.0, -9.0]]
    labels = np.array([[1, -1, 1], [-1, -1, 0], [1, 0, 0]], np.int8)
    accumulator = fill("multi", logits, labels)

    def loss(logit: float, positive: bool) -> float:
        p = 1 / (1 + math.exp(-logit))
        return -math.log(p if positive else 1 - p)

    entries = [(2.0, True), (-3.0, False), (0.0, True), (1.0, False), (1.0, False), (-1.0, True)]
    assert accumulator.summarize() == {
        "eval/examples": 3,
        "eval/loss": pytest.approx(sum(loss(*entry) for entry in entries) / 6),
        "eval/mean_average_precision": pytest.approx((5 / 6 + 1) / 2),
        "eval/labels_without_positives": 1,
        "eval/counted_entries": 6,
        "eval/precision": pytest.approx(2 / 4),  # A logit of 0 is a probability of 0.5 and counts as positive.
        "eval/recall": pytest.approx(2 / 3),
        "eval/f1": pytest.approx(4 / 7),
    }
    table = accumulator.per_class()
    assert [row["average_precision"] for row in table] == [pytest.approx(5 / 6), None, 1.0]
    assert [(row["positives"], row["negatives"], row["dont_care"]) for row in table] == [
        (2, 1, 0),
        (0, 2, 1),
        (1, 0, 2),
    ]
    row = accumulator.predictions()[1]
    assert (row["truth"], row["dont_care"]) == ((), ("cat",))
    assert row["best"][0] == ("cat", pytest.approx(1 / (1 + math.exp(-9))))


def test_the_threshold_of_multi_by_hand() -> None:
    """Probabilities 0.9, 0.7 and 0.2 with truths +, - and +: above 0.8 only the first is predicted."""
    logits = np.log([[9.0], [7 / 3], [1 / 4]])
    labels = np.array([[1], [-1], [1]], np.int8)
    results = {}
    for threshold in (0.1, 0.5, 0.8):
        accumulator = Accumulator("multi", ("a",), threshold=threshold)
        accumulator.update(logits, labels, np.ones(3, bool), np.arange(3))
        summary, (row,) = accumulator.summarize(), accumulator.per_class()
        results[threshold] = (summary["eval/precision"], summary["eval/recall"])
        assert (row["precision"], row["recall"], row["f1"]) == pytest.approx((*results[threshold], summary["eval/f1"]))
        assert row["counted"] == 3
    assert results == {
        0.1: pytest.approx((2 / 3, 1)),
        0.5: pytest.approx((1 / 2, 1 / 2)),
        0.8: pytest.approx((1, 1 / 2)),
    }
    with pytest.raises(UserError, match=r"evaluation.threshold=1 has to lie between 0 and 1"):
        Accumulator("multi", ("a",), threshold=1)


def test_many_labels_agree_with_scikit_learn() -> None:
    random = np.random.default_rng(2)
    logits = random.normal(size=(30, 50)).astype(np.float32)
    labels = random.integers(-1, 2, (30, 50)).astype(np.int8)
    accumulator = fill("multi", logits, labels, tuple(map(str, range(50))), batch=30)
    for c, row in enumerate(accumulator.per_class()):
        counted = labels[:, c] != 0
        theirs = precision_recall_fscore_support(
            labels[counted, c] > 0, logits[counted, c] >= 0, labels=[True], average=None, zero_division=0.0
        )
        assert (row["precision"], row["recall"], row["f1"]) == pytest.approx([float(value[0]) for value in theirs[:3]])


@pytest.mark.parametrize("task", ["single", "multi"])
def test_the_batch_size_changes_nothing(task: str) -> None:
    random = np.random.default_rng(0)
    logits = random.normal(size=(33, 3)).astype(np.float32)
    labels = random.integers(0, 3, 33) if task == "single" else random.integers(-1, 2, (33, 3)).astype(np.int8)
    results = [fill(task, logits, labels, batch=batch) for batch in (1, 7, 16, 64)]
    assert results[0].summarize()["eval/examples"] == 33
    for other in results[1:]:
        assert other.summarize() == results[0].summarize()
        assert other.per_class() == results[0].per_class()
        assert other.predictions() == results[0].predictions()
    if task == "single":
        assert results[0].confusion_matrix().sum() == 33
    backwards = Accumulator(task, NAMES)
    backwards.update(logits[::-1], labels[::-1], np.ones(33, bool), np.arange(33)[::-1])
    assert backwards.summarize() == results[0].summarize()


def test_the_single_loss_is_stable() -> None:
    summary = fill("single", [[1000.0, 0.0, -1000.0], [-1e30, 1e30, 0.0]], [1, 1]).summarize()
    assert summary["eval/loss"] == pytest.approx(500.0)


def test_the_multi_loss_is_stable() -> None:
    summary = fill("multi", [[1000.0, -1000.0, 1000.0]], np.array([[1, -1, -1]], np.int8)).summarize()
    assert summary["eval/loss"] == pytest.approx(1000.0 / 3)


def test_an_untrained_net_is_not_perfect() -> None:
    # TensorFlow's in_top_k takes every class of a tie for a hit.
    summary = fill("single", np.zeros((6, 3)), [0, 1, 2, 0, 1, 2], top_k=2).summarize()
    assert summary["eval/top1"] == pytest.approx(1 / 3)
    assert summary["eval/top2"] == pytest.approx(2 / 3)


@pytest.mark.parametrize(("top_k", "keys"), [(1, []), (2, ["eval/top2"]), (3, []), (5, [])])
def test_top_k_only_where_it_says_something(top_k: int, keys: list[str]) -> None:
    summary = fill("single", np.eye(3), [0, 1, 2], top_k=top_k).summarize()
    assert [key for key in summary if key.startswith("eval/top") and key != "eval/top1"] == keys


def test_a_class_that_is_always_wrong() -> None:
    summary = fill("single", np.eye(3)[[0, 0, 1]], [0, 1, 1]).summarize()
    assert summary["eval/balanced_accuracy"] == pytest.approx(0.75)
    accumulator = fill("single", np.eye(3)[[0, 0, 2]], [0, 1, 2])
    assert accumulator.per_class()[1]["recall"] == 0.0


@pytest.mark.parametrize("task", ["single", "multi"])
def test_what_is_not_finite_is_counted(task: str) -> None:
    nan, inf = math.nan, math.inf
    logits = [[nan, 1.0, 0.0], [inf, 0.0, -inf], [nan, nan, nan], [0.0, 1.0, 2.0]]
    labels: Any = (
        [1, 0, 2, 2] if task == "single" else np.array([[-1, 1, -1], [1, -1, 1], [1, 1, 1], [-1, -1, 1]], np.int8)
    )
    accumulator = fill(task, logits, labels)
    summary = accumulator.summarize()
    assert summary["eval/nonfinite_examples"] == 3
    assert not math.isfinite(summary["eval/loss"])
    assert len(accumulator.predictions()) == 4
    if task == "single":
        assert summary["eval/top1"] == pytest.approx(3 / 4)


@pytest.mark.parametrize("task", ["single", "multi"])
def test_nothing_to_evaluate(task: str) -> None:
    accumulator = Accumulator(task, NAMES)
    with pytest.raises(
        UserError, match=r"holds no example; look at dataset.eval_list, or dataset.eval_dir for folders\."
    ):
        accumulator.summarize()
    labels = np.zeros(2, int) if task == "single" else np.ones((2, 3), np.int8)
    accumulator.update(np.zeros((2, 3)), labels, np.zeros(2, bool), np.zeros(2))
    assert accumulator.num_examples == 0
    assert accumulator.predictions() == []
    assert len(accumulator.per_class()) == 3
    with pytest.raises(UserError, match="holds no example"):
        accumulator.summarize()


def test_nothing_but_dont_care() -> None:
    accumulator = fill("multi", np.zeros((2, 3)), np.zeros((2, 3), np.int8))
    with pytest.raises(UserError, match="All labels of the 2 evaluated examples are 'don't care'"):
        accumulator.summarize()


def test_no_positive_at_all() -> None:
    summary = fill("multi", np.full((2, 3), -1.0), np.full((2, 3), -1, np.int8)).summarize()
    assert "eval/mean_average_precision" not in summary
    assert summary["eval/labels_without_positives"] == 3
    assert summary["eval/f1"] == 0.0


def test_one_class_and_wrong_top_k() -> None:
    assert fill("single", [[0.0]], [0], names=("only",)).summarize()["eval/top1"] == 1.0
    with pytest.raises(UserError, match=r"evaluation.top_k=0 has to be at least 1"):
        Accumulator("single", NAMES, top_k=0)


def test_an_example_counted_twice_is_a_fault() -> None:
    accumulator = Accumulator("single", NAMES)
    accumulator.update(np.zeros((2, 3)), np.zeros(2, int), np.ones(2, bool), np.array([4, 4]))
    with pytest.raises(AssertionError, match="counted twice"):
        accumulator.summarize()


def test_a_thousand_classes_without_warnings() -> None:
    random = np.random.default_rng(1)
    names = tuple(map(str, range(1000)))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        accumulator = fill("single", random.normal(size=(300, 1000)), random.integers(0, 1000, 300), names, batch=100)
        assert accumulator.summarize()["eval/examples"] == 300
        assert accumulator.confusion_matrix().shape == (1000, 1000)


def test_a_single_class() -> None:
    """scikit-learn's remark on it is no warning of ours."""
    accumulator = Accumulator("single", ["x"])
    accumulator.update(np.zeros((3, 1), np.float32), np.zeros(3, np.int64), np.ones(3, bool), np.arange(3))
    assert accumulator.summarize()["eval/top1"] == 1.0
    assert accumulator.confusion_matrix().tolist() == [[3]]
