"""Runs TF-Slim's own test programs against slimexp.slim and says how many of them pass.

    pip download tf-slim==1.1.0 --no-deps -d /tmp/tfslim && unzip -q /tmp/tfslim/*.whl -d /tmp/tfslim
    python scripts/tf_slim_tests.py /tmp/tfslim                          # all, a table by test program
    python scripts/tf_slim_tests.py /tmp/tfslim --only layers/layers     # some: any part of the path
    python scripts/tf_slim_tests.py /tmp/tfslim --only ops -k Restore --failures
    python scripts/tf_slim_tests.py /tmp/tfslim --v1-behavior            # after tf.compat.v1.disable_v2_behavior()

The wheel of TF-Slim holds its `*_test.py` files. Each runs in a process of its own in which the name `tf_slim.<module>`
stands for the modules of ours that `ALIASES` lists: aliases only, none of TF-Slim's library is loaded. A name that we
lack is an AttributeError or ImportError in the test that wants it.
"""

from __future__ import annotations

import _venv  # isort: skip  # noqa: F401  # First: it may go on with another interpreter.

import argparse
import collections
import concurrent.futures
import fnmatch
import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
import traceback
import types
import unittest
from collections.abc import Iterator
from pathlib import Path
from typing import Any

# Module of TF-Slim -> the modules of ours, where its names are looked up in this order.
ALIASES: dict[str, tuple[str, ...]] = {
    "tf_slim": ("slimexp.slim",),
    "tf_slim.data": (),
    "tf_slim.data.data_decoder": ("slimexp.slim.data.data_decoder",),
    "tf_slim.data.data_provider": ("slimexp.slim.data.data_provider",),
    "tf_slim.data.dataset": ("slimexp.slim.data.dataset",),
    "tf_slim.data.dataset_data_provider": ("slimexp.slim.data.dataset_data_provider",),
    "tf_slim.data.parallel_reader": ("slimexp.slim.data.parallel_reader",),
    "tf_slim.data.prefetch_queue": ("slimexp.slim.data.prefetch_queue",),
    "tf_slim.data.tfexample_decoder": ("slimexp.slim.data.tfexample_decoder",),
    "tf_slim.evaluation": ("slimexp.slim.evaluation",),
    "tf_slim.layers": ("slimexp.slim.layers", "slimexp.slim"),
    "tf_slim.layers.initializers": ("slimexp.slim.initializers",),
    "tf_slim.layers.layers": ("slimexp.slim.layers",),
    "tf_slim.layers.normalization": ("slimexp.slim.layers",),
    "tf_slim.layers.optimizers": ("slimexp.slim.optimizers",),
    "tf_slim.layers.regularizers": ("slimexp.slim.regularizers",),
    "tf_slim.layers.rev_block_lib": ("slimexp.slim.layers.reversible",),
    "tf_slim.layers.sparse_ops": ("slimexp.slim.sparse_ops",),
    "tf_slim.layers.summaries": ("slimexp.slim.summarizers",),
    "tf_slim.layers.utils": ("slimexp.slim.utils",),
    "tf_slim.learning": ("slimexp.slim.learning",),
    "tf_slim.losses": ("slimexp.slim.losses",),
    "tf_slim.losses.loss_ops": ("slimexp.slim.losses",),
    "tf_slim.losses.metric_learning": ("slimexp.slim.metric_learning",),
    "tf_slim.metrics": ("slimexp.slim.metrics",),
    "tf_slim.metrics.classification": ("slimexp.slim.metrics",),
    "tf_slim.metrics.histogram_ops": ("slimexp.slim.metrics",),
    "tf_slim.metrics.metric_ops": ("slimexp.slim.metrics", "slimexp.slim.metrics.concat"),
    "tf_slim.model_analyzer": ("slimexp.slim.model_analyzer",),
    "tf_slim.nets": ("slimexp.slim.nets",),
    "tf_slim.nets.alexnet": ("slimexp.slim.nets.alexnet",),
    "tf_slim.nets.inception": ("slimexp.slim.nets.inception",),
    "tf_slim.nets.inception_v1": ("slimexp.slim.nets.inception_v1",),
    "tf_slim.nets.inception_v2": ("slimexp.slim.nets.inception_v2",),
    "tf_slim.nets.inception_v3": ("slimexp.slim.nets.inception_v3",),
    "tf_slim.nets.overfeat": ("slimexp.slim.nets.overfeat",),
    "tf_slim.nets.resnet_utils": ("slimexp.slim.nets.resnet_utils",),
    "tf_slim.nets.resnet_v1": ("slimexp.slim.nets.resnet_v1",),
    "tf_slim.nets.resnet_v2": ("slimexp.slim.nets.resnet_v2",),
    "tf_slim.nets.vgg": ("slimexp.slim.nets.vgg",),
    "tf_slim.ops": (),
    "tf_slim.ops.arg_scope": ("slimexp.slim.arg_scopes",),
    "tf_slim.ops.framework_ops": ("slimexp.slim.framework_ops",),
    "tf_slim.ops.variables": ("slimexp.slim.variables", "slimexp.slim.assignments", "slimexp.slim.global_step"),
    "tf_slim.queues": ("slimexp.slim.queues",),
    "tf_slim.summaries": ("slimexp.slim.summaries",),
    "tf_slim.training": (),
    "tf_slim.training.evaluation": ("slimexp.slim.train_eval",),
    "tf_slim.training.training": ("slimexp.slim.training",),
}

