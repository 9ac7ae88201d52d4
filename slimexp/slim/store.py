"""Keep variables across traces: what lets networks of `get_variable` run inside `tf.function` and `tf.distribute`.

store = VariableStore(seed=0)
with strategy.scope():
    store.build(net, tf.TensorSpec([None, 28, 28, 1]))      # creates the variables
store.freeze()

def step(images):                                           # in a tf.function, through strategy.run
    with store.in_use(), collected() as own:
        logits, end_points = net(images)
"""

from __future__ import annotations

import contextlib
import difflib
import hashlib
import inspect
import threading
import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from slimexp.slim.collecting import current_pass, one_of_several_replicas, replica_name_scope

__all__ = ["VariableStore"]

_Keys = tf.compat.v1.GraphKeys


class _Passes(threading.local):
    """Per thread (a replica is one) and pass over the network: the names asked for so far."""

    def __init__(self) -> None:
        self.names: weakref.WeakKeyDictionary[Any, set[str]] = weakref.WeakKeyDictionary()


class VariableStore:
    """Hands out one variable per name, in whatever graph it is asked for.

    It is the custom getter of a variable scope (`variable_scope(scope, custom_getter=store)`, or `in_use()`). The first
    request of a name creates the variable outside of the graph being traced, as the current strategy wants it; later
    requests, in this trace or another, return the same one. In each graph the variable is put into the collections
    where the layer wants it, and its regularization loss is added once per pass (a block of `collected`; outside of
    any, a graph and replica).

    Within one pass the rules of variable scopes hold: a name is asked for once unless the scope reuses variables.

    Initial values depend on the seed and the variable's name alone: not on the order of creation, on other variables
    or on the random state of the program.

    Args:
        seed: Of the initial values.

    Attributes:
        variables: Name, e.g. `vgg_16/fc8/weights` -> variable, in the order of creation.
        frozen: Whether `freeze` was called.
    """

    def __init__(self, seed: int) -> None:
        self.variables: dict[str, Any] = {}
        self.frozen = False
        self._seed = int(seed)
        self._collections: dict[str, dict[str, None]] = {}
        self._passes = _Passes()

    def __call__(
        self,
        getter: Callable[..., Any],
        name: str,
        shape: Any = None,
        dtype: Any = None,
        initializer: Any = None,
        regularizer: Callable[[Any], Any] | None = None,
        reuse: Any = None,
        trainable: bool | None = None,
        collections: Sequence[str] | None = None,
        caching_device: Any = None,
        partitioner: Any = None,
        validate_shape: bool = True,
        use_resource: bool | None = None,
        constraint: Callable[[Any], Any] | None = None,
        synchronization: tf.VariableSynchronization = tf.VariableSynchronization.AUTO,
        aggregation: tf.VariableAggregation = tf.VariableAggregation.NONE,
    ) -> Any:
        """Returns the variable of that name; called by `tf.compat.v1.get_variable`, whose arguments these are.

        `caching_device`, `validate_shape` and `use_resource` say how a graph keeps its own variables. The store's
        belong to no graph: they are resource variables of a fixed shape, read where they are used.

        Raises:
            ValueError: If the name is unknown to a frozen store or to a scope that reuses; if it is asked for twice
                in one pass without reuse; if shape or type differ from the variable's; for a partitioned variable.
            RuntimeError: If a variable would have to be created by one of several replicas.
        """
        if tf.executing_eagerly():
            # Not a layer: an optimizer, which leaves the trace to make its slots, and keeps them itself.
            return getter(
                name,
                shape=shape,
                dtype=dtype,
                initializer=initializer,
                regularizer=regularizer,
                reuse=reuse,
                trainable=trainable,
                collections=collections,
                caching_device=caching_device,
                partitioner=partitioner,
                validate_shape=validate_shape,
                use_resource=use_resource,
                constraint=constraint,
                synchronization=synchronization,
                aggregation=aggregation,
            )
        if partitioner is not None:
            raise ValueError(f"VariableStore: {name!r} has a partitioner, but a store keeps variables whole.")
        if trainable is None:
            trainable = synchronization != tf.VariableSynchronization.ON_READ
        names = self._names_of_pass()
        if name in names and not reuse:
            raise ValueError(
                f"Variable {name!r} already exists in this pass over the network: two layers have the same scope. "
                "Give them different ones, or share the variable on purpose by reuse=True."
            )
        dtype = tf.as_dtype(dtype or tf.float32).base_dtype
        shape = tf.TensorShape(shape)
        if name not in self.variables:
            self._check_may_create(name, reuse)
            with tf.init_scope():
                value = self._initial_value(name, shape, dtype, initializer)
            self.variables[name] = _create(
                name,
                value,
                trainable=trainable,
                constraint=constraint,
                synchronization=synchronization,
                aggregation=aggregation,
            )
            self._collections[name] = {}
        variable = self.variables[name]
        _check_same(name, variable, shape, dtype)
        wanted = [_Keys.GLOBAL_VARIABLES] if collections is None else list(collections)
        if trainable:
            wanted.append(_Keys.TRAINABLE_VARIABLES)
        self._collections[name].update(dict.fromkeys(wanted))
        _add_to_collections(wanted, variable)
        if regularizer is not None and name not in names:
            # The name scopes around are not in force here; `collected` goes by that of the replica.
            with tf.compat.v1.name_scope(f"{replica_name_scope()}{name}/Regularizer/"):
                loss = regularizer(variable)
            if loss is not None:
                tf.compat.v1.add_to_collection(_Keys.REGULARIZATION_LOSSES, loss)
        names.add(name)
        return variable

    @contextlib.contextmanager
    def in_use(self) -> Iterator[VariableStore]:
        """Makes `get_variable`, and so all layers, take their variables from this store within the block."""
        _separate_from_outer_graph(tf.compat.v1.get_default_graph())
        with tf.compat.v1.variable_scope(tf.compat.v1.get_variable_scope(), custom_getter=self):
            yield self

    def build(self, fn: Callable[..., Any], *specs: Any) -> None:
        """Traces a function once, for the variables that it asks for. Nothing of it is executed.

        Args:
            fn: Builds the network and whatever else has variables, e.g. the global step.
            *specs: A `tf.TensorSpec` for each argument of `fn`.
        """

        def traced(*args: Any) -> None:
            with self.in_use():
                fn(*args)

        # Not tf.function, which would trace twice.
        tf.compat.v1.wrap_function(traced, specs)

    def freeze(self) -> None:
        """Lets no name be created any more; an unknown one is an error from now on."""
        self.frozen = True

    @property
    def trainable_variables(self) -> dict[str, Any]:
        """The variables that a layer asked for as trainable, by name, in the order of creation."""
        return self.in_collection(_Keys.TRAINABLE_VARIABLES)

    @property
    def model_variables(self) -> dict[str, Any]:
        """The variables of the model itself, by name, in the order of creation."""
        return self.in_collection(_Keys.MODEL_VARIABLES)

    def in_collection(self, collection: str) -> dict[str, Any]:
        """Returns the variables that go into a collection, by name, in the order of creation."""
        return {name: var for name, var in self.variables.items() if collection in self._collections[name]}

    def _names_of_pass(self) -> set[str]:
        key = current_pass() or tf.compat.v1.get_default_graph()
        return self._passes.names.setdefault(key, set())

    def _check_may_create(self, name: str, reuse: Any) -> None:
        near = difflib.get_close_matches(name, self.variables, n=1)
        hint = f" The nearest that it has is {near[0]!r}." if near else ""
        if self.frozen:
            raise ValueError(
                f"VariableStore: variable {name!r} was asked for after the store was frozen with "
                f"{len(self.variables)} variables.{hint} Ask for it while the model is built, before freeze()."
            )
        if one_of_several_replicas():
            raise RuntimeError(
                f"VariableStore: variable {name!r} was first asked for inside Strategy.run. Build the network once "
                "under strategy.scope() before, e.g. by VariableStore.build."
            )
        if reuse is True:
            raise ValueError(f"Variable {name!r} does not exist, but its scope has reuse=True.{hint}")

    def _initial_value(self, name: str, shape: tf.TensorShape, dtype: tf.DType, initializer: Any) -> np.ndarray:
        if initializer is None:
            initializer = _default_initializer(dtype)
        elif inspect.isclass(initializer):
            initializer = initializer()
        # A graph of its own, with a seed of its own: so any initializer is a function of seed and name, those that
        # draw from TensorFlow's global generators too. 31 bits are what the seed of a graph can hold.
        digest = hashlib.sha256(f"{self._seed}/{name}".encode()).digest()
        with tf.Graph().as_default() as graph, tf.device("/cpu:0"):
            tf.compat.v1.set_random_seed(int.from_bytes(digest[:4], "little") >> 1)
            if callable(initializer):
                if not shape.is_fully_defined():
                    raise ValueError(f"The shape of a new variable must be known, but {name!r} has {shape}.")
                tensor = tf.convert_to_tensor(initializer(shape.as_list(), dtype=dtype), dtype)
            else:
                tensor = tf.convert_to_tensor(_concrete(name, initializer), dtype)
            value = tf.get_static_value(tensor)
            if value is None:
                config = tf.compat.v1.ConfigProto(device_count={"GPU": 0})
                with tf.compat.v1.Session(graph=graph, config=config) as session:
                    value = session.run(tensor)
        if not shape.is_compatible_with(value.shape):
            raise ValueError(
                f"The initial value of {name!r} has shape {list(value.shape)}, but its layer wants {shape}."
            )
        return value


