"""The typed schema of the whole configuration and its range checks. No TensorFlow, no MLflow.

The defaults stand in `conf/`, once; here every field is open (`MISSING`). One module holds the schemas of a group or of
some that belong together. `slimexp.validation` holds a composed configuration against these classes.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

from omegaconf import MISSING

from slimexp.config.check_data import CheckDataConfig
from slimexp.config.dataset import (
    ArraysConfig,
    DigitsConfig,
    FlowersConfig,
    ImageFolderConfig,
    ImagenetConfig,
    ListFileConfig,
    PascalVocConfig,
    TFRecordConfig,
)
from slimexp.config.export import ExportConfig, PredictConfig
from slimexp.config.fields import require, show
from slimexp.config.jobs import BenchmarkConfig, EvaluationConfig, InspectConfig, JobConfig
from slimexp.config.model import (
    CifarnetPreprocessingConfig,
    InceptionPreprocessingConfig,
    LenetPreprocessingConfig,
    ModelConfig,
    PlainPreprocessingConfig,
    VggPreprocessingConfig,
    check_steps,
)
from slimexp.config.optimization import (
    AdadeltaConfig,
    AdagradConfig,
    AdamConfig,
    CosineConfig,
    ExponentialConfig,
    FtrlConfig,
    LossConfig,
    MomentumConfig,
    OptimizerConfig,
    PiecewiseConfig,
    PolynomialConfig,
    RMSPropConfig,
    ScheduleConfig,
)
from slimexp.config.pipeline import PipelineConfig
from slimexp.config.restore import RestoreConfig
from slimexp.config.sweep import SweepConfig
from slimexp.config.tracking import TrackingConfig
from slimexp.config.trainer import Resume, TrainerConfig

__all__ = ["CONFIG_DIR", "GROUP_SCHEMAS", "OPTION_SCHEMAS", "Config", "Resume", "check_steps", "show"]

_PACKAGE = Path(__file__).resolve().parent.parent
# In a wheel `conf/` lies inside the package, in a checkout beside it. Hydra needs an absolute path under `python -m`.
CONFIG_DIR = _PACKAGE / "conf" if (_PACKAGE / "conf").is_dir() else _PACKAGE.parent / "conf"


@dataclasses.dataclass
class Config:
    """The whole configuration. Fields typed `Any` have one schema an option, see `OPTION_SCHEMAS`."""

    job: JobConfig = MISSING
    dataset: Any = MISSING
    model: ModelConfig = MISSING
    preprocessing: Any = MISSING
    optimizer: Any = MISSING
    learning_rate: Any = MISSING
    loss: LossConfig = MISSING
    restore: RestoreConfig = MISSING
    pipeline: PipelineConfig = MISSING
    trainer: TrainerConfig = MISSING
    evaluation: EvaluationConfig = MISSING
    benchmark: BenchmarkConfig = MISSING
    inspect: InspectConfig = MISSING
    check_data: CheckDataConfig = MISSING
    export: ExportConfig = MISSING
    predict: PredictConfig = MISSING
    tracking: TrackingConfig = MISSING
    sweep: SweepConfig = MISSING
    seed: int = MISSING
    output_root: str = MISSING
    run_dir: str = MISSING
    dry_run: bool = MISSING

    def __post_init__(self) -> None:
        # Two words of 32 bits each make the stateless seeds.
        require(0 <= self.seed < 2**31, "seed", self.seed, f"must lie in 0..{2**31 - 1}.")


# A `_target_` that stands here has its keys checked; any other is a user's own and gets its keys as they are.
OPTION_SCHEMAS: dict[str, dict[str, type]] = {
    "dataset": {
        "slimexp.dataset.load_digits": DigitsConfig,
        "slimexp.dataset.load_listfile": ListFileConfig,
        "slimexp.dataset.load_image_folder": ImageFolderConfig,
        "slimexp.dataset.load_tfrecord": TFRecordConfig,
        "slimexp.dataset.load_pascal_voc": PascalVocConfig,
        "slimexp.dataset.load_mnist": ArraysConfig,
        "slimexp.dataset.load_cifar10": ArraysConfig,
        "slimexp.dataset.load_flowers": FlowersConfig,
        "slimexp.dataset.load_imagenet": ImagenetConfig,
    },
    "preprocessing": {
        "slimexp.pipeline.preprocessing.vgg.VggPreprocessing": VggPreprocessingConfig,
        "slimexp.pipeline.preprocessing.inception.InceptionPreprocessing": InceptionPreprocessingConfig,
        "slimexp.pipeline.preprocessing.lenet.LenetPreprocessing": LenetPreprocessingConfig,
        "slimexp.pipeline.preprocessing.cifarnet.CifarnetPreprocessing": CifarnetPreprocessingConfig,
        "slimexp.pipeline.preprocessing.plain.PlainPreprocessing": PlainPreprocessingConfig,
    },
    "optimizer": {
        "slimexp.training.optimizers.sgd": OptimizerConfig,
        "slimexp.training.optimizers.momentum": MomentumConfig,
        "slimexp.training.optimizers.rmsprop": RMSPropConfig,
        "slimexp.training.optimizers.adam": AdamConfig,
        "slimexp.training.optimizers.adagrad": AdagradConfig,
        "slimexp.training.optimizers.adadelta": AdadeltaConfig,
        "slimexp.training.optimizers.ftrl": FtrlConfig,
    },
    "learning_rate": {
        "slimexp.training.schedules.Fixed": ScheduleConfig,
        "slimexp.training.schedules.Exponential": ExponentialConfig,
        "slimexp.training.schedules.Polynomial": PolynomialConfig,
        "slimexp.training.schedules.Cosine": CosineConfig,
        "slimexp.training.schedules.Piecewise": PiecewiseConfig,
    },
}
GROUP_SCHEMAS: dict[str, type] = {
    "job": JobConfig,
    "model": ModelConfig,
    "loss": LossConfig,
    "restore": RestoreConfig,
    "pipeline": PipelineConfig,
    "trainer": TrainerConfig,
    "evaluation": EvaluationConfig,
    "benchmark": BenchmarkConfig,
    "inspect": InspectConfig,
    "check_data": CheckDataConfig,
    "export": ExportConfig,
    "predict": PredictConfig,
    "tracking": TrackingConfig,
    "sweep": SweepConfig,
}
