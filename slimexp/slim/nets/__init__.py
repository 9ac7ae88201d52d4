"""The networks as TF-Slim itself carried them, for its scripts: `slim.nets.vgg.vgg_16`.

They are those of `slimexp.nets`, which has the signatures of the models repository's `nets` folder. Where the two
differ, these keep to the library: residual networks return logits [batch, 1, 1, num_classes], and the arg scopes of the
Inception networks put moving averages into a collection. `slim` loads this package when it is first asked for
`slim.nets`.
"""

from __future__ import annotations

from slimexp.slim.nets import (
    alexnet,
    cifarnet,
    inception,
    inception_v1,
    inception_v2,
    inception_v3,
    lenet,
    overfeat,
    resnet_utils,
    resnet_v1,
    resnet_v2,
    vgg,
)

__all__ = [
    "alexnet",
    "cifarnet",
    "inception",
    "inception_v1",
    "inception_v2",
    "inception_v3",
    "lenet",
    "overfeat",
    "resnet_utils",
    "resnet_v1",
    "resnet_v2",
    "vgg",
]
