"""Mixed precision (Micikevicius et al., arXiv 1710.03740): layers that compute in half the bits of their variables."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator
from typing import Any

import tensorflow as tf

__all__ = ["HALF_TYPES", "half_variables", "missing_kernel", "slow_note", "to_float32"]

HALF_TYPES = {"bfloat16": tf.bfloat16, "float16": tf.float16}

# TensorFlow's words for an op that no device has in the type that it is asked for in.
_NO_KERNEL = re.compile(r"No OpKernel was registered to support Op '(\w+)' used by \{\{node ([^}]*)\}\}")

# What a processor has to have to multiply in a type faster than in float32. By the flags that Linux names.
_CPU_FLAGS = {"bfloat16": ("amx_bf16", "avx512_bf16"), "float16": ("amx_fp16", "avx512_fp16")}
# By compute capability: of tensor cores for float16 (Volta), and for bfloat16 (Ampere).
_GPU_CAPABILITY = {"bfloat16": (8, 0), "float16": (7, 0)}


@contextlib.contextmanager
def half_variables(dtype: tf.DType) -> Iterator[None]:
    """Lets layers within the block have casts of float32 variables where they ask for variables of a half type.

    Layers take the type of their variables from their inputs. The variables themselves, which regularizers, collections
    and optimizers see, are float32; batch norm asks for float32 itself. What is asked for without a type comes in the
    half type, too.

    Args:
        dtype: bfloat16 or float16.
    """

    def getter(getter: Callable[..., Any], name: str, *args: Any, dtype: Any = None, **kwargs: Any) -> Any:
        if dtype is None or tf.as_dtype(dtype).base_dtype != half:
            return getter(name, *args, dtype=dtype, **kwargs)
        return tf.cast(getter(name, *args, dtype=tf.float32, **kwargs), half)

    half = dtype
    scope = tf.compat.v1.get_variable_scope()
    with tf.compat.v1.variable_scope(scope, dtype=half, custom_getter=getter):
        yield


def to_float32(value: Any) -> Any:
    """Returns a tensor of a half type as float32, and anything else as it is."""
    return tf.cast(value, tf.float32) if tf.is_tensor(value) and value.dtype in HALF_TYPES.values() else value


def missing_kernel(error: tf.errors.OpError) -> tuple[str, str] | None:
    """Returns the op that no device here can compute and the node that asks for it, if that is the error; or None."""
    found = _NO_KERNEL.search(error.message)
    return (found.group(1), found.group(2)) if found else None


def slow_note(precision: str) -> str | None:
    """Says that the device has nothing to compute in a half type with, where that is known; else None.

    Args:
        precision: `float32`, `bfloat16` or `float16`.
    """
    if precision not in HALF_TYPES:
        return None
    gpus = tf.config.list_physical_devices("GPU")
    if gpus:
        details = tf.config.experimental.get_device_details(gpus[0])
        capability = details.get("compute_capability")
        least = _GPU_CAPABILITY[precision]
        if capability is None or capability >= least:
            return None
        lacks = f"{details.get('device_name', 'the GPU')} has no tensor cores for it"
    else:
        flags = _cpu_flags()
        if not flags or flags & set(_CPU_FLAGS[precision]):
            return None
        lacks = f"this CPU has no instructions for it ({' or '.join(_CPU_FLAGS[precision])})"
    return f"trainer.precision={precision}: {lacks}; float32 is most likely faster here."


def _cpu_flags() -> set[str]:
    """Returns what the processor can do, in Linux's words; nothing where it is not known."""
    with contextlib.suppress(OSError), open("/proc/cpuinfo", encoding="utf-8") as lines:
        for line in lines:
            if line.startswith("flags"):
                return set(line.partition(":")[2].split())
    return set()