# Helpers of the tests that stand among them: loaded from TF-Slim's files.
HELPERS = ("tf_slim.data.test_utils",)

# What the tests themselves need on TensorFlow 2.21 and NumPy 2, and nothing about the library they test.
REWRITES: tuple[tuple[str, str], ...] = (
    # NumPy takes an array of one element for a number no more.
    ("int(2 * self._labels[i] +", "int(2 * self._labels[i, 0] +"),
    # Names that NumPy and TensorFlow have dropped.
    ("image.tostring()", "image.tobytes()"),
    ("control_flow_ops.case(", "tf.case("),
    # An argument that the debugger's hook lost.
    (", log_usage=False", ""),
)

_WORDING = "the same error, but the test wants TF-Slim's wording and our message is our own"
_NOT_PUBLIC = "not among the public names of TF-Slim"
_OP_NAME = "name of an operation, not of a variable: `weights`, `biases` where Keras has `kernel`, `bias`"

# Pattern of "<program>:<class>.<test>" -> why it is not expected to pass. The first that fits counts.
REASONS: dict[str, str] = {
    "layers/initializers_test:*_wrong_dtype": _WORDING,
    "layers/layers_test:*.testInvalidDataFormat": _WORDING,
    "layers/layers_test:ConvolutionTest.testCreateConvWithWD": _OP_NAME,
    "layers/layers_test:ConvolutionTest.testInvalidShape": _WORDING,
    "layers/layers_test:DropoutTest.testCreateDropout": "an operation in TensorFlow's own dropout has another name now",
    "layers/layers_test:FCTest.testCreateFCWith?D": _OP_NAME,
    "layers/layers_test:LegacyFullyConnectedTest.test_*_invalid_input": _WORDING,
    "layers/layers_test:PartialFlattenTest.*": f"_inner_flatten is {_NOT_PUBLIC}",
    "layers/layers_test:SeparableConv2dTest.testCreateConvWithWeightDecay": _OP_NAME,
    "layers/normalization_test:GroupNormTest.testAxisIsBad": _WORDING,
    "layers/normalization_test:GroupNormTest.testBadCommensurateGroup": _WORDING,
    "layers/normalization_test:GroupNormTest.testInvalidGroupSize": _WORDING,
    "layers/normalization_test:GroupNormTest.testParamsShapeNotFullyDefinedChannelsAxis": _WORDING,
    "layers/normalization_test:InstanceNormTest.testBadDataFormat": _WORDING,
    "layers/optimizers_test:OptimizersTest.testNoGlobalStepWithDecay": _WORDING,
    "layers/rev_block_lib_test:RecomputeTest.testWithIsRecomputeKwarg": "the test itself needs tf_keras",
    "layers/sparse_ops_test:*": f"sparse_ops is {_NOT_PUBLIC}",
    "losses/metric_learning_test:ClusterLossTest.*": "the loss of clusterings, by scikit-learn, is left out",
    "metrics/histogram_ops_test:Strict1dCumsumTest.*": "tests a private function of TF-Slim; ours is tf.cumsum",
    "ops/framework_ops_test:*": f"framework_ops is {_NOT_PUBLIC}",
    "ops/variables_test:AssignFromCheckpointFnTest.testNotFoundError": (
        "ours refuses a variable that the checkpoint lacks earlier, when the function is made, by a ValueError"
    ),
    "ops/variables_test:VariablesTest.testVariableWithReplicaDeviceSetter": (
        "the test wants `/cpu:0` in names of devices where TensorFlow's own setter has none now"
    ),
}


