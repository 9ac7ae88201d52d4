"""The typed schema of the whole configuration and its range checks. No TensorFlow, no MLflow.

The defaults stand in `conf/`, once; here every field is open (`MISSING`). `slimexp.validation` holds a composed
configuration against these classes.
"""

from __future__ import annotations

import dataclasses
import enum
import itertools
import re
from pathlib import Path
from typing import Any

from omegaconf import MISSING

from slimexp.errors import UserError

__all__ = ["CONFIG_DIR", "GROUP_SCHEMAS", "OPTION_SCHEMAS", "Config", "check_steps", "show"]

_PACKAGE = Path(__file__).resolve().parent
# In a wheel `conf/` lies inside the package, in a checkout beside it. Hydra needs an absolute path under `python -m`.
CONFIG_DIR = _PACKAGE / "conf" if (_PACKAGE / "conf").is_dir() else _PACKAGE.parent / "conf"


class Task(enum.Enum):
    """One class an image, or each label on its own."""

    single = "single"
    multi = "multi"


class LossName(enum.Enum):
    """`auto` takes softmax for single-label datasets and sigmoid for multi-label ones."""

    auto = "auto"
    softmax = "softmax"
    sigmoid = "sigmoid"


class Resume(enum.Enum):
    """What to do with checkpoints found in `run_dir`."""

    auto = "auto"
    never = "never"
    must = "must"


class Backend(enum.Enum):
    """Where runs are recorded besides their own folder."""

    mlflow = "mlflow"
    none = "none"


class OnError(enum.Enum):
    """What an unreachable tracking server means at the start."""

    offline = "offline"
    fail = "fail"


class Color(enum.Enum):
    """How much Inception preprocessing distorts colour while training."""

    none = "none"
    fast = "fast"
    full = "full"


def _require(ok: bool, key: str, value: object, rule: str) -> None:
    if not ok:
        raise UserError(f"{key}={show(value)}: {rule}")


def show(value: object) -> str:
    """Returns a value as it is written in the configuration."""
    return value.value if isinstance(value, enum.Enum) else str(value)


def _at_most(owner: object, prefix: str, most: int, *names: str) -> None:
    for name in names:
        value = getattr(owner, name)
        if value is not None:
            _require(value <= most, f"{prefix}.{name}", value, f"must be {most:,} or less.")


def _at_least(owner: object, prefix: str, least: float, *names: str) -> None:
    for name in names:
        value = getattr(owner, name)
        if value is not None:
            _require(value >= least, f"{prefix}.{name}", value, f"must be {least:g} or more.")


def _fraction(owner: object, prefix: str, *names: str, zero: bool = False, one: bool = False) -> None:
    low, high = "[" if zero else "(", "]" if one else ")"
    for name in names:
        value = getattr(owner, name)
        if value is not None:
            ok = (value >= 0 if zero else value > 0) and (value <= 1 if one else value < 1)
            _require(ok, f"{prefix}.{name}", value, f"must lie in {low}0, 1{high}.")


def _class_names(owner: Any) -> None:
    rule = "must be a list of names, or a text file with one name a line."
    ok = owner.class_names is None or isinstance(owner.class_names, (str, list))
    _require(ok, "dataset.class_names", owner.class_names, rule)


def _path_field() -> Any:
    """Declares a path: relative ones count from the folder the user started in."""
    return dataclasses.field(default=MISSING, metadata={"path": True})


# --- job --------------------------------------------------------------------------------------------------------------
@dataclasses.dataclass
class JobConfig:
    name: str = MISSING
    _target_: str = MISSING


# --- dataset: one schema an option, known by its builder --------------------------------------------------------------
class OnBadImage(enum.Enum):
    error = "error"
    skip = "skip"


class Exif(enum.Enum):
    """What to do about the orientation that a photo's EXIF data name."""

    apply = "apply"
    ignore = "ignore"


@dataclasses.dataclass
class DatasetConfig:
    """What every dataset has in common."""

    _target_: str = MISSING
    name: str = MISSING
    on_bad_image: OnBadImage = MISSING
    max_bad_fraction: float = MISSING
    exif: Exif = MISSING
    flip: bool = MISSING
    crop_area_min: float = MISSING

    def __post_init__(self) -> None:
        _fraction(self, "dataset", "max_bad_fraction", zero=True, one=True)
        _fraction(self, "dataset", "crop_area_min", one=True)


