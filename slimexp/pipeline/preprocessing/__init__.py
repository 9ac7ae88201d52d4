"""Image preprocessing: from a picture of any size to what a network takes, each step a value."""

from __future__ import annotations

from slimexp.pipeline.preprocessing.base import Preprocessing, PreprocessingLike, WindowPreprocessing
from slimexp.pipeline.preprocessing.cifarnet import CifarnetPreprocessing
from slimexp.pipeline.preprocessing.inception import InceptionPreprocessing
from slimexp.pipeline.preprocessing.lenet import LenetPreprocessing
from slimexp.pipeline.preprocessing.plain import PlainPreprocessing
from slimexp.pipeline.preprocessing.vgg import VggPreprocessing

__all__ = [
    "CifarnetPreprocessing",
    "InceptionPreprocessing",
    "LenetPreprocessing",
    "PlainPreprocessing",
    "Preprocessing",
    "PreprocessingLike",
    "VggPreprocessing",
    "WindowPreprocessing",
]