class _Alias(types.ModuleType):
    """A module of TF-Slim's name whose attributes are those of modules of ours."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.__path__: list[str] = []

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("__"):
            if f"{self.__name__}.{name}" in ALIASES:
                return importlib.import_module(f"{self.__name__}.{name}")
            for ours in ALIASES[self.__name__]:
                try:
                    module = importlib.import_module(ours)
                except ModuleNotFoundError as error:
                    if error.name != ours:
                        raise
                    continue
                if hasattr(module, name):
                    return getattr(module, name)
        places = ", ".join(ALIASES[self.__name__]) or "no module of ours"
        raise AttributeError(f"{self.__name__}.{name} is not in {places}")


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds the aliases and TF-Slim's test helpers."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def find_spec(self, fullname: str, path: Any, target: Any = None) -> Any:
        if fullname in HELPERS:
            file = self._root.joinpath(*fullname.split(".")).with_suffix(".py")
            return importlib.util.spec_from_file_location(fullname, file)
        if fullname in ALIASES:
            return importlib.machinery.ModuleSpec(fullname, self, is_package=True)
        return None

    def create_module(self, spec: Any) -> Any:
        return _Alias(spec.name)

    def exec_module(self, module: Any) -> None:
        pass


class _StandInFinder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds stand-ins for modules that are nowhere else, so it comes last."""

    def find_spec(self, fullname: str, path: Any, target: Any = None) -> Any:
        return importlib.machinery.ModuleSpec(fullname, self, is_package=True) if fullname in _STAND_INS else None

    def create_module(self, spec: Any) -> Any:
        return types.ModuleType(spec.name)

    def exec_module(self, module: Any) -> None:
        for name, value in _STAND_INS[module.__name__].items():
            setattr(module, name, value)


def _nottest(function: Any) -> Any:
    function.__test__ = False
    return function


# Modules that tests import and our requirements lack.
_STAND_INS: dict[str, dict[str, Any]] = {"nose": {}, "nose.tools": {"nottest": _nottest}}

# Names that tests look up where TensorFlow 1 had them -> where TensorFlow 2.21 has them.
_MOVED = {
    "tensorflow.python.ops.variables.VariableV1": "tensorflow.python.ops.variable_v1.VariableV1",
    **{
        f"tensorflow.python.ops.variable_scope.{name}": f"tensorflow.python.ops.resource_variables_toggle.{name}"
        for name in ("disable_resource_variables", "enable_resource_variables", "resource_variables_enabled")
    },
}


def _put_back_moved_names() -> None:
    for old, new in _MOVED.items():
        (old_module, _, old_name), (new_module, _, new_name) = old.rpartition("."), new.rpartition(".")
        setattr(importlib.import_module(old_module), old_name, getattr(importlib.import_module(new_module), new_name))