@dataclasses.dataclass
class DigitsConfig(DatasetConfig):
    cache_dir: str | None = _path_field()
    check_files: bool = MISSING


@dataclasses.dataclass
class ListFileConfig(DatasetConfig):
    train_list: str = _path_field()
    eval_list: str | None = _path_field()
    image_dir: str | None = _path_field()
    num_classes: int | None = MISSING
    class_names: Any = _path_field()
    task: Task = MISSING
    labels_offset: int = MISSING
    check_files: bool = MISSING

    def __post_init__(self) -> None:
        super().__post_init__()
        _at_least(self, "dataset", 1, "num_classes")
        _at_most(self, "dataset", 1_000_000, "num_classes")
        _at_least(self, "dataset", 0, "labels_offset")
        _class_names(self)


@dataclasses.dataclass
class ImageFolderConfig(DatasetConfig):
    root: str = _path_field()
    train_dir: str | None = MISSING
    eval_dir: str | None = MISSING
    eval_fraction: float = MISSING
    class_names: Any = _path_field()
    check_files: bool = MISSING

    def __post_init__(self) -> None:
        super().__post_init__()
        _fraction(self, "dataset", "eval_fraction", zero=True)
        _class_names(self)


class LabelForm(enum.Enum):
    """How a record tells several labels."""

    indices = "indices"
    binary = "binary"
    signed = "signed"


@dataclasses.dataclass
class TFRecordConfig(DatasetConfig):
    root: str = _path_field()
    file_pattern: str = MISSING
    eval_pattern: str | None = MISSING
    num_classes: int | None = MISSING
    class_names: Any = _path_field()
    task: Task = MISSING
    labels_offset: int = MISSING
    image_key: str = MISSING
    label_key: str = MISSING
    label_form: LabelForm = MISSING
    cache_dir: str | None = _path_field()

    def __post_init__(self) -> None:
        super().__post_init__()
        _at_least(self, "dataset", 1, "num_classes")
        _at_most(self, "dataset", 1_000_000, "num_classes")
        _at_least(self, "dataset", 0, "labels_offset")
        _class_names(self)
        for name in ("file_pattern", "image_key", "label_key"):
            _require(bool(getattr(self, name)), f"dataset.{name}", "''", "must not be empty.")
        for name in ("file_pattern", "eval_pattern"):
            value = getattr(self, name) or ""
            rule = "must not be empty and have at most one %s, for the split's name."
            _require(value != "" or getattr(self, name) is None, f"dataset.{name}", "''", rule)
            _require(value.count("%s") <= 1, f"dataset.{name}", value, rule)


# --- model, preprocessing ---------------------------------------------------------------------------------------------
_STEP_KINDS = ("_target_", "numpy", "library")
_STEP_FORMS = (
    "{_target_: my.module.function, ...} (TensorFlow), {numpy: my.module.function, ...} or "
    "{library: path/to/op.so, op: name, ...} (C++)"
)
_STEP_CHOICES = {"at": ("decoded", "finished"), "when": ("training", "always")}


def check_steps(steps: Any) -> None:
    """Checks the form of `preprocessing.steps`.

    Raises:
        UserError: If it is no list of steps, or a step's own keys are wrong. Its function's are another matter.
    """
    _require(isinstance(steps, list), "preprocessing.steps", steps, f"must be a list of steps, each {_STEP_FORMS}.")
    for number, step in enumerate(steps):
        key = f"preprocessing.steps[{number}]"
        _require(isinstance(step, dict), key, step, f"must be {_STEP_FORMS}.")
        kinds = [kind for kind in _STEP_KINDS if kind in step]
        _require(len(kinds) == 1, key, step, f"must be one of the three: {_STEP_FORMS}.")
        for name in (*kinds, *(["op"] if kinds == ["library"] else [])):
            value = step.get(name)
            _require(isinstance(value, str) and bool(value), f"{key}.{name}", value, f"must be text: {_STEP_FORMS}.")
        for name, choices in _STEP_CHOICES.items():
            value = step.get(name, choices[0])
            _require(value in choices, f"{key}.{name}", value, f"must be {' or '.join(choices)}.")
        value = step.get("num_draws", 1)
        rule = "must be a whole number of 1 or more: the random numbers that the step wants for an image."
        _require(type(value) is int and 1 <= value <= 1000, f"{key}.num_draws", value, rule)


