"""What all layers share: their inputs, variables, normalizers, and the alias of their output."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import tensorflow as tf

from slimexp.slim import utils
from slimexp.slim.static_shapes import static_size, static_sizes
from slimexp.slim.variables import model_variable

__all__ = [
    "Activation",
    "OutputsCollections",
    "Regularizer",
    "VariablesCollections",
    "as_floating",
    "channels_first",
    "check_names",
    "finish_layer",
    "known_rank",
    "layer_variable",
    "n_positive",
    "normal_padding",
    "num_channels",
    "scoped_alias",
]

Activation = Callable[[Any], Any]
Regularizer = Callable[[Any], Any]
VariablesCollections = Mapping[str, Sequence[str]] | Sequence[str] | None
OutputsCollections = str | Sequence[str] | None


def as_floating(layer: str, inputs: Any) -> Any:
    """Returns the inputs as a tensor.

    Raises:
        TypeError: If they are not of a floating point type.
    """
    inputs = tf.convert_to_tensor(inputs)
    if not inputs.dtype.is_floating:
        raise TypeError(
            f"{layer}: the inputs are of a non-floating point type, {inputs.dtype.name}. Convert them, e.g. by "
            "tf.image.convert_image_dtype."
        )
    return inputs


def n_positive(layer: str, name: str, value: Any, n: int) -> list[int]:
    """Returns one value or n of them as a list of n integers of 1 or more.

    Raises:
        ValueError: If their number is neither 1 nor n, or one is unknown or less than 1.
    """
    values = [value] if isinstance(value, int) or not hasattr(value, "__len__") else list(value)
    if len(values) not in (1, n):
        raise ValueError(f"{layer}: {name}={value!r} must be one integer or {n}.")
    integers = [size for size in map(static_size, values) if size is not None]
    if len(integers) < len(values):
        raise ValueError(f"{layer}: {name}={value!r} must be known while the graph is built.")
    if min(integers) < 1:
        raise ValueError(f"{layer}: {name}={value!r} must be 1 or more.")
    return integers if len(integers) == n else integers * n


def known_rank(layer: str, inputs: Any, at_least: int, at_most: int | None = None) -> int:
    """Returns the rank of the inputs.

    Raises:
        ValueError: If it is undefined or out of range.
    """
    rank = inputs.shape.rank
    if at_most is None:
        wanted = f"{at_least} or more"
    else:
        wanted = str(at_least) if at_least == at_most else f"{at_least}..{at_most}"
    if rank is None:
        raise ValueError(f"{layer}: the inputs have an undefined rank, but it must be {wanted}.")
    if rank < at_least or (at_most is not None and rank > at_most):
        raise ValueError(f"{layer}: the inputs must have rank {wanted}, not shape {inputs.shape}.")
    return rank


def num_channels(layer: str, inputs: Any, axis: int) -> int:
    """Returns the size of the inputs' channels dimension, which is `axis`.

    Raises:
        ValueError: If it is undefined.
    """
    size = static_sizes(inputs)[axis]
    if size is None:
        raise ValueError(f"{layer}: the inputs have an undefined channels dimension: their shape is {inputs.shape}.")
    return size


def check_names(layer: str, argument: str, values: Mapping[str, Any] | None, known: Sequence[str]) -> None:
    """Raises ValueError if a dictionary has keys that the layer knows nothing of."""
    unknown = sorted(set(values or ()) - set(known))
    if unknown:
        raise ValueError(f"{layer}: {argument} has {unknown}, but there is only {', '.join(known)}.")


def normal_padding(layer: str, padding: str) -> str:
    """Returns `SAME` or `VALID`, given in either case.

    Raises:
        ValueError: If it is neither.
    """
    if not isinstance(padding, str) or padding.upper() not in ("SAME", "VALID"):
        raise ValueError(f"{layer}: padding={padding!r} must be SAME or VALID.")
    return padding.upper()


def channels_first(layer: str, data_format: str | None, n: int) -> bool:
    """Tells whether the channels come before the n spatial dimensions.

    Raises:
        ValueError: If the data format is not one for n spatial dimensions.
    """
    spatial = {1: "W", 2: "HW", 3: "DHW"}[n]
    if data_format is None or data_format == f"N{spatial}C":
        return False
    if data_format == f"NC{spatial}":
        return True
    raise ValueError(f"{layer}: data_format={data_format!r} must be N{spatial}C or NC{spatial}.")


def layer_variable(
    name: str,
    shape: Sequence[int],
    dtype: tf.DType,
    initializer: Any,
    regularizer: Regularizer | None,
    trainable: bool,
    variables_collections: VariablesCollections,
    **kwargs: Any,
) -> Any:
    """Gets or creates one of a layer's variables in the current variable scope.

    Args:
        name: Its name within the layer, e.g. `weights`.
        shape: Its shape.
        dtype: Its type.
        initializer: Its initializer.
        regularizer: Its regularizer, or None.
        trainable: Whether it is trained.
        variables_collections: Further collections for all of the layer's variables, or a dictionary by name.
        **kwargs: As in `model_variable`.
    """
    return model_variable(
        name,
        shape=shape,
        dtype=dtype,
        initializer=initializer,
        regularizer=regularizer,
        trainable=trainable,
        collections=utils.get_variable_collections(variables_collections, name),
        **kwargs,
    )


def finish_layer(
    outputs: Any,
    alias: str,
    *,
    add_bias: Callable[[Any], Any] | None,
    normalizer_fn: Callable[..., Any] | None,
    normalizer_params: Mapping[str, Any] | None,
    activation_fn: Activation | None,
    outputs_collections: OutputsCollections,
) -> Any:
    """Applies the normalizer (or else the bias) and the activation, and collects the output."""
    if normalizer_fn is not None:
        outputs = normalizer_fn(outputs, **(normalizer_params or {}))
    elif add_bias is not None:
        outputs = add_bias(outputs)
    if activation_fn is not None:
        outputs = activation_fn(outputs)
    return utils.collect_named_outputs(outputs_collections, alias, outputs)


def scoped_alias(name_scope: str) -> str:
    """Returns the alias of a layer without variables: the variable scope's name and the layer's own.

    A layer that has no variables opens a name scope only. In graphs with replicas or a second copy of the network
    that scope begins otherwise than the variable scope by which the layers around it are called.
    """
    variable_scope = tf.compat.v1.get_variable_scope().name
    layer = name_scope.removesuffix("/").rpartition("/")[2]
    return f"{variable_scope}/{layer}" if variable_scope else layer
