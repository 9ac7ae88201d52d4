"""The two steps of TF-Slim's and TensorFlow's tools, each from flags to a file: a graph, and its frozen form.

They know nothing of runs: a network by its name and a checkpoint of whoever made it are enough.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import tensorflow as tf
from google.protobuf import text_format  # type: ignore[import-untyped]  # TensorFlow brings it, without types.

from slimexp import nets
from slimexp.errors import UserError
from slimexp.evaluation.tables import replace_file
from slimexp.export.freezing import find_outputs, freeze, read_graph, variables_needed
from slimexp.export.graphs import inference_graph
from slimexp.training.averages import sources_of
from slimexp.training.checkpoint_file import CheckpointFile
from slimexp.training.classifier import Classifier
from slimexp.validation import nearest

__all__ = ["DATASETS", "MODELS", "export_inference_graph", "freeze_graph"]

# The networks by TF-Slim's names.
MODELS: dict[str, Callable[..., Any]] = {
    name: getattr(nets, name) for name in nets.__all__ if hasattr(getattr(nets, name), "default_image_size")
}
# The classes of TF-Slim's datasets; ImageNet's have the background as class 0.
DATASETS = {"cifar10": 10, "flowers": 5, "imagenet": 1001, "mnist": 10}


def export_inference_graph(
    model_name: str,
    output_file: str,
    *,
    num_classes: int | None = None,
    dataset_name: str = "imagenet",
    labels_offset: int = 0,
    image_size: int | None = None,
    batch_size: int | None = None,
    is_training: bool = False,
    as_text: bool = False,
) -> list[str]:
    """Writes a network's graph, without weights, as a GraphDef whose input is the node `input`.

    Args:
        model_name: One of `MODELS`.
        output_file: Where to.
        num_classes: The number of logits; None: that of the dataset, less `labels_offset`.
        dataset_name: One of `DATASETS`.
        labels_offset: The classes at the beginning that the network leaves out: 1 for VGG and ResNet v1 on ImageNet.
        image_size: The images' side in pixels; None: the network's own.
        batch_size: The images in a batch; None leaves that open.
        is_training: Whether dropout is on and batch norm takes the batch's moments.
        as_text: Whether to write text instead of a serialized message.

    Returns:
        The names of the output nodes: logits, and probabilities where the network makes them.

    Raises:
        UserError: For a name that is unknown, a number out of range or a file that cannot be written.
    """
    network = _choice("--model_name", model_name, MODELS)
    if num_classes is None:
        num_classes = _choice("--dataset_name", dataset_name, DATASETS) - labels_offset
        if labels_offset < 0 or num_classes < 1:
            raise UserError(f"--labels_offset={labels_offset}: {dataset_name} has {DATASETS[dataset_name]} classes.")
    for flag, number in (("num_classes", num_classes), ("batch_size", batch_size)):
        if number is not None and number < 1:
            raise UserError(f"--{flag}={number}: must be 1 or more.")
    size = network.default_image_size if image_size is None else image_size
    least = network.min_image_size
    if size < least:
        raise UserError(f"--image_size={size}: {model_name} needs {least} pixels or more.")
    classifier = Classifier(network, num_classes=num_classes, image_size=size)
    try:
        graph = inference_graph(
            lambda images: classifier.trace(images, is_training=is_training), image_size=size, batch_size=batch_size
        )
    except ValueError as error:
        raise UserError(f"--model_name={model_name} --image_size={size}: {error}") from error
    _write(output_file, graph.definition, as_text=as_text, key="--output_file")
    return [graph.logits, *([graph.scores] if graph.scores else [])]


def freeze_graph(
    input_graph: str,
    input_checkpoint: str,
    output_graph: str,
    *,
    output_node_names: Sequence[str] = (),
    input_binary: bool = False,
    clear_devices: bool = True,
    use_averages: str = "false",
) -> tuple[list[str], int]:
    """Writes a graph with the values of a checkpoint in the place of its variables.

    Args:
        input_graph: A GraphDef's file.
        input_checkpoint: A checkpoint, V1 or V2, or a folder for its latest.
        output_graph: Where to.
        output_node_names: What is wanted of the graph; empty: its outputs are found.
        input_binary: Whether the graph is a serialized message, and not text.
        clear_devices: Whether to leave open where nodes are to run.
        use_averages: Whether to take the moving averages of the weights: `true`, `false`, or `auto` where there are.

    Returns:
        The names of the output nodes, and the number of variables that became constants.

    Raises:
        UserError: If a file cannot be read or written, an output is unknown, or a variable has no value.
    """
    definition = read_graph(input_graph, binary=input_binary)
    outputs = [name.removesuffix(":0") for name in output_node_names] or find_outputs(definition)
    if not outputs:
        raise UserError(f"--input_graph={input_graph}: no output was found; name it with --output_node_names.")
    checkpoint = CheckpointFile(input_checkpoint, key="--input_checkpoint")
    sources = sources_of(
        checkpoint.shapes(), use_averages, key="--use_averages", origin=f"the checkpoint {checkpoint.prefix}"
    )
    # A graph may ask for what counts as state of a training too, such as the step.
    sources = {**{name: name for name in checkpoint.variables}, **sources}

    def values(names: Sequence[str]) -> Iterable[tuple[str, Any]]:
        wanted = {sources[name]: name for name in names}
        return ((wanted[source], value) for source, value in checkpoint.read(wanted))

    frozen = freeze(
        definition,
        outputs,
        values,
        available=sources,
        origin=f"--input_checkpoint={input_checkpoint}",
        clear_devices=clear_devices,
    )
    _write(output_graph, frozen, as_text=False, key="--output_graph")
    return outputs, len(variables_needed(definition, outputs))


def _choice(flag: str, name: str, choices: dict[str, Any]) -> Any:
    if name not in choices:
        raise UserError(
            f"{flag}={name}: there is no such one; the nearest is {nearest(name, choices)}, of {', '.join(choices)}."
        )
    return choices[name]


def _write(path: str, definition: Any, *, as_text: bool, key: str) -> None:
    def write(temporary: Path) -> None:
        if as_text:
            temporary.write_text(text_format.MessageToString(definition), encoding="utf-8")
        else:
            temporary.write_bytes(definition.SerializeToString())

    try:
        if os.path.isdir(path):
            raise UserError(f"{key}={path}: is a folder; name a file.")
        replace_file(path, write)
    except OSError as error:
        raise UserError(f"{key}={path}: cannot be written ({error.strerror or error}).") from error
    except ValueError as error:
        if isinstance(error, UserError):
            raise
        limit = tf.compat.v1.GraphDef.__name__
        raise UserError(f"{key}={path}: a {limit} cannot be larger than 2 GiB: {error}.") from error