@dataclasses.dataclass
class PreprocessingConfig:
    """What every preprocessing has in common."""

    _target_: str = MISSING
    name: str = MISSING
    steps: Any = dataclasses.field(default=MISSING, metadata={"path": "library"})

    def __post_init__(self) -> None:
        check_steps(self.steps)


@dataclasses.dataclass
class ModelConfig:
    name: str = MISSING
    network: dict[str, Any] = MISSING
    preprocessing: str | None = MISSING
    learning_rate: float = MISSING
    image_size: int | None = MISSING
    weight_decay: float = MISSING
    dropout_keep_prob: float | None = MISSING
    batch_norm_decay: float | None = MISSING

    def __post_init__(self) -> None:
        _require(
            isinstance(self.network.get("_target_"), str),
            "model.network._target_",
            self.network.get("_target_"),
            "must name a network function, e.g. slimexp.nets.vgg.vgg_16.",
        )
        _at_least(self, "model", 1, "image_size")
        _require(self.learning_rate > 0, "model.learning_rate", self.learning_rate, "must be above 0.")
        _at_least(self, "model", 0, "weight_decay")
        _fraction(self, "model", "dropout_keep_prob", one=True)
        _fraction(self, "model", "batch_norm_decay", zero=True)


@dataclasses.dataclass
class VggPreprocessingConfig(PreprocessingConfig):
    resize_side_min: int = MISSING
    resize_side_max: int = MISSING
    eval_resize_side: int = MISSING
    area_min: float = MISSING
    flip: bool = MISSING
    means: list[float] = MISSING

    def __post_init__(self) -> None:
        super().__post_init__()
        _at_least(self, "preprocessing", 224, "resize_side_min", "eval_resize_side")
        _fraction(self, "preprocessing", "area_min", zero=True, one=True)
        _require(
            self.resize_side_max >= self.resize_side_min,
            "preprocessing.resize_side_max",
            self.resize_side_max,
            f"must not be below preprocessing.resize_side_min={self.resize_side_min}.",
        )
        _require(len(self.means) == 3, "preprocessing.means", self.means, "must be three numbers: R, G, B.")


@dataclasses.dataclass
class InceptionPreprocessingConfig(PreprocessingConfig):
    area_min: float = MISSING
    area_max: float = MISSING
    ratio_min: float = MISSING
    ratio_max: float = MISSING
    flip: bool = MISSING
    color: Color = MISSING
    central_fraction: float = MISSING

    def __post_init__(self) -> None:
        super().__post_init__()
        _fraction(self, "preprocessing", "area_min", "area_max", "central_fraction", one=True)
        _at_least(self, "preprocessing", 1e-3, "ratio_min", "ratio_max")
        for what in ("area", "ratio"):
            low, high = getattr(self, f"{what}_min"), getattr(self, f"{what}_max")
            rule = f"must not be below preprocessing.{what}_min={low}."
            _require(high >= low, f"preprocessing.{what}_max", high, rule)


@dataclasses.dataclass
class LenetPreprocessingConfig(PreprocessingConfig):
    """LeNet has nothing to set."""


@dataclasses.dataclass
class CifarnetPreprocessingConfig(PreprocessingConfig):
    padding: int = MISSING
    flip: bool = MISSING
    brightness: float = MISSING
    contrast_min: float = MISSING
    contrast_max: float = MISSING

    def __post_init__(self) -> None:
        super().__post_init__()
        _at_least(self, "preprocessing", 0, "padding", "brightness", "contrast_min")
        rule = f"must not be below preprocessing.contrast_min={self.contrast_min}."
        _require(self.contrast_max >= self.contrast_min, "preprocessing.contrast_max", self.contrast_max, rule)


