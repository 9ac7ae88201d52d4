"""Create variables in the collections where TF-Slim puts them, and find them again by scope, suffix or name."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from slimexp.slim.arg_scopes import add_arg_scope
from slimexp.slim.collecting import traced_for_eager_use

__all__ = [
    "VariableDeviceChooser",
    "add_model_variable",
    "filter_variables",
    "get_local_variables",
    "get_model_variables",
    "get_trainable_variables",
    "get_unique_variable",
    "get_variable_full_name",
    "get_variables",
    "get_variables_by_name",
    "get_variables_by_suffix",
    "get_variables_to_restore",
    "global_variable",
    "local_variable",
    "model_variable",
    "variable",
]

_Keys = tf.compat.v1.GraphKeys


@add_arg_scope
def variable(
    name: str,
    shape: Any = None,
    dtype: tf.DType | None = None,
    initializer: Any = None,
    regularizer: Callable[[Any], Any] | None = None,
    trainable: bool | None = True,
    collections: Sequence[str] | None = None,
    caching_device: Any = None,
    device: Any = None,
    partitioner: Any = None,
    custom_getter: Callable[..., Any] | None = None,
    use_resource: bool | None = None,
    synchronization: tf.VariableSynchronization = tf.VariableSynchronization.AUTO,
    aggregation: tf.VariableAggregation = tf.VariableAggregation.NONE,
) -> Any:
    """Gets the variable of that name in the current variable scope, or creates it.

    Args:
        name: Its name within the scope.
        shape: Its shape; may be None if `initializer` is a tensor or array.
        dtype: Its type; by default float32.
        initializer: A function of shape and dtype, or a tensor, or an array.
        regularizer: A function of the variable; what it returns goes into the collection of regularization losses.
        trainable: Put it into the collection of trainable variables.
        collections: The collections it goes into; by default that of the global variables.
        caching_device: A device, or a function that returns one, where reads are cached.
        device: A device for the variable, or a function of the operation that returns one.
        partitioner: A function that splits the variable into parts.
        custom_getter: Called in place of `tf.compat.v1.get_variable`, with the same arguments.
        use_resource: As in `tf.compat.v1.get_variable`.
        synchronization: When the copies of a variable that a strategy distributes are aggregated.
        aggregation: How they are.

    Returns:
        The variable.

    Raises:
        RuntimeError: If no graph is being built, or if it fails in a `tf.function` without a `VariableStore`.
    """
    if tf.executing_eagerly():
        raise RuntimeError(
            f"slim cannot create the variable {name!r} eagerly: each call of a layer would make a new one. Build the "
            "network inside `with tf.Graph().as_default():`, or inside a tf.function with a slim.VariableStore as "
            "custom getter of the enclosing variable scope."
        )
    unique_collections = list(dict.fromkeys([_Keys.GLOBAL_VARIABLES] if collections is None else collections))
    getter = tf.compat.v1.get_variable
    if custom_getter is not None:
        getter = functools.partial(custom_getter, reuse=tf.compat.v1.get_variable_scope().reuse)
    try:
        with tf.compat.v1.device(device or ""):
            return getter(
                name,
                shape=shape,
                dtype=dtype,
                initializer=initializer,
                regularizer=regularizer,
                trainable=trainable,
                collections=unique_collections,
                caching_device=caching_device,
                partitioner=partitioner,
                use_resource=use_resource,
                synchronization=synchronization,
                aggregation=aggregation,
            )
    except (AttributeError, ValueError) as error:
        own = custom_getter is not None or tf.compat.v1.get_variable_scope().custom_getter is not None
        if own or not traced_for_eager_use():
            raise
        # TensorFlow's words are of names that exist and of singletons; the cause is that nothing keeps the variable.
        raise RuntimeError(
            f"slim cannot get the variable {name!r} in this tf.function, which is traced more than once: {error} Keep "
            "the variables in a slim.VariableStore: make one outside, and build the network inside `with "
            "store.in_use():`."
        ) from error


@add_arg_scope
def model_variable(
    name: str,
    shape: Any = None,
    dtype: tf.DType = tf.float32,
    initializer: Any = None,
    regularizer: Callable[[Any], Any] | None = None,
    trainable: bool | None = True,
    collections: Sequence[str] | None = None,
    caching_device: Any = None,
    device: Any = None,
    partitioner: Any = None,
    custom_getter: Callable[..., Any] | None = None,
    use_resource: bool | None = None,
    synchronization: tf.VariableSynchronization = tf.VariableSynchronization.AUTO,
    aggregation: tf.VariableAggregation = tf.VariableAggregation.NONE,
) -> Any:
    """Gets or creates a variable that belongs to the model: one that inference needs, and a checkpoint holds.

    It goes into the collections of model variables and of global variables, and into `collections`. Arguments and
    result are those of `variable`.
    """
    return variable(
        name,
        shape=shape,
        dtype=dtype,
        initializer=initializer,
        regularizer=regularizer,
        trainable=trainable,
        collections=[*(collections or []), _Keys.GLOBAL_VARIABLES, _Keys.MODEL_VARIABLES],
        caching_device=caching_device,
        device=device,
        partitioner=partitioner,
        custom_getter=custom_getter,
        use_resource=use_resource,
        synchronization=synchronization,
        aggregation=aggregation,
    )


def local_variable(
    initial_value: Any, validate_shape: bool = True, name: str | None = None, use_resource: bool | None = None
) -> Any:
    """Creates a variable that is neither saved nor trained, in the collection of local variables.

    Args:
        initial_value: Its value at first: a tensor or what can be one.
        validate_shape: Fix its shape to that of `initial_value`.
        name: Its name.
        use_resource: As in `tf.compat.v1.Variable`.
    """
    return tf.compat.v1.Variable(
        initial_value,
        trainable=False,
        collections=[_Keys.LOCAL_VARIABLES],
        validate_shape=validate_shape,
        name=name,
        use_resource=use_resource,
    )


def global_variable(
    initial_value: Any, validate_shape: bool = True, name: str | None = None, use_resource: bool | None = None
) -> Any:
    """Creates a variable that is saved but not trained, in the collection of global variables.

    The arguments are those of `local_variable`.
    """
    return tf.compat.v1.Variable(
        initial_value,
        trainable=False,
        collections=[_Keys.GLOBAL_VARIABLES],
        validate_shape=validate_shape,
        name=name,
        use_resource=use_resource,
    )


def add_model_variable(var: Any) -> None:
    """Puts a variable into the collection of model variables unless it is there."""
    collection = tf.compat.v1.get_collection_ref(_Keys.MODEL_VARIABLES)
    # Variables compare element by element, so membership goes by identity.
    if not any(other is var for other in collection):
        collection.append(var)


def get_variables(scope: Any = None, suffix: str | None = None, collection: str = _Keys.GLOBAL_VARIABLES) -> list[Any]:
    """Returns the variables of a collection whose name begins with a scope and ends in a suffix.

    Args:
        scope: A regular expression matched at the beginning of the name, or a variable scope; None for all.
        suffix: The end of the name, without `:0`.
        collection: The name of the collection.
    """
    if isinstance(scope, tf.compat.v1.VariableScope):
        scope = scope.name
    if suffix is not None:
        scope = (scope or "") + ".*" + (suffix if ":" in suffix else suffix + ":")
    return list(tf.compat.v1.get_collection(collection, scope))


def get_model_variables(scope: Any = None, suffix: str | None = None) -> list[Any]:
    """Returns the model variables, filtered as in `get_variables`."""
    return get_variables(scope, suffix, _Keys.MODEL_VARIABLES)


def get_local_variables(scope: Any = None, suffix: str | None = None) -> list[Any]:
    """Returns the local variables, filtered as in `get_variables`."""
    return get_variables(scope, suffix, _Keys.LOCAL_VARIABLES)


def get_trainable_variables(scope: Any = None, suffix: str | None = None) -> list[Any]:
    """Returns the trainable variables, filtered as in `get_variables`."""
    return get_variables(scope, suffix, _Keys.TRAINABLE_VARIABLES)


def get_variables_by_suffix(suffix: str, scope: Any = None) -> list[Any]:
    """Returns the global variables whose name ends in `suffix`."""
    return get_variables(scope=scope, suffix=suffix)


def get_variables_by_name(given_name: str, scope: Any = None) -> list[Any]:
    """Returns the global variables whose last name component, or whole name, is `given_name`."""
    return get_variables(scope=scope, suffix=f"/{given_name}:|^{given_name}:")


def get_unique_variable(var_op_name: str) -> Any:
    """Returns the one global variable of that full name.

    Raises:
        ValueError: If there is none, or the name as a prefix fits several and none exactly.
    """
    candidates = get_variables(scope=re.escape(var_op_name))
    if not candidates:
        raise ValueError(f"There is no variable {var_op_name!r} in the collection of global variables.")
    exact = [var for var in candidates if _op_name(var) == var_op_name]
    if len(exact) == 1:
        return exact[0]
    names = ", ".join(_op_name(var) for var in candidates[:5])
    raise ValueError(f"{var_op_name!r} does not name one variable: it is the beginning of {names}. Give a full name.")


def get_variable_full_name(var: Any) -> str:
    """Returns the name under which a variable is saved: for a part of a partitioned one, that of the whole."""
    info = getattr(var, "_save_slice_info", None)
    return info.full_name if info else _op_name(var)


def get_variables_to_restore(include: Sequence[str] | None = None, exclude: Sequence[str] | None = None) -> list[Any]:
    """Returns the global variables to read from a checkpoint.

    Args:
        include: Scopes; a variable whose name begins with one of them is taken. None takes all.
        exclude: Scopes whose variables are left out again.

    Raises:
        TypeError: If either is not a list or tuple.
    """
    for name, scopes in (("include", include), ("exclude", exclude)):
        if scopes is not None and not isinstance(scopes, (list, tuple)):
            raise TypeError(f"{name} must be a list or tuple of scopes, not {scopes!r}.")
    excluded = {id(var) for scope in exclude or () for var in get_variables(scope)}
    candidates = get_variables() if include is None else [v for scope in include for v in get_variables(scope)]
    chosen = {id(var): var for var in candidates if id(var) not in excluded}
    return list(chosen.values())


def filter_variables(
    var_list: Sequence[Any],
    include_patterns: Sequence[str] | None = None,
    exclude_patterns: Sequence[str] | None = None,
    reg_search: bool = True,
) -> list[Any]:
    """Returns the variables whose name fits a pattern of the first list and none of the second.

    Args:
        var_list: The variables.
        include_patterns: Regular expressions; None takes every variable.
        exclude_patterns: Regular expressions; None leaves none out.
        reg_search: Find a pattern anywhere in the name; else only at its beginning.
    """
    find = re.search if reg_search else re.match

    def fits(var: Any, patterns: Sequence[str]) -> bool:
        return any(find(pattern, _op_name(var)) for pattern in patterns)

    kept = [var for var in var_list if include_patterns is None or fits(var, include_patterns)]
    return [var for var in kept if not fits(var, exclude_patterns or ())]


class VariableDeviceChooser:
    """Chooses a device for each variable: parameter servers in turn, or one device for all.

    Pass it as `device` of `variable`, most often through an `arg_scope`.

    Args:
        num_tasks: The number of parameter server tasks; 0 for a single machine.
        job_name: Their job.
        device_type: `CPU` or `GPU`.
        device_index: The device of that type.
        replica: The replica, or None.
    """

    def __init__(
        self,
        num_tasks: int = 0,
        job_name: str = "ps",
        device_type: str = "CPU",
        device_index: int = 0,
        replica: int | None = None,
    ) -> None:
        self._num_tasks = num_tasks
        self._job_name = job_name if num_tasks > 0 else None
        self._device_type = device_type
        self._device_index = device_index
        self._replica = replica
        self._next_task = 0

    def __call__(self, op: Any) -> str:
        """Returns the device for the next variable; any other operation only gets the one it asks for."""
        spec = tf.DeviceSpec(
            replica=self._replica,
            job=self._job_name,
            device_type=self._device_type,
            device_index=self._device_index,
        )
        if self._num_tasks > 0 and op.type in ("Variable", "VariableV2", "VarHandleOp"):
            spec = spec.replace(task=self._next_task)
            self._next_task = (self._next_task + 1) % self._num_tasks
        return spec.to_string()


def _op_name(var: Any) -> str:
    return var.name.split(":")[0]
