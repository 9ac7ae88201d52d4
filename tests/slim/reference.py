"""Values measured on the original TF-Slim (networks, training trajectories), and what tests against them share."""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from slimexp import slim


def folder() -> Path:
    """Returns the folder of the values; skips the test where they are not at hand."""
    default = Path(__file__).resolve().parents[3] / "shared" / "reference"
    path = Path(os.environ.get("SLIMEXP_REFERENCE", default))
    if not path.is_dir():
        pytest.skip(f"no reference values in {path}; set SLIMEXP_REFERENCE to their folder")
    return path


def load(name: str) -> dict[str, Any]:
    """Returns one file of values."""
    return json.loads((folder() / f"{name}.json").read_text())


def logits(name: str) -> np.ndarray:
    """Returns the logits of a network."""
    return np.load(folder() / f"{name}.logits.npy")


def weight(name: str, shape: Sequence[int]) -> np.ndarray:
    """Returns the value of a variable, a function of its name and shape."""
    rng = np.random.RandomState(zlib.crc32(name.encode()))
    values: dict[str, Callable[[], np.ndarray]] = {
        "weights": lambda: rng.standard_normal(shape) * np.sqrt(2 / np.prod(shape[:-1])),
        "biases": lambda: rng.standard_normal(shape) * 0.05,
        "beta": lambda: rng.standard_normal(shape) * 0.05,
        "gamma": lambda: 1 + rng.standard_normal(shape) * 0.1,
        "moving_mean": lambda: rng.standard_normal(shape) * 0.1,
        "moving_variance": lambda: 1 + rng.random_sample(shape),
    }
    return values[name.rpartition("/")[2]]().astype(np.float32)


def inputs(shape: Sequence[int]) -> np.ndarray:
    """Returns the images of the networks."""
    return np.random.RandomState(zlib.crc32(b"inputs")).uniform(-1, 1, shape).astype(np.float32)


def training_batch(step: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns images, float32 [6, 12, 12, 3], and labels, int32 [6], of a training step."""
    images = np.random.RandomState(100 + step).uniform(-1, 1, [6, 12, 12, 3]).astype(np.float32)
    return images, np.random.RandomState(200 + step).randint(0, 5, [6]).astype(np.int32)


def training_net(images: Any, *, batch_norm: bool = True) -> Any:
    """Returns the logits of the small network of the trajectories."""
    norm = {}
    if batch_norm:
        norm = {
            "normalizer_fn": slim.batch_norm,
            "normalizer_params": {"decay": 0.9, "epsilon": 0.001, "scale": True},
        }
    with (
        slim.arg_scope([slim.conv2d, slim.fully_connected], weights_regularizer=slim.l2_regularizer(5e-3)),
        slim.arg_scope([slim.conv2d], **norm),
    ):
        net = slim.repeat(images, 2, slim.conv2d, 8, [3, 3], scope="conv1")
        net = slim.max_pool2d(net, [2, 2])
        net = slim.conv2d(net, 12, [3, 3], 2, scope="conv2")
        net = slim.flatten(net)
        net = slim.fully_connected(net, 16, scope="fc3")
        return slim.fully_connected(net, 5, activation_fn=None, scope="logits")


def optimizer(name: str) -> Any:
    """Returns the optimizer of a trajectory."""
    train = tf.compat.v1.train
    return {
        "sgd": lambda: train.GradientDescentOptimizer(0.05),
        "momentum": lambda: train.MomentumOptimizer(0.05, 0.9),
        "momentum_clip": lambda: train.MomentumOptimizer(0.05, 0.9),
        "rmsprop": lambda: train.RMSPropOptimizer(0.01, decay=0.9, momentum=0.9, epsilon=1.0),
        "adam": lambda: train.AdamOptimizer(0.003, 0.9, 0.999, epsilon=1.0),
    }[name]()


def two_replicas() -> Any:
    """Returns a strategy over the two halves of the CPU."""
    # Collectives are numbered from 100 on in every strategy, and a second strategy's then clash with the first one's.
    reduction = tf.distribute.ReductionToOneDevice()
    return tf.distribute.MirroredStrategy(["/cpu:0", "/cpu:1"], cross_device_ops=reduction)


OPTIMIZERS = ("sgd", "momentum", "rmsprop", "adam", "momentum_clip")


def clip_norm(name: str) -> float:
    """Returns the clip norm of a trajectory."""
    return 0.1 if name == "momentum_clip" else 0


def check_trajectory(name: str, losses: Sequence[float], values: dict[str, np.ndarray]) -> None:
    """Compares the losses of six steps and the variables after them."""
    expected = load("training")[name]
    np.testing.assert_allclose(losses, expected["losses"], rtol=1e-5)
    assert sorted(values) == sorted(expected["final_l2"])
    for variable, value in values.items():
        value = value.astype(np.float64)
        norm = expected["final_l2"][variable]
        np.testing.assert_allclose(np.sqrt(np.sum(value**2)), norm, rtol=1e-5, err_msg=variable)
        # A sum of values of either sign may be near zero: judge it by the size of what is summed.
        np.testing.assert_allclose(value.sum(), expected["final_sum"][variable], atol=1e-5 * norm + 1e-5)
