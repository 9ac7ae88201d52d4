from __future__ import annotations

import numpy as np

from slimexp.dataset import Dataset, Split, class_counts, describe, fingerprint, label_counts


def split_of(labels, name: str = "train", folder: str = "/data", names: list[str] | None = None) -> Split:
    labels = np.array(labels, np.int8 if np.ndim(labels) == 2 else np.int32)
    names = names or [f"{i:03d}.jpg" for i in range(len(labels))]
    return Split(name, [f"{folder}/{n}".encode() for n in names], labels, "train.txt")


MULTI = [[1, -1, 0], [1, -1, 0], [-1, -1, 0], [0, 0, 0]]


def test_counts() -> None:
    assert class_counts(split_of([0, 2, 2])).tolist() == [1, 0, 2]
    assert class_counts(split_of([0, 2, 2]), 4).tolist() == [1, 0, 2, 0]
    assert label_counts(split_of(MULTI)).tolist() == [[2, 1, 1], [0, 3, 1], [0, 0, 4]]
    assert class_counts(split_of(MULTI)).tolist() == [2, 0, 0]
    many = np.tile(np.array([[1], [-1], [0]], np.int8), (50_000, 1))
    assert label_counts(split_of(many)).tolist() == [[50_000] * 3]


def test_describes_single_label_data() -> None:
    labels = [0] * 95 + [1] * 5
    dataset = Dataset("pets", "single", ("cat", "dog", "emu"), split_of(labels), split_of([0, 0], "eval"))
    assert describe(dataset).split("\n") == [
        "Dataset pets: 100 train images, 2 eval images, 3 classes (task single).",
        "Train images a class: 0 ('emu') to 95 ('cat'), median 5.",
        "Without a train image, so never learnt: 'emu'.",
        (
            "Imbalanced: the largest class has 19.0 times the images of the smallest one that has any; consider "
            "loss.class_weights, and look at balanced accuracy beside accuracy."
        ),
        "Without an eval image, so never judged: 'dog'.",
    ]
    even = Dataset("even", "single", ("a", "b"), split_of([0, 1]))
    assert describe(even).split("\n") == [
        "Dataset even: 2 train images, no eval images, 2 classes (task single).",
        "Train images a class: 1 each.",
    ]


def test_describes_multi_label_data() -> None:
    dataset = Dataset("voc", "multi", ("a", "b", "c"), split_of(MULTI), split_of([[1, 1, 1], [-1, -1, -1]], "eval"))
    assert describe(dataset).split("\n") == [
        "Dataset voc: 4 train images, 2 eval images, 3 labels (task multi).",
        (
            "Train labels: 16.7% positive, 33.3% negative, 50.0% don't care; "
            "positives a label: 0 ('b') to 2 ('a'), median 0."
        ),
        "Train labels never positive, so nothing tells what it looks like: 'b', 'c'.",
        "Train labels never negative, so answering yes to everything is right: 'c'.",
        "1 train images have no label but don't care, so they count for nothing.",
        (
            "Eval labels: 50.0% positive, 50.0% negative, 0.0% don't care; "
            "positives a label: 1 ('a') to 1 ('a'), median 1."
        ),
    ]
    names = tuple(f"n{i}" for i in range(8))
    assert "'n0', 'n1', 'n2', 'n3', 'n4' and 3 more" in describe(Dataset("x", "multi", names, split_of([[-1] * 8])))


def test_fingerprint_tells_data_apart_but_not_their_place() -> None:
    labels = [0, 1, 2]
    same = {fingerprint(split_of(labels, folder=folder)) for folder in ("/data", "/mnt/x y/data", "/data/train")}
    assert len(same) == 1
    assert len(next(iter(same))) == 32
    different = [
        split_of(labels),
        split_of([0, 1, 1]),
        split_of([2, 1, 0], names=["002.jpg", "001.jpg", "000.jpg"]),  # another order
        split_of(labels, names=["000.jpg", "001.jpg", "x.jpg"]),
        split_of(labels, names=["a/000.jpg", "b/001.jpg", "b/002.jpg"]),
        split_of([[1], [0], [-1]]),
        split_of([[1, 0], [0, 0], [-1, 0]]),
        split_of([0, 1]),
        split_of([0], names=["000.jpg"]),
        split_of([0], names=["001.jpg"]),
        split_of([]),
    ]
    assert len({fingerprint(split) for split in different}) == len(different)
    # It must not change from version to version, or old runs would look as if they had seen other data.
    assert fingerprint(split_of([0, 1])) == "d39c9723cbcb5dd0108f5811dd7fc7c2"
