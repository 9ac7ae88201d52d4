"""The two steps of old, as programs: a graph without weights, then its frozen form, from a checkpoint of anyone."""

from __future__ import annotations

import importlib
import os

import numpy as np
import pytest
import tensorflow as tf

from slimexp import nets
from slimexp.errors import UserError
from slimexp.export.flags import run_script
from slimexp.export.scoring import FrozenScorer
from slimexp.export.two_steps import export_inference_graph, freeze_graph
from slimexp.training.checkpoints import Checkpoints
from slimexp.training.classifier import Classifier


@pytest.fixture(scope="module")
def scripts(repository):
    """The two scripts' main functions."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(repository / "scripts"))
        names = ("export_inference_graph", "freeze_graph")
        yield tuple(importlib.import_module(name).main for name in names)


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A LeNet with weights, and its checkpoint, with averages of the weights that are twice as large."""
    classifier = Classifier(nets.lenet, num_classes=4, image_size=28)
    classifier.build()
    values = {name: variable.numpy() for name, variable in classifier.store.variables.items()}
    averages = {f"{name}/ExponentialMovingAverage": 2 * value for name, value in values.items()}
    folder = tmp_path_factory.mktemp("checkpoints")
    Checkpoints(folder).save(9, {**values, **averages, "global_step": np.int64(9)})
    return classifier, folder


IMAGES = np.random.RandomState(0).uniform(-1, 1, [3, 28, 28, 3]).astype(np.float32)


def test_the_two_steps_give_the_network_with_its_weights(scripts, trained, tmp_path, capsys):
    export, freeze = scripts
    classifier, folder = trained
    graph, output = str(tmp_path / "lenet.pb"), str(tmp_path / "frozen.pb")
    flags = ["--model_name=lenet", "--num_classes", "4", "--dataset_dir=/tmp/x", "--is_training=false"]
    export([*flags, f"--output_file={graph}"])
    said = capsys.readouterr()
    assert "input node input, output nodes LeNet/fc4/BiasAdd, LeNet/Predictions/Reshape_1" in said.out
    assert "Not needed, and left out: --dataset_dir." in said.err
    freeze([f"--input_graph={graph}", "--input_binary", f"--input_checkpoint={folder}", f"--output_graph={output}"])
    assert "8 variables became constants, output nodes LeNet/Predictions/Reshape_1" in capsys.readouterr().out
    scorer = FrozenScorer(tmp_path / "frozen.pb", input="input:0", scores="LeNet/Predictions/Reshape_1:0")
    logits, _ = tf.function(lambda images: classifier(images, is_training=False))(tf.constant(IMAGES))
    np.testing.assert_allclose(scorer.of_images(IMAGES), tf.nn.softmax(logits), atol=1e-6)


def test_text_graphs_fixed_batches_averages_and_named_outputs(scripts, trained, tmp_path, capsys):
    export, freeze = scripts
    _, folder = trained
    graph, output = str(tmp_path / "lenet.pbtxt"), str(tmp_path / "frozen.pb")
    flags = ["--model_name=lenet", "--dataset_name=flowers", "--labels_offset=1", "--batch_size=2", "--image_size=28"]
    export([*flags, f"--output_file={graph}", "--write_text_graphdef"])
    assert "--input_binary" not in capsys.readouterr().out
    names = "--output_node_names=LeNet/fc4/BiasAdd, LeNet/Predictions/Reshape_1:0"
    to = [f"--input_graph={graph}", f"--input_checkpoint={folder / 'model.ckpt-9'}", f"--output_graph={output}", names]
    freeze([*to, "--input_binary=false", "--restore_op_name=save/restore_all"])
    assert "--restore_op_name" in capsys.readouterr().err
    plain = FrozenScorer(tmp_path / "frozen.pb", input="input:0", scores="LeNet/fc4/BiasAdd:0").of_images(IMAGES[:2])
    freeze([*to, "--use_averages=true", "--noclear_devices"])
    doubled = FrozenScorer(tmp_path / "frozen.pb", input="input:0", scores="LeNet/fc4/BiasAdd:0").of_images(IMAGES[:2])
    # Without biases each of the four layers doubles, as initial biases are zero.
    np.testing.assert_allclose(doubled, 16 * plain, rtol=1e-4, atol=1e-5)


def test_a_graph_for_training_has_its_dropout(tmp_path):
    export_inference_graph("lenet", str(tmp_path / "a.pb"), num_classes=4, is_training=True)
    definition = tf.compat.v1.GraphDef.FromString((tmp_path / "a.pb").read_bytes())
    assert any(node.op == "RandomUniform" for node in definition.node)


def test_what_cannot_be_is_said(trained, tmp_path):
    _, folder = trained
    to = str(tmp_path / "a.pb")
    with pytest.raises(UserError, match="--model_name=vgg16: there is no such one; the nearest is vgg_16, of "):
        export_inference_graph("vgg16", to)
    with pytest.raises(UserError, match=r"--dataset_name=flower: .* the nearest is flowers"):
        export_inference_graph("lenet", to, dataset_name="flower")
    with pytest.raises(UserError, match="--labels_offset=10: cifar10 has 10 classes"):
        export_inference_graph("lenet", to, dataset_name="cifar10", labels_offset=10)
    with pytest.raises(UserError, match="--image_size=30: vgg_16 needs 32 pixels or more"):
        export_inference_graph("vgg_16", to, image_size=30)
    with pytest.raises(UserError, match=r"--image_size=300: .* cannot be squeezed"):
        export_inference_graph("vgg_16", to, image_size=300)
    with pytest.raises(UserError, match="--batch_size=0: must be 1 or more"):
        export_inference_graph("lenet", to, batch_size=0)
    with pytest.raises(UserError, match=r"--output_file=.*: is a folder"):
        export_inference_graph("lenet", str(tmp_path))
    export_inference_graph("lenet", to, num_classes=5)
    with pytest.raises(UserError, match=r"LeNet/fc4/weights: is float32 \(1024, 5\) .* \[1024, 4\]"):
        freeze_graph(to, str(folder), str(tmp_path / "b.pb"), input_binary=True)
    assert not (tmp_path / "b.pb").exists()
    with pytest.raises(UserError, match=r"--input_checkpoint=.*: there is no such checkpoint"):
        freeze_graph(to, str(folder / "model.ckpt-8"), str(tmp_path / "b.pb"), input_binary=True)


def test_a_script_ends_with_one_message(capsys, monkeypatch):
    def main(argv):
        raise UserError("--output_file: is a folder.")

    monkeypatch.setattr("sys.argv", ["freeze_graph.py"])
    with pytest.raises(SystemExit, match="1"):
        run_script(main)
    assert capsys.readouterr().err == "error: --output_file: is a folder.\n"
    assert os.environ["TF_CPP_MIN_LOG_LEVEL"]


def test_a_word_that_is_no_truth_value_is_refused(scripts, capsys):
    with pytest.raises(SystemExit, match="2"):
        scripts[0](["--output_file=a.pb", "--is_training=maybe"])
    assert "'maybe' is neither true nor false" in capsys.readouterr().err