def _create(name: str, value: np.ndarray, **kwargs: Any) -> Any:
    # init_scope leads out of the trace and of its strategy, so the strategy is entered again there.
    strategy = tf.distribute.get_strategy() if tf.distribute.has_strategy() else None
    with (
        tf.init_scope(),
        strategy.scope() if strategy else contextlib.nullcontext(),
        tf.compat.v1.name_scope(None),
    ):
        return tf.Variable(value, name=name, **kwargs)


def _default_initializer(dtype: tf.DType) -> Any:
    # What tf.compat.v1.get_variable does without an initializer.
    if dtype.is_floating:
        return tf.compat.v1.glorot_uniform_initializer()
    return tf.compat.v1.zeros_initializer()


def _concrete(name: str, value: Any) -> Any:
    if tf.is_symbolic_tensor(value):
        static = tf.get_static_value(value)
        if static is None:
            raise ValueError(
                f"The initial value of {name!r} is computed in the graph being traced, but the variable is created "
                "outside of it. Pass an initializer function, or an array."
            )
        return static
    return value.numpy() if tf.is_tensor(value) else value


def _check_same(name: str, variable: Any, shape: tf.TensorShape, dtype: tf.DType) -> None:
    if not shape.is_compatible_with(variable.shape):
        raise ValueError(
            f"Variable {name!r} has shape {variable.shape.as_list()}, but a layer now wants {shape.as_list()}. "
            "Traces that share variables must build the network with the same sizes."
        )
    if dtype != variable.dtype.base_dtype:
        raise ValueError(
            f"Variable {name!r} has dtype {variable.dtype.base_dtype.name}, but a layer now wants {dtype.name}."
        )


def _add_to_collections(collections: Sequence[str], variable: Any) -> None:
    graph = tf.compat.v1.get_default_graph()
    _separate_from_outer_graph(graph)
    for name in dict.fromkeys(collections):
        collection = graph.get_collection_ref(name)
        # Replicas share the graph's collections, where each variable belongs once.
        if not any(item is variable for item in collection):
            collection.append(variable)


def _separate_from_outer_graph(graph: tf.Graph) -> None:
    """Gives the graph of a function collections of variables of its own.

    At first they are the very lists of the graph around it, in the end of the program's default graph: variables
    would pile up there for good, and a model would find those of all models traced before.
    """
    # Not the default graph that tf.init_scope leads to: that is another one in each thread, and a replica is a thread.
    outer = graph
    while outer.building_function:
        outer = outer.outer_graph
    if outer is graph:
        return
    for name in (_Keys.GLOBAL_VARIABLES, _Keys.TRAINABLE_VARIABLES, _Keys.LOCAL_VARIABLES):
        if graph.get_collection_ref(name) is outer.get_collection_ref(name):
            # Forgets the list, but leaves it as it is.
            graph.clear_collection(name)
