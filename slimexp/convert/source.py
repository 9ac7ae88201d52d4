"""What is to be converted: tells the form of a source by what is there, and loads it as a dataset."""

from __future__ import annotations

import dataclasses
import glob
import os
from typing import Any

from slimexp.convert.place import LABELS_FILE, read_manifest
from slimexp.dataset import (
    Dataset,
    Split,
    load_cifar10,
    load_class_names,
    load_image_folder,
    load_listfile,
    load_mnist,
    load_pascal_voc,
    load_tfrecord,
)
from slimexp.dataset.example import SIGNED_LABELS
from slimexp.errors import UserError

__all__ = ["FORMS", "OPTIONS", "Source", "find_form", "load_source"]

# Which arguments of the loading functions there are for each form.
OPTIONS: dict[str, tuple[str, ...]] = {
    "list": ("image_dir", "task", "num_classes", "class_names", "labels_offset"),
    "folder": ("num_classes", "class_names", "eval_fraction", "train_dir", "eval_dir", "seed"),
    "records": (
        "task",
        "num_classes",
        "class_names",
        "labels_offset",
        "image_key",
        "label_key",
        "label_form",
        "cache_dir",
    ),
    "pascal_voc": ("num_classes", "class_names", "train_set", "eval_set"),
    "mnist": ("class_names", "cache_dir"),
    "cifar10": ("class_names", "cache_dir"),
}
FORMS = tuple(OPTIONS)

# How shards are named, tried in this order in a folder.
_PATTERNS = ("%s-*", "*_%s_*", "*_%s-*", "*-%s-*", "%s.tfrecord*", "*.tfrecord*")


@dataclasses.dataclass(frozen=True)
class Source:
    """A dataset and where it comes from.

    Attributes:
        path: As the user named it.
        form: One of `FORMS`.
        data: The dataset; labels count from 0.
        bases: By split the folder that its images' names count from; for splits of files.
    """

    path: str
    form: str
    data: Dataset
    bases: dict[str, bytes]

    @property
    def has_order(self) -> bool:
        """Whether the order of its examples is one that someone chose."""
        return self.form != "folder"


def find_form(path: str) -> str:
    """Tells the form of a source.

    Raises:
        UserError: If there is nothing, or nothing known.
    """
    made = read_manifest(path)
    if made is not None:
        return str(made["to"])
    if os.path.isfile(path):
        with open(path, "rb") as file:
            start = file.read(12)
        # A record's length takes eight bytes, and no text has zeros in it.
        return "records" if b"\0" in start else "list"
    if not os.path.isdir(path):
        if glob.glob(path.replace("%s", "train")):
            return "records"
        raise UserError(f"SOURCE={path}: there is no such file or folder, and no file matches it as a pattern.")
    if os.path.isdir(os.path.join(path, "ImageSets")) or os.path.isdir(os.path.join(path, "JPEGImages")):
        return "pascal_voc"
    for form, pattern in (("mnist", "train-images[-.]idx3-ubyte*"), ("cifar10", "data_batch_1.bin")):
        belows = ("", "raw", "MNIST/raw") if form == "mnist" else ("", "cifar-10-batches-bin")
        if any(glob.glob(os.path.join(glob.escape(path), below, pattern)) for below in belows):
            return form
    if _pattern_in(path) is not None:
        return "records"
    if any(os.path.isdir(os.path.join(path, name)) for name in os.listdir(path) if not name.startswith(".")):
        return "folder"
    raise UserError(
        f"SOURCE={path}: this folder has neither folders of classes nor TFRecord files, nor is it one of PASCAL VOC, "
        f"MNIST or CIFAR-10. (Of a list, name the file itself.) --from={'|'.join(FORMS)} says what it is."
    )


def _pattern_in(folder: str) -> str | None:
    """Returns the pattern of the shards in a folder, if there are any."""
    for pattern in _PATTERNS:
        found = glob.glob(os.path.join(glob.escape(folder), pattern.replace("%s", "train")))
        if any(".tfrecord" in name or "-of-" in name for name in map(os.path.basename, found)):
            return pattern
    return None


def load_source(
    path: str, *, form: str | None = None, eval_path: str | None = None, allow_empty_files: bool = False, **options: Any
) -> Source:
    """Loads and checks a source, as training does: its labels, and that its files are there.

    Args:
        path: A list file; a folder of classes; a folder, file or pattern of TFRecord files; or a folder of PASCAL VOC,
            MNIST or CIFAR-10.
        form: Which of these; told by what is there if it is None.
        eval_path: The list or the pattern of the evaluation split.
        allow_empty_files: Whether empty image files are let through, to be rejected with other bad images.
        options: Arguments of the function that loads the form, see `OPTIONS`.

    Raises:
        UserError: If anything is wrong, or an option is for another form.
    """
    path = os.path.abspath(os.path.expanduser(path))
    made = read_manifest(path)
    if made is not None and form in (None, made["to"]):
        return _load_made(path, made, eval_path, allow_empty_files, options)
    return _load(path, form or find_form(path), eval_path, allow_empty_files, options)


