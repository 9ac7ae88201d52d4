"""A network function with its arg scope and its variables, ready to be traced in training and in evaluation mode."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import tensorflow as tf

from slimexp import slim
from slimexp.errors import UserError
from slimexp.training.precision import half_variables, to_float32

__all__ = ["Classifier", "choose_image_size"]

Network = Callable[..., tuple[tf.Tensor, dict[str, tf.Tensor]]]


def choose_image_size(network: Network, asked_px: int | None, dataset_side_px: int | None) -> int:
    """Returns the side of the square images that the network gets.

    Args:
        network: Its attributes `default_image_size` and `min_image_size` count where it has them.
        asked_px: `model.image_size`; wins if given.
        dataset_side_px: The side of the dataset's images if they are all small squares.

    Returns:
        What was asked for; else the network's default, lowered to the dataset's size but not below the least.

    Raises:
        UserError: If neither the network nor the configuration says, or the size asked for is too small.
    """
    least = getattr(network, "min_image_size", 1)
    default = getattr(network, "default_image_size", None)
    if asked_px is not None:
        if asked_px < least:
            raise UserError(
                f"model.image_size={asked_px}: {network.__name__} needs {least} pixels or more, "
                "or nothing is left of the image after its strides."
            )
        return asked_px
    if default is None and dataset_side_px is None:
        raise UserError(
            f"model.image_size=null: {network.__name__} does not say its own (an attribute `default_image_size`), "
            "so set model.image_size."
        )
    sizes = [size for size in (default, dataset_side_px) if size is not None]
    return max(min(sizes), least)


class Classifier:
    """A network `network(images, num_classes, is_training, ...) -> (logits, end_points)` and its variables.

    The variables are created once by `build`, outside of any trace; every later call finds the same ones.

    Args:
        network: A function of slim layers. Its attribute `arg_scope`, a function of `weight_decay` and perhaps
            `batch_norm_decay`, gives the layers' defaults; a function without one gets l2 regularisation alone.
        num_classes: The number of logits.
        image_size: The images' side in pixels.
        weight_decay: The strength of the l2 regularisation of all weights.
        batch_norm_decay: Of the moving averages; None is the network's own.
        network_args: Further keyword arguments, e.g. `dropout_keep_prob`.
        seed: Initial values are a function of it and of each variable's name.
    """

    def __init__(
        self,
        network: Network,
        *,
        num_classes: int,
        image_size: int,
        weight_decay: float = 0.0,
        batch_norm_decay: float | None = None,
        network_args: Mapping[str, Any] | None = None,
        seed: int = 0,
    ) -> None:
        self.network = network
        self.num_classes = num_classes
        self.image_size = image_size
        self.store = slim.VariableStore(seed)
        self._scope_args = {"weight_decay": weight_decay}
        if batch_norm_decay is not None:
            self._scope_args["batch_norm_decay"] = batch_norm_decay
        self._args = dict(network_args or {})
        self._check_arguments()

    def build(self) -> None:
        """Creates the variables under the current `tf.distribute` strategy.

        Raises:
            UserError: If the network does not return logits of shape [B, num_classes].
        """

        shapes = []

        def trace(images: tf.Tensor) -> None:
            # What is random here is never executed, but deterministic mode refuses it without a seed.
            with slim.stateless_randomness(seed=0, step=0):
                logits, _ = self._network(images, is_training=True)
            shapes.append(logits.shape)

        self.store.build(trace, tf.TensorSpec([None, self.image_size, self.image_size, 3], tf.float32))
        if shapes[0].rank != 2 or shapes[0][1] != self.num_classes:
            raise UserError(
                f"model.network._target_={_full_name(self.network)}: returns logits of shape {shapes[0]} for images of "
                f"{self.image_size} pixels, not [batch, {self.num_classes}]. A fully convolutional network gives one "
                "row an image with model.network.global_pool=true."
            )
        self.store.freeze()

    def __call__(
        self,
        images: tf.Tensor,
        *,
        is_training: bool,
        weights: Mapping[str, Any] | None = None,
        dtype: tf.DType = tf.float32,
    ) -> tuple[tf.Tensor, dict[str, tf.Tensor]]:
        """Returns logits, float32 [B, num_classes], and float32 end points for images, float32 [B, S, S, 3].

        Args:
            images: The images.
            is_training: Whether dropout is on and batch norm takes the batch's statistics.
            weights: Variables to take instead of the own ones, by their names.
            dtype: What the layers compute in; the variables are float32 whatever it is.

        Raises:
            UserError: If the network cannot be built in a half type.
        """
        with self.store.in_use(), _instead(weights or {}):
            if dtype == tf.float32:
                return self._network(images, is_training=is_training)
            with half_variables(dtype):
                try:
                    logits, end_points = self._network(tf.cast(images, dtype), is_training=is_training)
                except (TypeError, ValueError, tf.errors.InvalidArgumentError) as error:
                    raise UserError(_explain_half(self.network, dtype, error)) from error
            return to_float32(logits), {name: to_float32(value) for name, value in end_points.items()}

    def trace(self, images: tf.Tensor, *, is_training: bool) -> tuple[tf.Tensor, dict[str, tf.Tensor]]:
        """Builds the network with variables of the current graph's own, as a look at it needs."""
        return self._network(images, is_training=is_training)

    @property
    def head_scopes(self) -> tuple[str, ...]:
        """The scopes that the network declares as its heads, under the root scope that it is given; else none."""
        heads = tuple(getattr(self.network, "head_scopes", ()))
        root = self._args.get("scope")
        return heads if root is None else tuple(f"{root}/{head.partition('/')[2]}" for head in heads)

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Returns the shape of each variable by name, moving averages among them."""
        return {name: tuple(variable.shape) for name, variable in self.store.variables.items()}

    def num_parameters(self) -> int:
        """Returns the number of trainable values."""
        return sum(variable.shape.num_elements() for variable in self.store.trainable_variables.values())

    def _network(self, images: tf.Tensor, *, is_training: bool) -> tuple[tf.Tensor, dict[str, tf.Tensor]]:
        with self._arg_scope():
            output = self.network(images, num_classes=self.num_classes, is_training=is_training, **self._args)
        return output if isinstance(output, tuple) else (output, {})

    def _arg_scope(self) -> Any:
        arg_scope = getattr(self.network, "arg_scope", None)
        if arg_scope is not None:
            return slim.arg_scope(arg_scope(**self._scope_args))
        regularizer = slim.l2_regularizer(self._scope_args["weight_decay"])
        return slim.arg_scope([slim.conv2d, slim.fully_connected], weights_regularizer=regularizer)

    def _check_arguments(self) -> None:
        name = _full_name(self.network)
        for key in ("num_classes", "is_training"):
            if not _takes(self.network, key):
                raise UserError(f"model.network._target_={name}: the function takes no argument `{key}`.")
        for key in self._args:
            if not _takes(self.network, key):
                setting = f"model.{key}" if key == "dropout_keep_prob" else f"model.network.{key}"
                way_out = "leave it null" if key == "dropout_keep_prob" else "leave it out"
                raise UserError(f"{setting}={self._args[key]}: {name} takes no argument `{key}`; {way_out}.")
        arg_scope = getattr(self.network, "arg_scope", None)
        takes_decay = arg_scope is not None and _takes(arg_scope, "batch_norm_decay")
        if "batch_norm_decay" in self._scope_args and not takes_decay:
            raise UserError(f"model.batch_norm_decay={self._scope_args['batch_norm_decay']}: {name} has no batch norm.")


@contextlib.contextmanager
def _instead(weights: Mapping[str, Any]) -> Iterator[None]:
    """Lets layers have these variables in the place of those that they ask for."""

    def getter(getter: Callable[..., Any], name: str, *args: Any, **kwargs: Any) -> Any:
        variable = getter(name, *args, **kwargs)
        return weights.get(name, variable)

    with tf.compat.v1.variable_scope(tf.compat.v1.get_variable_scope(), custom_getter=getter if weights else None):
        yield


def _explain_half(network: Network, dtype: tf.DType, error: Exception) -> str:
    # It has been built in float32 before, so the type is what is wrong.
    line = next(iter(str(error).strip().splitlines()), type(error).__name__)
    return (
        f"trainer.precision={dtype.name}: {_full_name(network)} cannot be built in it: {line}\nGive what the network "
        "makes itself the type of the images (dtype=images.dtype, tf.cast), or train with trainer.precision=float32."
    )


def _takes(function: Callable[..., Any], argument: str) -> bool:
    parameters = inspect.signature(function).parameters
    return argument in parameters or any(p.kind is p.VAR_KEYWORD for p in parameters.values())


def _full_name(function: Callable[..., Any]) -> str:
    return f"{function.__module__}.{function.__qualname__}"
