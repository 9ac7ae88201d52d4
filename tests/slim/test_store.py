from __future__ import annotations

import gc
import weakref

import numpy as np
import pytest
import tensorflow as tf

from slimexp import slim
from tests.slim import reference

v1 = tf.compat.v1
SPEC = tf.TensorSpec([None, 4])


def net(inputs, scopes=("a", "b")):
    for scope in scopes:
        inputs = slim.fully_connected(inputs, 4, weights_regularizer=slim.l2_regularizer(0.5), scope=scope)
    return inputs


def built(seed=0, scopes=("a", "b")):
    store = slim.VariableStore(seed)
    store.build(lambda x: net(x, scopes), SPEC)
    store.freeze()
    return store


def test_traces_share_variables_in_the_order_of_creation():
    store = built()
    assert list(store.variables) == ["a/weights", "a/biases", "b/weights", "b/biases"]

    @tf.function
    def twice(x, training):
        with store.in_use():
            return 2 * net(x) if training else net(x)

    x = tf.constant([[1.0, 2.0, 3.0, 4.0]])
    np.testing.assert_array_equal(twice(x, True), 2 * twice(x, False))
    store.variables["b/biases"].assign([7.0] * 4)
    store.variables["b/weights"].assign(tf.zeros([4, 4]))
    np.testing.assert_array_equal(twice(x, False), [[7.0] * 4])
    assert len(store.variables) == 4


def test_it_is_a_custom_getter():
    store = built()

    @tf.function
    def fn(x):
        with v1.variable_scope("", custom_getter=store):
            return net(x)

    assert fn(tf.ones([1, 4])).shape == (1, 4)


def test_initial_values_depend_on_seed_and_name_alone():
    store, reordered, other = built(), built(scopes=("c", "b", "a")), built(seed=1)
    tf.random.set_seed(5)
    again = built()
    for name in ("a/weights", "b/weights"):
        np.testing.assert_array_equal(store.variables[name].numpy(), reordered.variables[name].numpy())
        np.testing.assert_array_equal(store.variables[name].numpy(), again.variables[name].numpy())
        assert np.abs(store.variables[name] - other.variables[name]).max() > 0
    assert np.abs(store.variables["a/weights"] - store.variables["b/weights"]).max() > 0
    # Unlike zeros, which any seed gives.
    assert np.abs(store.variables["a/biases"]).max() == 0


def test_any_initializer_will_do():
    store = slim.VariableStore(0)

    def build():
        v1.get_variable("default", [3, 3])
        v1.get_variable("integers", [2], tf.int32)
        v1.get_variable("class", [2], initializer=v1.ones_initializer)
        v1.get_variable("array", initializer=np.array([1.0, 2.0], np.float32))
        v1.get_variable("tensor", initializer=tf.constant([3.0]))
        v1.get_variable("function", [2], initializer=lambda shape, dtype: tf.fill(shape, tf.cast(4, dtype)))
        v1.get_variable("half", [2, 2], tf.bfloat16)
        v1.get_variable("orthogonal", [2, 2], initializer=v1.orthogonal_initializer())

    store.build(build)
    values = {name: variable.numpy() for name, variable in store.variables.items()}
    assert 0 < np.abs(values["default"]).max() <= 1  # Uniform within sqrt(6 / (3 + 3)).
    assert values["integers"].tolist() == [0, 0]
    assert values["class"].tolist() == [1, 1]
    assert values["array"].tolist() == [1, 2]
    assert values["tensor"].tolist() == [3]
    assert values["function"].tolist() == [4, 4]
    np.testing.assert_allclose(values["orthogonal"] @ values["orthogonal"].T, np.eye(2), atol=1e-6)
    assert store.variables["half"].dtype == tf.bfloat16


def test_each_trace_has_the_collections_of_its_own_model():
    before = len(v1.global_variables()), len(v1.trainable_variables())
    other = built(scopes=("other",))
    store = slim.VariableStore(0)
    seen = []

    def fn(x):
        slim.get_or_create_global_step()
        slim.batch_norm(net(x, ("a",)), scope="a/BatchNorm")
        seen.append(
            [
                [v.name for v in variables]
                for variables in (
                    slim.get_trainable_variables(),
                    slim.get_model_variables(),
                    slim.get_variables(),
                    v1.get_collection(v1.GraphKeys.GLOBAL_STEP),
                )
            ]
        )

    store.build(fn, SPEC)
    store.build(fn, SPEC)
    trainable = ["a/weights:0", "a/biases:0", "a/BatchNorm/beta:0"]
    model = [*trainable, "a/BatchNorm/moving_mean:0", "a/BatchNorm/moving_variance:0"]
    assert seen == [[trainable, model, ["global_step:0", *model], ["global_step:0"]]] * 2
    assert [f"{name}:0" for name in store.trainable_variables] == trainable
    assert [f"{name}:0" for name in store.model_variables] == model
    assert list(store.in_collection(v1.GraphKeys.GLOBAL_STEP)) == ["global_step"]
    # Nothing is left behind in the program's own graph, where it would live for ever.
    assert (len(v1.global_variables()), len(v1.trainable_variables())) == before
    gone = weakref.ref(other.variables["other/weights"])
    del other
    gc.collect()
    assert gone() is None


