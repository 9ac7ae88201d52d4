"""The command line of the conversion."""

from __future__ import annotations

import argparse
import contextlib
import logging
import os
import re
import shlex
import signal
import sys
import time
from collections.abc import Sequence
from typing import Any

from slimexp.errors import UserError
from slimexp.shown import shown_python

__all__ = ["main"]

_DESCRIPTION = """\
Turns a dataset of one form into another. The pictures' bytes stay as they are; nothing is encoded anew.

  convert.py train.txt records --image-dir=images --num-classes=5     a list file into TFRecord files
  convert.py photos records --shards=64                               a folder of classes into TFRecord files
  convert.py records again --to=list                                  and back, into a list and its images
  convert.py VOCdevkit/VOC2012 records                                PASCAL VOC; don't-care labels are kept
  convert.py 'flowers/flowers_%s_*.tfrecord' photos --to=folder       TF-Slim's flowers as a folder of classes

SOURCE is a list file, a folder of classes, a folder of TFRecord files or a pattern of them, or a folder of PASCAL VOC,
MNIST or CIFAR-10. TARGET is a new folder; it appears when it is complete, and not at all if anything goes wrong.
"""
_EPILOG = """\
Records have TF-Slim's features: image/encoded, image/format, image/height, image/width, image/class/label and
image/class/text, and image/filename. For multi-label data image/class/label holds a number a label, 1, -1, or 0 for
don't care (dataset.label_form=signed), and image/class/text the names of the positive ones. labels.txt beside them has
the classes' names. A folder is for single-label data.
"""
_REPORT_SECS = 10.0
# Which options are arguments of `convert`; the others are for loading the source.
_HOW = ("num_shards", "on_bad_image", "link", "seed", "overwrite", "threads")
# What the loading functions call by its config key is an option here, or one of the two places.
_KEY = re.compile(r"dataset\.([a-z_]+)")
_PLACES = {
    "train_list": "SOURCE",
    "root": "SOURCE",
    "file_pattern": "SOURCE",
    "eval_list": "--eval",
    "eval_pattern": "--eval",
}
_SKIPS_CHECK = re.compile(r" \(dataset\.check_files=false skips this check; .*?\)")