def _load(path: str, form: str, eval_path: str | None, allow_empty_files: bool, options: dict[str, Any]) -> Source:
    if eval_path is not None and form not in ("list", "records"):
        raise UserError(f"--eval={eval_path} is for lists and records; a source of the form {form} has its own splits.")
    for key, value in options.items():
        if key not in OPTIONS[form]:
            forms = ", ".join(form for form, keys in OPTIONS.items() if key in keys)
            raise UserError(
                f"dataset.{key}={value} is not for a source of the form {form}, but for {forms}; leave it out."
            )
    options = {**options, "name": form}
    if form == "list":
        data = load_listfile(train_list=path, eval_list=eval_path, allow_empty_files=allow_empty_files, **options)
        lists = {"train": path, "eval": os.path.abspath(os.path.expanduser(eval_path or path))}
        folder = options.get("image_dir")
        return _source(path, form, data, {split: folder or os.path.dirname(file) for split, file in lists.items()})
    if form == "records":
        # What this program writes; TF-Slim's scripts know no such records.
        options.setdefault("label_form", SIGNED_LABELS)
        return _source(path, form, load_tfrecord(**_patterns(path, eval_path), **options), {})
    if form == "folder":
        # Converting leaves nothing out, unless it is asked to.
        options.setdefault("eval_fraction", 0.0)
        data = load_image_folder(root=path, allow_empty_files=allow_empty_files, **options)
    elif form == "pascal_voc":
        data = load_pascal_voc(root=path, allow_empty_files=allow_empty_files, **options)
    else:
        data = load_mnist(root=path, **options) if form == "mnist" else load_cifar10(root=path, **options)
    return _source(path, form, data, {"train": path, "eval": path})


def _load_made(
    path: str, made: dict[str, Any], eval_path: str | None, allow_empty_files: bool, options: dict[str, Any]
) -> Source:
    """Loads what this program wrote, of which it knows the task, the lists and the names."""
    form = made["to"]
    names = load_class_names(os.path.join(path, LABELS_FILE))
    if form == "list":
        if eval_path is None and "eval" in made["splits"]:
            eval_path = os.path.join(path, "eval.txt")
        path = os.path.join(path, "train.txt")
    if form == "folder":
        # The order of the names, which need not be that of the folders.
        options.setdefault("class_names", list(names))
    else:
        options = {"task": made["task"], "num_classes": len(names), **options}
        if "class_names" in options:
            del options["num_classes"]
    source = _load(path, form, eval_path, allow_empty_files, options)
    if "class_names" not in options:
        # Given by number: in a list a name that is a number would be mistaken for one.
        source = dataclasses.replace(source, data=dataclasses.replace(source.data, class_names=names))
    return source


def _patterns(path: str, eval_path: str | None) -> dict[str, Any]:
    """Returns the arguments of `load_tfrecord` that tell where the shards are."""
    found: dict[str, Any] = {"root": "/", "file_pattern": path, "eval_pattern": None}
    if eval_path is not None:
        found["eval_pattern"] = os.path.abspath(os.path.expanduser(eval_path))
    if os.path.isdir(path):
        pattern = _pattern_in(path)
        if pattern is None:
            raise UserError(
                f"SOURCE={path}: no file in this folder is named like a shard of a training split; give a pattern in "
                "quotes, with %s for the split's name: 'FOLDER/data_%s_*'."
            )
        found |= {"root": path, "file_pattern": pattern}
    elif os.path.isfile(path):
        found["file_pattern"] = glob.escape(path)
    return found


def _source(path: str, form: str, data: Dataset, folders: dict[str, str]) -> Source:
    """Finds the folders that names count from: those given, where all images lie in there."""
    bases = {}
    for split in (data.train, data.eval):
        if isinstance(split, Split):
            base = os.fsencode(os.path.abspath(os.path.expanduser(folders[split.name])))
            paths = [os.path.normpath(path) for path in split.paths]  # A list may say `../a.jpg`.
            if not all(path.startswith(os.path.join(base, b"")) for path in paths):
                base = os.path.commonpath([os.path.dirname(path) for path in paths])
            bases[split.name] = base
    return Source(path, form, data, bases)
