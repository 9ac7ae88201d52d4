"""A network takes all its values from a checkpoint, or says which it cannot have and why."""

from __future__ import annotations

import numpy as np
import pytest

from slimexp.errors import UserError
from slimexp.training.checkpoint_file import CheckpointFile
from slimexp.training.checkpoints import Checkpoints
from slimexp.training.classifier import Classifier
from slimexp.training.name_map import NameRule
from slimexp.training.weights import load_weights
from tests.training.test_trainer import CLASSES, SIZE, plain_net, small_net


def classifier_of(network=small_net, classes=CLASSES, heads=None):
    if heads:
        network.head_scopes = heads
    made = Classifier(network, num_classes=classes, image_size=SIZE)
    made.build()
    return made


def saved(folder, values):
    return CheckpointFile(Checkpoints(folder).save(3, {**values, "global_step": np.int64(3)}))


def values_of(classifier):
    return {name: np.full(shape, len(name), np.float32) for name, shape in classifier.shapes().items()}


def test_every_variable_gets_its_value(tmp_path):
    classifier = classifier_of()
    values = values_of(classifier)
    slots = {f"{name}/Adam": value * 0 for name, value in values.items()}
    assert load_weights(classifier, saved(tmp_path, {**values, **slots})) is False
    for name, value in values.items():
        np.testing.assert_array_equal(classifier.store.variables[name].numpy(), value)

    averages = {f"{name}/ExponentialMovingAverage": value + 1 for name, value in values.items()}
    both = saved(tmp_path / "both", {**values, **averages})
    assert load_weights(classifier, both) is True
    name = "small/logits/biases"
    np.testing.assert_array_equal(classifier.store.variables[name].numpy(), values[name] + 1)
    assert load_weights(classifier, both, use_averages="false") is False
    np.testing.assert_array_equal(classifier.store.variables[name].numpy(), values[name])


def test_other_names_by_a_map_which_is_suggested(tmp_path):
    classifier = classifier_of()
    checkpoint = saved(tmp_path, {f"model/{name}": value for name, value in values_of(classifier).items()})
    with pytest.raises(
        UserError, match=r"(?s)6 of the 6 variables of small_net.*All 6 would match with.*restore\.name_map=\[.*model/"
    ) as error:
        load_weights(classifier, checkpoint)
    assert "small/conv/weights: not there; the nearest is model/small/conv/weights" in str(error.value)
    assert "... and 1 more; job=inspect inspect.checkpoint=" in str(error.value)
    load_weights(classifier, checkpoint, name_map=[NameRule("^", "model/")])
    assert classifier.store.variables["small/logits/biases"].numpy()[0] == len("small/logits/biases")


def test_what_does_not_fit_changes_nothing_and_is_named(tmp_path):
    values = values_of(classifier_of())
    checkpoint = saved(tmp_path, values)
    classifier = classifier_of(classes=5, heads=("small/logits",))
    before = classifier.store.variables["small/conv/weights"].numpy()
    with pytest.raises(
        UserError, match=r"(?s)^evaluation\.checkpoint=.*2 of the 6.*logits/weights: \[256, 5\] here, \[256, 3\] there"
    ) as error:
        load_weights(classifier, checkpoint)
    assert "The checkpoint is for 3 classes and the dataset has 5" in str(error.value)
    np.testing.assert_array_equal(classifier.store.variables["small/conv/weights"].numpy(), before)
    with pytest.raises(UserError, match="It is the checkpoint of another network: choose the model that it is of"):
        load_weights(classifier_of(plain_net), checkpoint)
    values.pop("small/conv/BatchNorm/moving_mean")
    with pytest.raises(UserError, match=r"(?s)moving_mean: not there; the nearest.*settings of its network, that"):
        load_weights(classifier_of(), saved(tmp_path / "less", values))