@dataclasses.dataclass
class PlainPreprocessingConfig(PreprocessingConfig):
    mean: float = MISSING
    scale: float = MISSING

    def __post_init__(self) -> None:
        super().__post_init__()
        _require(self.scale != 0, "preprocessing.scale", self.scale, "must not be 0: pixels are divided by it.")


# --- optimizer, learning rate, loss -----------------------------------------------------------------------------------
@dataclasses.dataclass
class OptimizerConfig:
    """What every optimizer has in common; `name` is for run names and tables."""

    _target_: str = MISSING
    name: str = MISSING


@dataclasses.dataclass
class MomentumConfig(OptimizerConfig):
    momentum: float = MISSING
    use_nesterov: bool = MISSING

    def __post_init__(self) -> None:
        _fraction(self, "optimizer", "momentum", zero=True)


@dataclasses.dataclass
class RMSPropConfig(OptimizerConfig):
    decay: float = MISSING
    momentum: float = MISSING
    epsilon: float = MISSING

    def __post_init__(self) -> None:
        _fraction(self, "optimizer", "decay", "momentum", zero=True)
        _at_least(self, "optimizer", 0, "epsilon")


@dataclasses.dataclass
class AdamConfig(OptimizerConfig):
    beta1: float = MISSING
    beta2: float = MISSING
    epsilon: float = MISSING

    def __post_init__(self) -> None:
        _fraction(self, "optimizer", "beta1", "beta2", zero=True)
        _at_least(self, "optimizer", 0, "epsilon")


@dataclasses.dataclass
class AdagradConfig(OptimizerConfig):
    initial_accumulator_value: float = MISSING

    def __post_init__(self) -> None:
        value = self.initial_accumulator_value
        _require(value > 0, "optimizer.initial_accumulator_value", value, "must be above 0.")


@dataclasses.dataclass
class AdadeltaConfig(OptimizerConfig):
    rho: float = MISSING
    epsilon: float = MISSING

    def __post_init__(self) -> None:
        _fraction(self, "optimizer", "rho", zero=True)
        _at_least(self, "optimizer", 0, "epsilon")


@dataclasses.dataclass
class FtrlConfig(OptimizerConfig):
    learning_rate_power: float = MISSING
    initial_accumulator_value: float = MISSING
    l1: float = MISSING
    l2: float = MISSING

    def __post_init__(self) -> None:
        value = self.learning_rate_power
        _require(value <= 0, "optimizer.learning_rate_power", value, "must be 0 or less.")
        _at_least(self, "optimizer", 0, "initial_accumulator_value", "l1", "l2")


@dataclasses.dataclass
class ScheduleConfig:
    """What every learning-rate schedule has in common."""

    _target_: str = MISSING
    name: str = MISSING
    initial: float = MISSING
    warmup_steps: int = MISSING

    def __post_init__(self) -> None:
        _require(self.initial > 0, "learning_rate.initial", self.initial, "must be above 0.")
        _at_least(self, "learning_rate", 0, "warmup_steps")


@dataclasses.dataclass
class ExponentialConfig(ScheduleConfig):
    decay_factor: float = MISSING
    epochs_per_decay: float = MISSING
    staircase: bool = MISSING

    def __post_init__(self) -> None:
        super().__post_init__()
        _fraction(self, "learning_rate", "decay_factor", one=True)
        value = self.epochs_per_decay
        _require(value > 0, "learning_rate.epochs_per_decay", value, "must be above 0.")


@dataclasses.dataclass
class PolynomialConfig(ScheduleConfig):
    end: float = MISSING
    power: float = MISSING

    def __post_init__(self) -> None:
        super().__post_init__()
        _at_least(self, "learning_rate", 0, "end")
        _require(self.power > 0, "learning_rate.power", self.power, "must be above 0.")


@dataclasses.dataclass
class CosineConfig(ScheduleConfig):
    end: float = MISSING

    def __post_init__(self) -> None:
        super().__post_init__()
        rule = f"must lie between 0 and learning_rate.initial={self.initial}."
        _require(0 <= self.end <= self.initial, "learning_rate.end", self.end, rule)


