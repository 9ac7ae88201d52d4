#!/usr/bin/env python3
"""Writes the graph of a network for inference, without weights; scripts/freeze_graph.py puts those in.

    python scripts/export_inference_graph.py --model_name=inception_v3 --output_file=inception_v3.pb
    python scripts/export_inference_graph.py --model_name=vgg_16 --labels_offset=1 --output_file=vgg_16.pb

The flags are TF-Slim's, and so are the names of the nodes. For a model of a run there is job=export, which needs
no names and checks what it made.
"""

from __future__ import annotations

import _venv  # isort: skip  # noqa: F401  # First: it may go on with another interpreter.
import shlex
from collections.abc import Sequence
from pathlib import Path

from slimexp.export.flags import FlagParser, quiet_start, run_script
from slimexp.shown import shown_path, shown_python


def main(argv: Sequence[str]) -> None:
    """Writes the graph that the flags ask for, and says what its nodes are called."""
    parser = FlagParser("Writes the graph of a network for inference, without weights.")
    parser.flag("model_name", "the network by TF-Slim's name (inception_v3)", default="inception_v3")
    parser.flag("output_file", "where to write the GraphDef", required=True)
    parser.flag("num_classes", "the number of logits; by default that of the dataset", type=int)
    parser.flag("dataset_name", "cifar10, flowers, imagenet or mnist (imagenet)", default="imagenet")
    parser.flag("labels_offset", "classes at the beginning that are left out (0)", type=int, default=0)
    parser.flag("image_size", "the images' side; by default the network's own", type=int)
    parser.flag("batch_size", "images in a batch; by default that is left open", type=int)
    parser.switch("is_training", "the graph for training: dropout on, batch norm by the batch")
    parser.switch("write_text_graphdef", "write text instead of a serialized message")
    parser.needless("dataset_dir", "alsologtostderr", "logtostderr")
    flags = parser.parse(argv)

    with quiet_start():
        from slimexp.export.two_steps import export_inference_graph  # Takes seconds to import.

    outputs = export_inference_graph(
        flags.model_name,
        flags.output_file,
        num_classes=flags.num_classes,
        dataset_name=flags.dataset_name,
        labels_offset=flags.labels_offset,
        image_size=flags.image_size,
        batch_size=flags.batch_size,
        is_training=flags.is_training,
        as_text=flags.write_text_graphdef,
    )
    print(f"{flags.output_file}: input node input, output nodes {', '.join(outputs)}")
    binary = "" if flags.write_text_graphdef else " --input_binary=true"
    script = shown_path(Path(__file__).with_name("freeze_graph.py"))
    print(
        f"Next: {shown_python()} {script} --input_graph={shlex.quote(flags.output_file)}{binary} "
        f"--input_checkpoint=CHECKPOINT --output_graph=frozen.pb --output_node_names={outputs[-1]}"
    )


if __name__ == "__main__":
    run_script(main)