def test_names_by_default_are_the_same_in_each_trace():
    store = slim.VariableStore(0)

    def fn(x):
        slim.fully_connected(slim.fully_connected(x, 4), 4)

    store.build(fn, SPEC)
    store.freeze()
    store.build(fn, SPEC)
    names = ["fully_connected/weights", "fully_connected_1/weights"]
    assert [name for name in store.variables if name.endswith("weights")] == names


def test_regularization_losses_are_added_once_a_pass():
    store = built()

    @tf.function
    def fn(x):
        counts = []
        with store.in_use():
            for _ in range(2):
                with slim.collected() as own:
                    net(x)
                    with v1.variable_scope(v1.get_variable_scope(), reuse=True):
                        net(x)
                counts.append(len(own.regularization_losses))
        assert counts == [2, 2]
        names = [loss.name for loss in slim.losses.get_regularization_losses()]
        assert names[:2] == [f"{s}/weights/Regularizer/l2_regularizer:0" for s in "ab"]
        return x

    fn(tf.ones([1, 4]))


def test_a_frozen_store_names_what_it_lacks():
    store = built()
    with pytest.raises(ValueError, match=r"variable 'c/weights' was asked for after .* with 4 variables.*'b/weights'"):
        store.build(lambda x: net(x, ("c",)), SPEC)


def test_two_layers_of_one_scope_are_refused():
    with pytest.raises(ValueError, match=r"'a/weights' already exists in this pass.*two layers have the same scope"):
        built(scopes=("a", "a"))


def test_reuse_of_what_does_not_exist_is_refused():
    with pytest.raises(ValueError, match=r"'a/weights' does not exist, but its scope has reuse=True"):
        slim.VariableStore(0).build(lambda x: slim.fully_connected(x, 4, reuse=True, scope="a"), SPEC)


def test_other_shapes_and_types_are_refused():
    store = built()
    with pytest.raises(ValueError, match=r"'a/weights' has shape \[4, 4\], but a layer now wants \[4, 5\]"):
        store.build(lambda x: slim.fully_connected(x, 5, scope="a"), SPEC)
    with pytest.raises(ValueError, match=r"'a/weights' has dtype float32, but a layer now wants bfloat16"):
        store.build(net, tf.TensorSpec([None, 4], tf.bfloat16))
    with pytest.raises(ValueError, match=r"initial value of 'v' has shape \[2\], but its layer wants \(3,\)"):
        slim.VariableStore(0).build(lambda: v1.get_variable("v", [3], initializer=lambda *a, **k: tf.zeros([2])))
    with pytest.raises(ValueError, match=r"shape of a new variable must be known, but 'v' has \(None,\)"):
        slim.VariableStore(0).build(lambda: v1.get_variable("v", [None], initializer=v1.zeros_initializer()))
    with pytest.raises(ValueError, match="'v' has a partitioner, but a store keeps variables whole"):
        slim.VariableStore(0).build(
            lambda: v1.get_variable("v", [4], partitioner=v1.fixed_size_partitioner(2), use_resource=True)
        )
    with pytest.raises(ValueError, match="initial value of 'v' is computed in the graph being traced"):
        slim.VariableStore(0).build(lambda x: v1.get_variable("v", initializer=x), tf.TensorSpec([2]))


def test_replicas_may_not_create():
    strategy = reference.two_replicas()
    store = slim.VariableStore(0)

    @tf.function
    def step():
        def replica():
            with store.in_use():
                net(tf.ones([1, 4]))

        strategy.run(replica)

    with pytest.raises(RuntimeError, match=r"'a/weights' was first asked for inside Strategy\.run"):
        step()


def test_variables_are_mirrored_and_moving_averages_are_read_as_a_mean():
    strategy = reference.two_replicas()
    store = slim.VariableStore(0)
    with strategy.scope():
        store.build(lambda x: slim.batch_norm(net(x)), SPEC)
    assert len(strategy.experimental_local_results(store.variables["a/weights"])) == 2
    mean = store.variables["BatchNorm/moving_mean"]
    assert mean.aggregation == tf.VariableAggregation.MEAN
    for i, local in enumerate(strategy.experimental_local_results(mean)):
        local.assign([float(i)] * 4)
    np.testing.assert_array_equal(mean.numpy(), [0.5] * 4)