@dataclasses.dataclass
class PiecewiseConfig(ScheduleConfig):
    decay_factor: float = MISSING
    boundaries_epochs: list[float] = MISSING

    def __post_init__(self) -> None:
        super().__post_init__()
        _fraction(self, "learning_rate", "decay_factor", one=True)
        values = self.boundaries_epochs
        ok = bool(values) and values[0] > 0 and all(a < b for a, b in itertools.pairwise(values))
        _require(ok, "learning_rate.boundaries_epochs", values, "must be rising numbers of epochs above 0.")


@dataclasses.dataclass
class LossConfig:
    name: LossName = MISSING
    label_smoothing: float = MISSING
    aux_weight: float = MISSING
    class_weights: Any = MISSING

    def __post_init__(self) -> None:
        _fraction(self, "loss", "label_smoothing", zero=True)
        _at_least(self, "loss", 0, "aux_weight")
        value = self.class_weights
        ok = value in (None, "balanced") or (
            isinstance(value, list) and all(isinstance(w, (int, float)) and w >= 0 for w in value) and any(value)
        )
        _require(
            ok,
            "loss.class_weights",
            value,
            "must be null, 'balanced', or a list of one weight >= 0 a class, not all 0.",
        )


# --- restore ----------------------------------------------------------------------------------------------------------
@dataclasses.dataclass
class RestoreConfig:
    name: str = MISSING
    checkpoint: str | None = _path_field()
    include: Any = MISSING
    exclude: Any = MISSING
    name_map: Any = MISSING
    ignore_missing: bool = MISSING
    trainable_scopes: Any = MISSING

    def __post_init__(self) -> None:
        _require(self.checkpoint != "", "restore.checkpoint", "''", "must name a checkpoint, or be null.")
        for name in ("include", "exclude", "trainable_scopes"):
            setattr(self, name, _scopes(f"restore.{name}", getattr(self, name)))
        _name_map(self.name_map)
        if self.checkpoint is None:
            idle = [n for n in ("include", "exclude", "name_map", "ignore_missing") if getattr(self, n)]
            rule = "there is nothing to restore from; set restore.checkpoint as well."
            for name in idle:
                value = getattr(self, name)
                listed = isinstance(value, list) and name != "name_map"
                _require(False, f"restore.{name}", f"[{','.join(value)}]" if listed else value, rule)


def _scopes(key: str, value: Any) -> list[str]:
    """Returns a list of scopes; they may come as a text with commas, as TF-Slim's flags do."""
    scopes = value.split(",") if isinstance(value, str) else value
    if isinstance(value, str) and not value.strip():
        scopes = []
    rule = "must be a list of scopes, e.g. [vgg_16/fc7,vgg_16/fc8], or heads."
    _require(isinstance(scopes, list) and all(isinstance(s, str) and s.strip() for s in scopes), key, value, rule)
    return [scope.strip() for scope in scopes]


def _name_map(value: Any) -> None:
    key, rule = "restore.name_map", 'must be a list of rules, e.g. [{pattern: "^", replace: "vgg16/"}].'
    _require(isinstance(value, list), key, value, rule)
    for item in value:
        ok = isinstance(item, dict) and item.keys() == {"pattern", "replace"}
        _require(ok and all(isinstance(text, str) for text in item.values()), key, item, rule)
        try:
            re.compile(item["pattern"]).sub(item["replace"], "")
        except (re.error, IndexError) as error:
            raise UserError(f"{key}={item}: is no regular expression with its replacement: {error}.") from error


# --- pipeline, trainer, evaluation, benchmark, tracking ---------------------------------------------------------------
class Cache(enum.Enum):
    none = "none"
    shrunk = "shrunk"


class Decoder(enum.Enum):
    auto = "auto"
    tensorflow = "tensorflow"
    native = "native"


@dataclasses.dataclass
class QueueConfig:
    capacity: int | None = MISSING


@dataclasses.dataclass
class ReadQueueConfig(QueueConfig):
    min_after_dequeue: int | None = MISSING


@dataclasses.dataclass
class QueuesConfig:
    filename: QueueConfig = MISSING
    read: ReadQueueConfig = MISSING
    prefetch: QueueConfig = MISSING
    batch: QueueConfig = MISSING

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            _at_least(getattr(self, field.name), f"pipeline.queues.{field.name}", 1, "capacity")
        _at_least(self.read, "pipeline.queues.read", 0, "min_after_dequeue")