def main(arguments: Sequence[str] | None = None) -> int:
    """Converts what the command line names.

    Returns:
        The exit code: 0 if it was done; 1 if not, with one message on standard error.
    """
    from slimexp.convert.conversion import convert
    from slimexp.convert.source import find_form, load_source

    args = vars(_parser().parse_args(arguments))
    logging.basicConfig(format="%(message)s", level=logging.INFO, stream=sys.stderr)
    # What is half done is removed on SIGTERM as well.
    before = signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    try:
        source_path, target, to, form, eval_path = (args.pop(key) for key in ("source", "target", "to", "form", "eval"))
        how = {key: args.pop(key) for key in _HOW if key in args}
        how["decode"] = args.pop("check", "decode") == "decode"
        how["shuffle"] = {"auto": None, "yes": True, "no": False}[args.pop("shuffle", "auto")]
        form = form or find_form(source_path)
        print(f"{source_path} ({form}) -> {target} ({to})", flush=True)
        _start_tensorflow()
        if form == "folder" and "seed" in how:
            args["seed"] = how["seed"]
        skips = how.get("on_bad_image") == "skip"
        source = load_source(source_path, form=form, eval_path=eval_path, allow_empty_files=skips, **_options(args))
        report = convert(source, target, to, progress=_Progress(), **how)
    except UserError as error:
        text = _KEY.sub(_as_option, _SKIPS_CHECK.sub("", str(error)))
        print(f"convert: {text}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("convert: stopped; nothing was written.", file=sys.stderr)
        return 130
    finally:
        signal.signal(signal.SIGTERM, before)
    for split, counts in report.counts.items():
        where = f" (see {os.path.join(report.target, 'rejected.csv')})" if counts.rejected else ""
        print(f"{split}: {counts.listed} listed = {counts.written} written + {counts.rejected} rejected{where}")
    total = sum(counts.listed for counts in report.counts.values())
    print(
        f"Wrote {report.target} in {report.secs:.1f} s, {total / max(report.secs, 1e-9):.0f} images/s. To train on it:"
    )
    print(f"  {shown_python()} -m slimexp {_overrides(report.target, to, source)}")
    return 0


def _parser() -> argparse.ArgumentParser:
    from slimexp.convert.place import TARGETS
    from slimexp.convert.source import FORMS

    parser = argparse.ArgumentParser(
        "convert", description=_DESCRIPTION, epilog=_EPILOG, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    # What was not given is left to the functions' own defaults, and to what they say about options of another form.
    parser.argument_default = argparse.SUPPRESS
    parser.add_argument("source", metavar="SOURCE")
    parser.add_argument("target", metavar="TARGET")
    parser.add_argument("--from", dest="form", choices=FORMS, default=None, help="default: told by what is there")
    parser.add_argument("--to", choices=TARGETS, default="records", help="default: records")
    parser.add_argument(
        "--eval", default=None, metavar="LIST|PATTERN", help="the evaluation split of a list, of records"
    )
    written = parser.add_argument_group("what is written")
    written.add_argument("--shards", dest="num_shards", type=int, metavar="N", help="files a split; default: 16")
    written.add_argument("--link", choices=("hard", "symbolic"), help="link to the images rather than copy them")
    written.add_argument(
        "--shuffle", choices=("auto", "yes", "no"), help="auto: training images of a folder into records"
    )
    written.add_argument("--seed", type=int, metavar="N", help="of the shuffling and of what is held out; default: 0")
    written.add_argument("--overwrite", action="store_true", help="replace TARGET if it isn't empty")
    written.add_argument(
        "--on-bad-image", choices=("error", "skip"), help="default: error; skip lists them in rejected.csv"
    )
    written.add_argument("--check", choices=("decode", "header"), help="how pictures are checked; default: decode")
    written.add_argument("--threads", type=int, metavar="N", help="default: one a CPU")
    read = parser.add_argument_group("how the source is read; as the keys of dataset= of the same names")
    read.add_argument("--task", choices=("single", "multi"), help="list, records")
    read.add_argument("--num-classes", type=int, metavar="N")
    read.add_argument("--class-names", metavar="FILE|A,B,C")
    read.add_argument("--image-dir", metavar="FOLDER", help="list")
    read.add_argument("--labels-offset", type=int, metavar="N", help="list, records; what is written counts from 0")
    read.add_argument("--image-key", metavar="KEY", help="records")
    read.add_argument("--label-key", metavar="KEY", help="records")
    read.add_argument("--label-form", choices=("indices", "binary", "signed"), help="records; default: signed")
    read.add_argument("--train-dir", metavar="NAME", help="folder")
    read.add_argument("--eval-dir", metavar="NAME", help="folder")
    read.add_argument("--eval-fraction", type=float, metavar="F", help="folder; held out; default: 0")
    read.add_argument("--train-set", metavar="SET", help="pascal_voc")
    read.add_argument("--eval-set", metavar="SET|null", help="pascal_voc")
    read.add_argument("--cache-dir", metavar="FOLDER", help="records, mnist, cifar10")
    return parser


def _options(args: dict[str, Any]) -> dict[str, Any]:
    """Turns what was given into arguments of `load_source`."""
    options = {key: None if value == "null" else value for key, value in args.items()}
    names = options.get("class_names")
    if names is not None and not os.path.exists(names) and "," in names:
        options["class_names"] = [name.strip() for name in names.split(",")]
    return options


def _as_option(match: re.Match[str]) -> str:
    return _PLACES.get(match[1], f"--{match[1].replace('_', '-')}")


def _overrides(target: str, to: str, source: Any) -> str:
    """Returns what to give to slimexp to train on what was written."""
    from slimexp.convert.place import LABELS_FILE

    has_eval = source.data.eval is not None
    names = os.path.join(target, LABELS_FILE)
    # Names that are numbers would be mistaken for the numbers of classes.
    numbers = any(name.isdecimal() and name != str(index) for index, name in enumerate(source.data.class_names))
    classes = f"dataset.num_classes={source.data.num_classes}" if numbers else _assign("dataset.class_names", names)
    if to == "records":
        parts = ["dataset=tfrecord", _assign("dataset.root", target), _assign("dataset.file_pattern", "%s-*.tfrecord")]
        parts += ["dataset.label_form=signed"] if source.data.task == "multi" else []
    elif to == "list":
        parts = ["dataset=listfile", _assign("dataset.train_list", os.path.join(target, "train.txt"))]
        parts += [_assign("dataset.eval_list", os.path.join(target, "eval.txt"))] if has_eval else []
        parts.append(classes)
    else:
        parts = ["dataset=image_folder", _assign("dataset.root", target)]
        if list(source.data.class_names) != sorted(source.data.class_names):
            parts.append(_assign("dataset.class_names", names))
    return " ".join([*parts, *(["dataset.task=multi"] if source.data.task == "multi" else [])])


def _assign(key: str, value: str) -> str:
    """Quotes a value for Hydra where it must be, and the whole for the shell."""
    if not re.fullmatch(r"[\w./:-]+", value, re.ASCII):
        value = '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'
    return shlex.quote(f"{key}={value}")


def _start_tensorflow() -> None:
    """Imports TensorFlow without the notes that its C++ parts print at the start."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    sys.stderr.flush()
    screen = os.dup(2)
    try:
        with open(os.devnull, "wb") as nowhere:
            os.dup2(nowhere.fileno(), 2)
        import tensorflow as tf

        with contextlib.suppress(RuntimeError):  # Too late for that where it is used already.
            tf.config.set_visible_devices([], "GPU")  # Pictures are decoded on the CPU.
    finally:
        os.dup2(screen, 2)
        os.close(screen)


class _Progress:
    """Shows how far it is: a line that is written over on a terminal, else one now and then."""

    def __init__(self) -> None:
        self._is_terminal = sys.stderr.isatty()
        self._shown = time.monotonic()

    def __call__(self, split: str, done: int, total: int) -> None:
        now = time.monotonic()
        if now - self._shown < (0.1 if self._is_terminal else _REPORT_SECS) and (done < total or not self._is_terminal):
            return
        self._shown = now
        end = ("\n" if done == total else "") if self._is_terminal else "\n"
        sys.stderr.write(f"{chr(13) if self._is_terminal else ''}{split}: {done} of {total} images{end}")
        sys.stderr.flush()
