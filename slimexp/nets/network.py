"""What every network function carries: its image sizes, its arg scope, the scopes of its heads."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol, cast

import tensorflow as tf

from slimexp.slim.static_shapes import static_sizes

__all__ = ["Network", "check_images", "network", "reduced_kernel_size", "squeezed"]


class Network(Protocol):
    """A function from images to logits and end points, with what a trainer needs to know about it.

    Attributes:
        default_image_size: The side of the square images that it was designed for, in pixels.
        min_image_size: The side of the smallest square images that it can be trained on, in pixels.
        arg_scope: Returns the arg scope it is built in; takes `weight_decay` and, where it applies,
            `batch_norm_decay`.
        head_scopes: The scopes of the layers whose size is the number of classes, auxiliary heads included, under the
            network's default scope.
    """

    __name__: str
    default_image_size: int
    min_image_size: int
    arg_scope: Callable[..., Any]
    head_scopes: tuple[str, ...]

    def __call__(self, *args: Any, **kwargs: Any) -> tuple[Any, dict[str, Any]]: ...


def network(
    *, default_image_size: int, min_image_size: int, arg_scope: Callable[..., Any], head_scopes: tuple[str, ...]
) -> Callable[[Callable[..., tuple[Any, dict[str, Any]]]], Network]:
    """Returns a decorator that makes a function a `Network`; the arguments are its attributes."""

    def decorate(function: Callable[..., tuple[Any, dict[str, Any]]]) -> Network:
        net = cast(Network, function)
        net.default_image_size = default_image_size
        net.min_image_size = min_image_size
        net.arg_scope = arg_scope
        net.head_scopes = head_scopes
        return net

    return decorate


def check_images(net: Network, images: Any) -> None:
    """Checks that images are of rank 4 and, as far as it is known, large enough for a network.

    Raises:
        ValueError: If they are not.
    """
    images = tf.convert_to_tensor(images)
    if images.shape.rank not in (None, 4):
        raise ValueError(
            f"{net.__name__}: the images must be [batch, height, width, channels], but their shape is {images.shape}."
        )
    if images.shape.rank is None:
        return
    _, height, width, _ = static_sizes(images)
    for side in (height, width):
        if side is not None and side < net.min_image_size:
            raise ValueError(
                f"{net.__name__}: images of {height} x {width} pixels are too small; each side needs at least "
                f"{net.min_image_size} pixels."
            )


def reduced_kernel_size(images: Any, kernel_size: Sequence[int]) -> list[int]:
    """Returns a kernel size, cut down to the feature map where that is known to be smaller.

    Args:
        images: The feature map, [batch, height, width, channels].
        kernel_size: The height and width of the kernel.
    """
    _, height, width, _ = static_sizes(images)
    return [
        wanted if size is None else min(size, wanted) for size, wanted in zip((height, width), kernel_size, strict=True)
    ]


def squeezed(net_name: str, logits: Any, images: Any, name: str) -> Any:
    """Returns logits without their spatial dimensions: [batch, 1, 1, classes] -> [batch, classes].

    Raises:
        ValueError: If the images were so large that the logits are a map.
    """
    _, height, width, _ = static_sizes(logits)
    if height not in (None, 1) or width not in (None, 1):
        _, image_height, image_width, _ = static_sizes(images)
        raise ValueError(
            f"{net_name}: images of {image_height} x {image_width} pixels give a map of {height} x {width} "
            "logits, which cannot be squeezed. Pass global_pool=True for one vector an image, or "
            "spatial_squeeze=False for the map."
        )
    return tf.squeeze(logits, [1, 2], name=name)