@dataclasses.dataclass
class PipelineConfig:
    name: str = MISSING
    threads: Any = MISSING
    readers: Any = MISSING
    batch_size: int = MISSING
    shuffle: bool = MISSING
    decoder: Decoder = MISSING
    scaled_decode: bool = MISSING
    cache: Cache = MISSING
    cache_short_side: int = MISSING
    cache_dir: str | None = MISSING
    cache_max_bytes: int = MISSING
    queues: QueuesConfig = MISSING

    def __post_init__(self) -> None:
        counts = [name for name in ("threads", "readers") if getattr(self, name) != "auto"]
        for name in counts:
            value = getattr(self, name)
            _require(type(value) is int, f"pipeline.{name}", value, "must be a whole number, or auto.")
        _at_least(self, "pipeline", 1, *counts, "batch_size", "cache_short_side", "cache_max_bytes")
        _at_most(self, "pipeline", 1024, *counts)  # Each is a thread of its own.


@dataclasses.dataclass
class TrainerConfig:
    max_steps: int | None = MISSING
    epochs: float | None = MISSING
    clip_gradient_norm: float = MISSING
    save_every_steps: int = MISSING
    max_to_keep: int = MISSING
    log_every_steps: int = MISSING
    eval_every_steps: int = MISSING
    resume: Resume = MISSING
    check_numerics: bool = MISSING
    deterministic: bool = MISSING

    def __post_init__(self) -> None:
        _at_least(self, "trainer", 1, "max_steps", "save_every_steps", "max_to_keep", "log_every_steps")
        _at_least(self, "trainer", 0, "clip_gradient_norm", "eval_every_steps")
        _at_most(self, "trainer", 10**12, "max_steps", "epochs")
        if self.epochs is not None:
            _require(self.epochs > 0, "trainer.epochs", self.epochs, "must be above 0.")
        if self.max_steps is None and self.epochs is None:
            raise UserError("trainer.max_steps=null and trainer.epochs=null: set one of them, or training has no end.")


@dataclasses.dataclass
class EvaluationConfig:
    batch_size: int | None = MISSING
    top_k: int = MISSING

    def __post_init__(self) -> None:
        _at_least(self, "evaluation", 1, "batch_size", "top_k")


@dataclasses.dataclass
class BenchmarkConfig:
    rounds: int = MISSING
    secs: float = MISSING
    cold: bool = MISSING

    def __post_init__(self) -> None:
        _at_least(self, "benchmark", 1, "rounds")
        _at_most(self, "benchmark", 1000, "rounds")
        _require(0 < self.secs <= 3600, "benchmark.secs", self.secs, "must be above 0 and 3,600 or less.")


@dataclasses.dataclass
class InspectConfig:
    checkpoint: str | None = _path_field()
    other: str | None = _path_field()

    def __post_init__(self) -> None:
        ok = self.other is None or self.checkpoint is not None
        _require(ok, "inspect.other", self.other, "is compared with inspect.checkpoint; set that as well.")


@dataclasses.dataclass
class TrackingConfig:
    backend: Backend = MISSING
    uri: str | None = MISSING
    experiment: str = MISSING
    run_name: str | None = MISSING
    tags: dict[str, str] = MISSING
    on_error: OnError = MISSING
    tensorboard: bool = MISSING


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
    tracking: TrackingConfig = MISSING
    seed: int = MISSING
    output_root: str = MISSING
    run_dir: str = MISSING

    def __post_init__(self) -> None:
        # Two words of 32 bits each make the stateless seeds.
        _require(0 <= self.seed < 2**31, "seed", self.seed, f"must lie in 0..{2**31 - 1}.")


# A `_target_` that stands here has its keys checked; any other is a user's own and gets its keys as they are.
OPTION_SCHEMAS: dict[str, dict[str, type]] = {
    "dataset": {
        "slimexp.dataset.load_digits": DigitsConfig,
        "slimexp.dataset.load_listfile": ListFileConfig,
        "slimexp.dataset.load_image_folder": ImageFolderConfig,
        "slimexp.dataset.load_tfrecord": TFRecordConfig,
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
    "tracking": TrackingConfig,
}