class _Result(unittest.TestResult):
    """Writes each outcome down at once, so that a crash loses only the test that crashed."""

    def __init__(self, report: Any) -> None:
        super().__init__()
        self._report = report
        self._seen: dict[Any, str] = {}

    def write(self, test: str, outcome: str, text: str = "") -> None:
        self._report.write(json.dumps({"test": test, "outcome": outcome, "text": text}) + "\n")
        self._report.flush()

    def _note(self, test: Any, outcome: str, text: str) -> None:
        # A test whose body and tearDown fail, or with several subtests, counts once.
        if test not in self._seen:
            self._seen[test] = outcome
            self.write(_test_name(test), outcome, text)

    def startTest(self, test: Any) -> None:  # noqa: N802
        super().startTest(test)
        self.write(_test_name(test), "started")

    def addSuccess(self, test: Any) -> None:  # noqa: N802
        self._note(test, "passed", "")

    def addFailure(self, test: Any, err: Any) -> None:  # noqa: N802
        self._note(test, "failed", "".join(traceback.format_exception(*err)))

    def addError(self, test: Any, err: Any) -> None:  # noqa: N802
        self._note(test, "error", "".join(traceback.format_exception(*err)))

    def addSkip(self, test: Any, reason: str) -> None:  # noqa: N802
        self._note(test, "skipped", reason)

    def addSubTest(self, test: Any, subtest: Any, err: Any) -> None:  # noqa: N802
        if err is not None:
            self.addFailure(test, err)


def _test_name(test: Any) -> str:
    return ".".join(test.id().split(".")[-2:]) if isinstance(test, unittest.TestCase) else str(test)


def _tests_in(suite: Any) -> Iterator[Any]:
    for item in suite:
        if isinstance(item, unittest.TestSuite):
            yield from _tests_in(item)
        else:
            yield item


def _restore_removed_names() -> None:
    """Puts back names that the tests use and TensorFlow and NumPy have removed since."""
    import numpy as np
    import tensorflow as tf
    from tensorflow.python.framework import ops

    ops.IndexedSlices = tf.IndexedSlices
    ops.Tensor = tf.Tensor
    np.__dict__.setdefault("product", np.prod)
    for name, value in {"bool": bool, "float": float, "int": int, "object": object, "str": str}.items():
        np.__dict__.setdefault(name, value)


def run_program(root: Path, program: str, pattern: str | None, report: Path, v1_behavior: bool) -> None:
    """Runs one test program in this process and writes its outcomes into a file, a JSON object a line."""
    if v1_behavior:
        import tensorflow as tf

        tf.compat.v1.disable_v2_behavior()
    sys.meta_path.insert(0, _Finder(root))
    sys.meta_path.append(_StandInFinder())
    name = "tf_slim." + program.replace("/", ".")
    with report.open("w") as file:
        result = _Result(file)
        try:
            from absl import flags

            flags.FLAGS.mark_as_parsed()
            _put_back_moved_names()
            importlib.import_module(name.rpartition(".")[0])
            spec = importlib.util.spec_from_file_location(name, root / "tf_slim" / f"{program}.py")
            assert spec is not None
            module = importlib.util.module_from_spec(spec)
            sys.modules[name] = module
            _restore_removed_names()
            source = (root / "tf_slim" / f"{program}.py").read_text()
            for old, new in REWRITES:
                source = source.replace(old, new)
            exec(compile(source, str(spec.origin), "exec"), module.__dict__)
            tests = list(_tests_in(unittest.defaultTestLoader.loadTestsFromModule(module)))
        except Exception:
            result.write("(import)", "error", traceback.format_exc())
            return
        # TensorFlow's TestCase brings a test that only skips.
        chosen = [test for test in tests if "test_session" not in _test_name(test)]
        chosen = [test for test in chosen if pattern is None or pattern in _test_name(test)]
        unittest.TestSuite(chosen).run(result)


