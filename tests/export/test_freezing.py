"""Constants in the place of variables: the same numbers, the same names, and a clear word where that cannot be."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
from google.protobuf import text_format

from slimexp.errors import UserError
from slimexp.export.freezing import find_outputs, freeze, read_graph, variables_needed

v1 = tf.compat.v1


def toy(use_resource):
    """A graph as an old script makes it: variables, a saver, a summary, a side exit that is shorter."""
    with tf.Graph().as_default() as graph:
        x = v1.placeholder(tf.float32, [None, 2], name="input")
        w = v1.get_variable("net/w", [2, 3], use_resource=use_resource)
        b = v1.get_variable("net/b", [3], use_resource=use_resource)
        v1.get_variable("other", [1], use_resource=use_resource)
        hidden = tf.matmul(x, w, name="net/hidden")
        tf.nn.relu(hidden, name="net/aux")
        tf.nn.softmax(tf.nn.bias_add(hidden, b), name="net/out")
        v1.train.Saver()
        return graph.as_graph_def()


VALUES = {"net/w": np.arange(6, dtype=np.float32).reshape(2, 3), "net/b": np.array([1, 2, 3], np.float32)}


def frozen(definition, outputs=("net/out",), values=None, **options):
    values = VALUES if values is None else values
    return freeze(
        definition,
        outputs,
        lambda names: ((name, values[name]) for name in names),
        available=values,
        origin="model.ckpt-7",
        **options,
    )


@pytest.mark.parametrize("use_resource", [False, True], ids=["references", "resources"])
def test_a_frozen_graph_computes_what_the_variables_gave(use_resource):
    definition = toy(use_resource)
    assert find_outputs(definition) == ["net/out"]
    assert variables_needed(definition, ["net/out"]) == ["net/w", "net/b"]
    result = frozen(definition)
    names = {node.name for node in result.node}
    assert {"input", "net/w", "net/b", "net/hidden", "net/out"} <= names
    assert not {"other", "net/aux", "save/SaveV2"} & names
    with tf.Graph().as_default(), v1.Session() as session:
        tf.import_graph_def(result, name="")
        got = session.run("net/out:0", {"input:0": [[1.0, 2.0]]})
    logits = np.array([[1.0, 2.0]]) @ VALUES["net/w"] + VALUES["net/b"]
    np.testing.assert_allclose(got, np.exp(logits - logits.max()) / np.exp(logits - logits.max()).sum(), rtol=1e-6)


def test_devices_are_left_open_or_kept():
    definition = toy(True)
    for node in definition.node:
        node.device = "/gpu:3"
    assert {node.device for node in frozen(definition).node} == {""}
    assert {node.device for node in frozen(definition, clear_devices=False).node} == {"/gpu:3"}
    assert {node.device for node in definition.node} == {"/gpu:3"}


def test_what_does_not_go_together_is_named():
    definition = toy(True)
    with pytest.raises(UserError, match=r"has no node net/ouch\. The nearest is net/out\. Its outputs seem to"):
        frozen(definition, ["net/ouch"])
    with pytest.raises(UserError, match=r"has no node Final/Softmax\. Its outputs seem to be net/out\.$"):
        frozen(definition, ["Final/Softmax"])
    with pytest.raises(UserError, match=r"model.ckpt-7 lacks 1 of the 2 variables .*: net/b\. The nearest is net/w"):
        frozen(definition, values={"net/w": VALUES["net/w"]})
    with pytest.raises(UserError, match=r"net/b: is float32 \(3,\) in the graph and float32 \[4\] in model.ckpt-7"):
        frozen(definition, values={**VALUES, "net/b": np.zeros(4, np.float32)})
    with pytest.raises(UserError, match=r"net/w: is float32 .* and float64"):
        frozen(definition, values={**VALUES, "net/w": VALUES["net/w"].astype(np.float64)})


def test_a_graph_that_writes_to_variables_is_refused():
    with tf.Graph().as_default() as graph:
        w = v1.get_variable("w", [2], use_resource=True)
        with tf.control_dependencies([w.assign_add([1.0, 1.0])]):
            tf.identity(w.read_value(), name="out")
        definition = graph.as_graph_def()
    with pytest.raises(UserError, match=r"\(AssignAddVariableOp\) works on the variable w itself"):
        frozen(definition, ["out"], {"w": np.zeros(2, np.float32)})


def test_a_graph_is_read_as_text_or_as_a_message(tmp_path):
    definition = toy(False)
    (tmp_path / "a.pb").write_bytes(definition.SerializeToString())
    (tmp_path / "a.pbtxt").write_text(text_format.MessageToString(definition))
    (tmp_path / "empty.pb").write_bytes(b"")
    assert read_graph(str(tmp_path / "a.pb"), binary=True) == definition
    assert read_graph(str(tmp_path / "a.pbtxt"), binary=False) == definition
    with pytest.raises(UserError, match=r"is no graph as text; .* add --input_binary=true"):
        read_graph(str(tmp_path / "a.pb"), binary=False)
    with pytest.raises(UserError, match=r"is no graph as serialized; .* leave --input_binary out"):
        read_graph(str(tmp_path / "a.pbtxt"), binary=True)
    with pytest.raises(UserError, match=r"--input_graph=.*: cannot be read: No such file"):
        read_graph(str(tmp_path / "b.pb"), binary=True)
    with pytest.raises(UserError, match="the graph has no nodes"):
        read_graph(str(tmp_path / "empty.pb"), binary=True)
