"""The training step of a classifier, under any `tf.distribute` strategy, and all that it changes."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from slimexp import slim
from slimexp.errors import UserError
from slimexp.training.averages import SUFFIX, MovingAverages, average_name, has_averages
from slimexp.training.classifier import Classifier
from slimexp.training.inference import Inference
from slimexp.training.loss_scale import TOO_SMALL, LossScale, is_loss_scale
from slimexp.training.losses import add_classification_losses
from slimexp.training.optimizers import LearningRate, create_slots, named_slots
from slimexp.training.precision import HALF_TYPES, missing_kernel
from slimexp.training.schedules import Schedule
from slimexp.training.scopes import in_scopes, resolve_scopes

__all__ = ["Trainer"]

_log = logging.getLogger(__name__)
Batch = Mapping[str, tf.Tensor]


class Trainer:
    """Owns what training changes: the network's variables, the optimizer's slots and the global step.

    Args:
        classifier: The network; its variables are created here.
        make_optimizer: From a learning rate to a `tf.compat.v1.train` optimizer.
        schedule: The learning rate over the steps.
        loss: Keyword arguments of `add_classification_losses`.
        strategy: Where the replicas are; the batches given to the steps come from its distributed datasets.
        clip_gradient_norm: Each variable's gradient is cut to this norm (as TF-Slim does it); 0 leaves them.
        gradient_multipliers: Factors for the gradients of variables by prefixes of their names, or `heads`; of several
            that fit, the longest counts. They act before the gradients are cut.
        check_numerics: Whether a loss or gradient that is no number raises before it reaches a weight.
        seed: For dropout, together with step, replica and layer.
        trainable_scopes: Prefixes of the variables to train, or `heads`; empty means all. The others stay as they
            are to the bit, batch norm statistics included (such a layer runs in inference mode), and have no slots.
            As in TF-Slim, their weight decay still counts in the loss.
        moving_average_decay: Keep moving averages of the model's variables with this decay, in (0, 1), which
            evaluation then uses; None: none.
        evaluate_averages: Whether evaluation uses them.
        precision: What the layers compute in as they train: `float32`, `bfloat16` or `float16`. Variables, gradients as
            they are applied, slots, averages and evaluation are float32 in any case. float16 scales its loss, see
            `LossScale`; then a gradient that is no number leaves out its step instead.

    Attributes:
        inference: Evaluates the network with the weights of the moment, or their averages.

    Raises:
        UserError: If a trainable scope or that of a multiplier matches nothing.
    """

    def __init__(
        self,
        classifier: Classifier,
        *,
        make_optimizer: Any,
        schedule: Schedule,
        loss: Mapping[str, Any],
        strategy: tf.distribute.Strategy,
        clip_gradient_norm: float = 0.0,
        gradient_multipliers: Mapping[str, float] | None = None,
        check_numerics: bool = True,
        seed: int = 0,
        trainable_scopes: Sequence[str] = (),
        moving_average_decay: float | None = None,
        evaluate_averages: bool = True,
        precision: str = "float32",
    ) -> None:
        self.classifier = classifier
        self.strategy = strategy
        self.schedule = schedule
        self._loss = dict(loss)
        self._clip_gradient_norm = clip_gradient_norm
        self._check_numerics = check_numerics
        self._seed = seed
        self._dtype = HALF_TYPES.get(precision, tf.float32)
        with strategy.scope():
            self.global_step = tf.Variable(
                0,
                dtype=tf.int64,
                trainable=False,
                name="global_step",
                aggregation=tf.VariableAggregation.ONLY_FIRST_REPLICA,
            )
            classifier.build()
            self._trainable_scopes = resolve_scopes(
                "restore.trainable_scopes",
                trainable_scopes,
                classifier.store.trainable_variables,
                heads=classifier.head_scopes,
                network=classifier.network.__name__,
                kind="trainable variable",
            )
            self._multipliers = self._factors(gradient_multipliers or {})
            learning_rate: LearningRate = lambda: schedule(self.global_step)  # noqa: E731  # Typed, and asked every step.
            self._optimizer = make_optimizer(learning_rate)
            create_slots(self._optimizer, self._trainable)
            self._averages = (
                None
                if moving_average_decay is None
                else MovingAverages(classifier.store.variables, moving_average_decay)
            )
            # bfloat16 has the range of float32.
            self._loss_scale = LossScale(stops=check_numerics) if self._dtype == tf.float16 else None
        weights = self._averages.variables if self._averages and evaluate_averages else None
        self.inference = Inference(classifier, strategy, weights=weights)
        self._last: dict[str, tf.Tensor] = {}
        self._train = tf.function(self._train_replicas, autograph=False)
        self._examine = tf.function(self._examine_replicas, autograph=False)

    @property
    def step(self) -> int:
        """The number of steps done."""
        return int(self.global_step.numpy())

    def overflow_note(self) -> str | None:
        """Says that the last step made here was left out, if it was: see `LossScale`."""
        if self._loss_scale is None or not self._last or np.isfinite(self._last["gradient_norm"].numpy()):
            return None
        return (
            "trainer.precision=float16: the last step changed nothing, as its gradient overflowed; the loss scale has "
            f"come down to {float(self._loss_scale.value()):g}. If that goes on, take trainer.precision=bfloat16."
        )

    def train_step(self, batch: Batch) -> dict[str, tf.Tensor]:
        """Makes one step.

        Args:
            batch: `image`, float32 [B, S, S, 3], and `label` and `valid` as `add_classification_losses` takes them.

        Returns:
            float32 [] each: `loss`, `regularization_loss`, `total_loss` and `gradient_norm` before the step, the
            means over the replicas, and the step's `learning_rate`; with float16 also its `loss_scale`.

        Raises:
            FloatingPointError: If `check_numerics` and the loss or the gradient is no number; the weights are
                as before the step. With float16 the gradient counts only once its loss scale would fall below 1.
            UserError: If an op of the network cannot be computed in the precision.
        """
        try:
            self._last = self._train(batch)
        except tf.errors.InvalidArgumentError as error:
            if TOO_SMALL in error.message:
                raise FloatingPointError(
                    f"{TOO_SMALL} ({self._numbers(batch)}); trainer.precision=bfloat16 has the range of float32"
                ) from error
            if ": Tensor had " in error.message:  # From tf.debugging.check_numerics.
                raise FloatingPointError(self._numbers(batch)) from error
            if self._dtype != tf.float32 and (op := missing_kernel(error)):
                raise UserError(
                    f"trainer.precision={self._dtype.name}: TensorFlow has no {op[0]} of that type for this device, "
                    f"which {self.classifier.network.__name__} asks for at {op[1]}. Cast its inputs to float32 there, "
                    "or train with trainer.precision=float32."
                ) from error
            raise
        return self._last

    def state(self) -> dict[str, np.ndarray]:
        """Returns everything a checkpoint holds, by TF-Slim's names."""
        return {name: variable.read_value().numpy() for name, variable in self._variables().items()}

    def assign(self, values: Iterable[tuple[str, np.ndarray]]) -> None:
        """Gives variables of the model, by name, new values, on every replica; their moving averages start anew."""
        variables = self.classifier.store.variables
        for name, value in values:
            variables[name].assign(value.astype(variables[name].dtype.as_numpy_dtype))
            if self._averages is not None:
                self._averages.start_from_variables([name])

    def statistics(self) -> dict[str, np.ndarray]:
        """Returns what batch norm should be moving: the statistics of all layers that are not frozen."""
        trainable = self.classifier.store.trainable_variables
        return {
            name: variable.read_value().numpy()
            for name, variable in self.classifier.store.variables.items()
            if name not in trainable
            and name.rpartition("/")[2] in ("moving_mean", "moving_variance")
            and not self._is_frozen(name.rpartition("/")[0])
        }

    def num_parameters(self) -> tuple[int, int]:
        """Returns the number of values that are trained, and of those that could be but are frozen."""
        trained = sum(variable.shape.num_elements() for variable in self._trainable)
        return trained, self.classifier.num_parameters() - trained

    def restore(self, values: Mapping[str, np.ndarray]) -> None:
        """Takes back what `state` returned.

        Raises:
            UserError: If model variables are missing or have other shapes: then this is another network's state.
        """
        variables = self._variables()
        problems = [
            f"{name}: {'missing' if name not in values else f'shape {values[name].shape}, not {tuple(variable.shape)}'}"
            for name, variable in variables.items()
            if name in self.classifier.store.variables
            and (name not in values or values[name].shape != tuple(variable.shape))
        ]
        if problems:
            raise UserError(
                f"the checkpoint in run_dir does not fit the network: {len(problems)} of "
                f"{len(self.classifier.store.variables)} variables differ, first {'; '.join(problems[:3])}. "
                "Go on with the settings of the run (model, dataset), or start anew in another run_dir."
            )
        self._say_averages(values)
        fresh = sorted(name for name in variables.keys() - values.keys() if _is_slot(name))
        left = {name for name in values.keys() - variables.keys() if _is_slot(name)}
        if fresh or left:
            same_optimizer = _leaves(fresh) <= _leaves(values) and _leaves(left) <= _leaves(variables)
            _log.warning(
                "%s: %d of its slots start at their initial values (%s).",
                "The optimizer trains other variables than in the checkpoint"
                if same_optimizer
                else "The optimizer is not the one of the checkpoint",
                len(fresh),
                ", ".join(fresh[:2] + ["..."] * (len(fresh) > 2)) or "none",
            )
        for name, variable in variables.items():
            if name in values:
                variable.assign(values[name])
        if self._averages is not None:
            missing = [name for name in self._averages.variables if average_name(name) not in values]
            self._averages.start_from_variables(missing)

    def _say_averages(self, values: Mapping[str, np.ndarray]) -> None:
        """Says if the checkpoint to go on from has moving averages and the trainer none, or the reverse."""
        if self._averages is not None and not has_averages(values):
            _log.warning(
                "trainer.moving_average_decay=%g: the checkpoint has no moving averages; they start from its weights.",
                self._averages.decay,
            )
        elif self._averages is None and has_averages(values):
            _log.warning(
                "trainer.moving_average_decay=null: the checkpoint's moving averages are left out from here on."
            )

    @property
    def _trainable(self) -> list[Any]:
        variables = self.classifier.store.trainable_variables
        return [
            v for name, v in variables.items() if not self._trainable_scopes or in_scopes(name, self._trainable_scopes)
        ]

    def _factors(self, multipliers: Mapping[str, float]) -> dict[str, float]:
        """Returns the factor of each trained variable that has one."""
        factors: dict[str, tuple[int, float]] = {}
        variables = [_op_name(variable) for variable in self._trainable]
        for asked, factor in multipliers.items():
            scopes = resolve_scopes(
                "trainer.gradient_multipliers",
                [asked],
                variables,
                heads=self.classifier.head_scopes,
                network=self.classifier.network.__name__,
                kind="trained variable",
            )
            for scope in scopes:
                for name in variables:
                    if in_scopes(name, [scope]) and len(scope) >= factors.get(name, (0, 1.0))[0]:
                        factors[name] = len(scope), factor
        return {name: factor for name, (_, factor) in factors.items()}

    def _is_frozen(self, layer: str) -> bool:
        """Tells whether no variable below a layer's scope is trained."""
        scopes = self._trainable_scopes
        return bool(scopes) and not any(f"{layer}/".startswith(s) or s.startswith(f"{layer}/") for s in scopes)

    def _variables(self) -> dict[str, Any]:
        slots = dict(named_slots(self._optimizer, self._trainable))
        averages = {} if self._averages is None else self._averages.named()
        scale = {} if self._loss_scale is None else self._loss_scale.named()
        return {**self.classifier.store.variables, **slots, **averages, **scale, "global_step": self.global_step}

    def _train_replicas(self, batch: Batch) -> dict[str, tf.Tensor]:
        values = self._mean(self.strategy.run(self._train_replica, args=(batch,)))
        if self._averages is not None:
            if self._loss_scale is None:
                self._move_averages()
            else:
                tf.cond(tf.math.is_finite(values["gradient_norm"]), self._move_averages, lambda: None)
        return values

    def _move_averages(self) -> None:
        assert self._averages is not None
        with self.strategy.scope():
            self._averages.update(self.strategy, self.global_step.read_value())

    def _train_replica(self, batch: Batch) -> dict[str, tf.Tensor]:
        optimizer = self._optimizer
        if self._loss_scale is not None:
            scale = self._loss_scale.value()
            optimizer = self._loss_scale.around(
                optimizer,
                is_finite=lambda: tf.math.is_finite(values["gradient_norm"]),
                forward_variables=self._forward_variables(),
            )
        values, update_ops = self._losses(batch)
        if self._loss_scale is not None:
            values["loss_scale"] = scale
        slim.training.create_train_op(
            values["total_loss"],
            optimizer,
            global_step=self.global_step,
            update_ops=update_ops,
            variables_to_train=self._trainable,
            transform_grads_fn=lambda gradients: self._transform_gradients(gradients, values),
            check_numerics=self._check_numerics,
        )
        return values

    def _forward_variables(self) -> list[Any]:
        """Returns the variables that the network itself may change as it is computed."""
        trainable = self.classifier.store.trainable_variables
        others = [variable for name, variable in self.classifier.store.variables.items() if name not in trainable]
        if self.strategy.num_replicas_in_sync == 1:
            return others
        # Several replicas cannot write to the rest.
        return [variable for variable in others if variable.aggregation != tf.VariableAggregation.NONE]

    def _losses(self, batch: Batch) -> tuple[dict[str, tf.Tensor], list[Any]]:
        """Builds the network in training mode; a replica takes only the losses and updates that it added itself."""
        replica = tf.distribute.get_replica_context().replica_id_in_sync_group
        randomness = slim.stateless_randomness(seed=self._seed, step=self.global_step, replica=replica)
        with slim.collected() as own, randomness, slim.frozen_statistics(self._is_frozen):
            logits, end_points = self.classifier(batch["image"], is_training=True, dtype=self._dtype)
            add_classification_losses(logits, end_points, batch["label"], valid=batch["valid"], **self._loss)
        loss = tf.add_n(own.losses)
        regularization = tf.add_n(own.regularization_losses) if own.regularization_losses else tf.zeros([])
        values = {
            "loss": loss,
            "regularization_loss": regularization,
            "total_loss": loss + regularization,
            "learning_rate": self.schedule(self.global_step.read_value()),
        }
        return values, own.update_ops

    def _transform_gradients(self, gradients: list[Any], values: dict[str, tf.Tensor]) -> list[Any]:
        if self._multipliers:
            with_gradient = {_op_name(variable) for gradient, variable in gradients if gradient is not None}
            factors = {name: factor for name, factor in self._multipliers.items() if name in with_gradient}
            gradients = slim.learning.multiply_gradients(gradients, factors) if factors else gradients
        # The norm is that of the gradient over all replicas, before clipping.
        norm = tf.linalg.global_norm([gradient for gradient, _ in gradients if gradient is not None])
        values["gradient_norm"] = norm
        if self._clip_gradient_norm > 0:
            gradients = slim.learning.clip_gradient_norms(gradients, self._clip_gradient_norm)
        if not self._check_numerics:
            return gradients
        unchecked = {"learning_rate", "loss_scale", *([] if self._loss_scale is None else ["gradient_norm"])}
        checks = [tf.debugging.check_numerics(value, name) for name, value in values.items() if name not in unchecked]
        with tf.control_dependencies(checks):
            return [(None if g is None else tf.identity(g), variable) for g, variable in gradients]

    def _examine_replicas(self, batch: Batch) -> dict[str, tf.Tensor]:
        def replica(batch: Batch) -> dict[str, tf.Tensor]:
            values, _ = self._losses(batch)
            gradients = tf.gradients(values["total_loss"], self._trainable)
            return {**values, "gradient_norm": tf.linalg.global_norm([g for g in gradients if g is not None])}

        return self._mean(self.strategy.run(replica, args=(batch,)))

    def _mean(self, values: Mapping[str, Any]) -> dict[str, tf.Tensor]:
        return {key: self.strategy.reduce("MEAN", value, axis=None) for key, value in values.items()}

    def _numbers(self, batch: Batch) -> str:
        """Says what the failing step looked like: it is built again without its updates."""
        values = {key: float(value) for key, value in self._examine(batch).items()}
        return ", ".join(f"{key} {value:g}" for key, value in values.items())


def _is_slot(name: str) -> bool:
    """Tells whether what a checkpoint has too much or too little is the optimizer's; averages are spoken of apart."""
    return not name.endswith(SUFFIX) and not is_loss_scale(name)


def _leaves(names: Iterable[str]) -> set[str]:
    return {name.rpartition("/")[2] for name in names}


def _op_name(variable: Any) -> str:
    return variable.name.partition(":")[0]