def run_apart(
    root: Path, program: str, pattern: str | None, timeout_secs: int, v1_behavior: bool
) -> list[dict[str, str]]:
    """Runs one test program in a process of its own and returns its outcomes."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.jsonl"
        command = [sys.executable, __file__, str(root), "--program", program, "--report", str(report)]
        if pattern is not None:
            command += ["-k", pattern]
        if v1_behavior:
            command.append("--v1-behavior")
        checkout = str(Path(__file__).resolve().parent.parent)
        environment = {"TF_CPP_MIN_LOG_LEVEL": "3", **os.environ, "TEST_TMPDIR": folder}
        environment["PYTHONPATH"] = os.pathsep.join(p for p in (checkout, os.environ.get("PYTHONPATH")) if p)
        try:
            done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=timeout_secs)
            end = f"ended with exit code {done.returncode}\n{done.stderr[-3000:]}"
        except subprocess.TimeoutExpired:
            end = f"was not done after {timeout_secs} s"
        lines = [json.loads(line) for line in report.read_text().splitlines()] if report.exists() else []
    outcomes = [line for line in lines if line["outcome"] != "started"]
    ended = {line["test"] for line in outcomes}
    for line in lines:
        if line["outcome"] == "started" and line["test"] not in ended:
            outcomes.append({"test": line["test"], "outcome": "error", "text": f"the process {end}"})
    if not lines:
        outcomes.append({"test": "(process)", "outcome": "error", "text": f"the process {end}"})
    return outcomes


def reason_of(program: str, test: str) -> str | None:
    """Returns why a test is not expected to pass, or None if it is."""
    for pattern, reason in REASONS.items():
        if fnmatch.fnmatchcase(f"{program}:{test}", pattern):
            return reason
    return None


def print_table(results: dict[str, list[dict[str, str]]]) -> None:
    """Prints one line per test program: how many tests passed, failed, and failed for a known reason."""
    columns = ("passed", "failed", "error", "skipped", "explained")
    width = max(len(program) for program in [*results, "total"])
    print(f"{'program':{width}}  {'tests':>6}", *(f"{column:>9}" for column in columns))
    total: collections.Counter[str] = collections.Counter()
    for program, outcomes in results.items():
        count = collections.Counter(
            "explained" if o["outcome"] in ("failed", "error") and reason_of(program, o["test"]) else o["outcome"]
            for o in outcomes
        )
        total += count
        print(f"{program:{width}}  {sum(count.values()):6}", *(f"{count[column]:9}" for column in columns))
    print(f"{'total':{width}}  {sum(total.values()):6}", *(f"{total[column]:9}" for column in columns))


def print_failures(results: dict[str, list[dict[str, str]]], whole: bool) -> None:
    """Prints the tests that did not pass: the last line of the error, or the whole traceback."""
    for program, outcomes in results.items():
        for o in outcomes:
            if o["outcome"] in ("failed", "error"):
                reason = reason_of(program, o["test"])
                lines = o["text"].strip().splitlines() or [""]
                print(
                    f"\n{o['outcome'].upper()} {program}:{o['test']}" + (f"  (explained: {reason})" if reason else "")
                )
                print("\n".join(f"    {line}" for line in (lines if whole else lines[-1:])))


def main() -> int:
    """Parses the command line; returns 1 if a test failed without a known reason."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("root", type=Path, help="folder that holds tf_slim/, as the wheel does")
    parser.add_argument("--only", nargs="*", default=[""], help="parts of program paths, e.g. layers/utils ops")
    parser.add_argument("-k", dest="pattern", help="only tests with this text in Class.test_name")
    parser.add_argument("--failures", action="store_true", help="name the tests that do not pass")
    parser.add_argument("--tracebacks", action="store_true", help="the same with whole tracebacks")
    parser.add_argument("--v1-behavior", action="store_true", help="run them after tf.compat.v1.disable_v2_behavior()")
    parser.add_argument("--jobs", type=int, default=1, help="test programs at a time")
    parser.add_argument("--timeout-secs", type=int, default=1800, help="for each program")
    parser.add_argument("--program", help=argparse.SUPPRESS)
    parser.add_argument("--report", type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.program:
        run_program(args.root, args.program, args.pattern, args.report, args.v1_behavior)
        return 0
    home = args.root / "tf_slim"
    programs = sorted(str(file.relative_to(home).with_suffix("")) for file in home.rglob("*_test.py"))
    programs = [program for program in programs if any(part in program for part in args.only)]
    if not programs:
        parser.error(f"no test program {' or '.join(args.only)} under {home}: unpack the wheel of tf-slim there.")
    with concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
        outcomes = pool.map(
            lambda program: run_apart(args.root, program, args.pattern, args.timeout_secs, args.v1_behavior), programs
        )
        results = dict(zip(programs, outcomes, strict=True))
    print_table(results)
    if args.failures or args.tracebacks:
        print_failures(results, args.tracebacks)
    failed = [
        o
        for program, outcomes in results.items()
        for o in outcomes
        if o["outcome"] in ("failed", "error") and not reason_of(program, o["test"])
    ]
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
