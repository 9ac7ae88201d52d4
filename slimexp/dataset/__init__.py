"""Sources of examples: what the images are and which labels they have, never how they are read."""

from slimexp.dataset.checks import check_files
from slimexp.dataset.cifar10 import load_cifar10
from slimexp.dataset.class_names import load_class_names
from slimexp.dataset.digits import load_digits
from slimexp.dataset.image_folder import load_image_folder
from slimexp.dataset.listfile import load_listfile
from slimexp.dataset.listfile_grammar import format_path
from slimexp.dataset.mnist import load_mnist
from slimexp.dataset.pascal_voc import load_pascal_voc
from slimexp.dataset.published import load_flowers, load_imagenet
from slimexp.dataset.record_split import LabelFormat, RecordSplit
from slimexp.dataset.split import AnySplit, Dataset, Split
from slimexp.dataset.summary import class_counts, describe, fingerprint, label_counts
from slimexp.dataset.tfrecord import load_tfrecord

__all__ = [
    "AnySplit",
    "Dataset",
    "LabelFormat",
    "RecordSplit",
    "Split",
    "check_files",
    "class_counts",
    "describe",
    "fingerprint",
    "format_path",
    "label_counts",
    "load_cifar10",
    "load_class_names",
    "load_digits",
    "load_flowers",
    "load_image_folder",
    "load_imagenet",
    "load_listfile",
    "load_mnist",
    "load_pascal_voc",
    "load_tfrecord",
]
