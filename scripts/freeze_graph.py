#!/usr/bin/env python3
"""Puts the values of a checkpoint into a graph, as constants: one file that runs alone.

    python scripts/freeze_graph.py --input_graph=vgg_16.pb --input_binary=true --input_checkpoint=vgg_16.ckpt \
        --output_graph=frozen.pb --output_node_names=vgg_16/fc8/squeezed

The flags are those of TensorFlow's freeze_graph. Without --output_node_names the graph's outputs are found. Graphs and
checkpoints of TF-Slim (V1, V2) and of TensorFlow 1 are taken as well as our own.
"""

from __future__ import annotations

import _venv  # isort: skip  # noqa: F401  # First: it may go on with another interpreter.
from collections.abc import Sequence

from slimexp.export.flags import FlagParser, quiet_start, run_script


def main(argv: Sequence[str]) -> None:
    """Freezes the graph that the flags name, and says what its outputs are called."""
    parser = FlagParser("Puts the values of a checkpoint into a graph, as constants.")
    parser.flag("input_graph", "the GraphDef", required=True)
    parser.flag("input_checkpoint", "the checkpoint, or a folder for its latest", required=True)
    parser.flag("output_graph", "where to write the frozen GraphDef", required=True)
    parser.flag("output_node_names", "the nodes that are wanted, with commas; by default they are found", default="")
    parser.switch("input_binary", "the graph is a serialized message, and not text")
    parser.switch("clear_devices", "leave open where nodes are to run", default=True)
    parser.flag(
        "use_averages",
        "take the moving averages of the weights: true, false, or auto where there are any (false)",
        choices=("true", "false", "auto"),
        default="false",
    )
    parser.needless("input_saver", "restore_op_name", "filename_tensor_name", "initializer_nodes", "checkpoint_version")
    flags = parser.parse(argv)

    with quiet_start():
        from slimexp.export.two_steps import freeze_graph  # Takes seconds to import.

    outputs, count = freeze_graph(
        flags.input_graph,
        flags.input_checkpoint,
        flags.output_graph,
        output_node_names=[name.strip() for name in flags.output_node_names.split(",") if name.strip()],
        input_binary=flags.input_binary,
        clear_devices=flags.clear_devices,
        use_averages=flags.use_averages,
    )
    print(f"{flags.output_graph}: {count} variables became constants, output nodes {', '.join(outputs)}")


if __name__ == "__main__":
    run_script(main)
