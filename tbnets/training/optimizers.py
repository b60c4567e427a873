"""Optimizers and learning rate schedules by name."""

import inspect
import warnings
from collections.abc import Iterable, Sequence
from typing import Any

import keras
import tensorflow as tf

from tbnets.checks import short_repr
from tbnets.errors import InputError, check_choice

# Keras' optimizers with fused updates.
#
# Keras updates with a dozen small operations that read and write whole arrays.
# These classes use a single TensorFlow operation. Formula, variables,
# schedules, decay, clipping, averages, configs and checkpoints are compatible.
# A distribution strategy updates each copy of a mirrored variable. AMSGrad and
# SGD without momentum run Keras' code, as the operation does not support them.
#
# SGD returns the same results as in Keras; the results of Adam agree up to
# rounding. The operation computes 1 - beta_2 in float32, with a relative
# error of 1.3e-5 for 0.999, which affects Adam's velocity. After 50 steps,
# weights agreed to 1e-6 relative to the largest weight.
#
# A sparse gradient (`tf.IndexedSlices`, for a table of word vectors) is
# converted to a dense gradient before any clipping. Repeated rows are summed,
# and momentum moves every row of the table, including words outside the batch,
# as in Keras 2. Keras 3 clips and squares each repeated row separately, which
# is wrong for a word that occurs twice in a batch.


def optimizer_variables(optimizer):
    """Returns an optimizer's variables as a list, with any Keras version."""
    variables = optimizer.variables
    return list(variables() if callable(variables) else variables)


def _moments(variables, moments):
    """Returns a function from a variable to its moments, on each device."""
    moments_of = {}
    for variable, variable_moments in zip(variables, moments):
        for copy, *copies in zip(*map(_copies, (variable, *variable_moments))):
            moments_of[copy.ref()] = copies
    return lambda variable: moments_of.get(variable.ref(), ())


def _copies(variable):
    """Returns a variable's copies, one `tf.Variable` for each device."""
    strategy = tf.distribute.get_strategy()
    if not isinstance(variable, tf.Variable):
        variable = variable.value  # Keras 3.
    return strategy.experimental_local_results(variable)


def sum_repeated_rows(gradient):
    """Sums the rows of `tf.IndexedSlices` that have the same index.

    Returns a dense gradient or None unchanged.
    """
    if not isinstance(gradient, tf.IndexedSlices):
        return gradient
    rows, groups = tf.unique(gradient.indices)
    sums = tf.math.unsorted_segment_sum(gradient.values, groups, tf.size(rows))
    return tf.IndexedSlices(sums, rows, gradient.dense_shape)


def _dense(gradient):
    return gradient if gradient is None else tf.convert_to_tensor(gradient)


ADAM_MOMENTS = {"2": ("m", "v"), "3": ("momentum", "velocity")}
"""Names of Adam's moments, by Keras version."""


class _Fused:
    """Base class of optimizers that update a variable in one operation."""

    moments = None

    __repr__ = short_repr("learning_rate")

    def build(self, variables: Sequence[Any]) -> None:
        if self.moments is None:
            self.moments = _moments(variables, self._create(variables))

    def apply(self, grads: Sequence[Any], *args: Any, **kwargs: Any) -> Any:
        """Updates the variables; only Keras 3 calls this method."""
        return super().apply([*map(_dense, grads)], *args, **kwargs)

    def apply_gradients(
        self, grads_and_vars: Iterable[tuple[Any, Any]], **kwargs: Any
    ) -> Any:
        """Updates each variable with its gradient."""
        pairs = [(_dense(grad), variable) for grad, variable in grads_and_vars]
        return super().apply_gradients(pairs, **kwargs)

    def update_step(
        self, gradient: Any, variable: Any, *learning_rate: Any
    ) -> None:
        """Updates one variable; only Keras 3 passes the learning rate."""
        moments = self.moments(variable)
        if not moments:
            super().update_step(gradient, variable, *learning_rate)
            return
        (rate,) = learning_rate or (self.learning_rate,)
        dtype = moments[0].dtype
        inputs = {
            "var": variable.handle,
            "lr": tf.cast(rate, dtype),
            "grad": tf.cast(gradient, dtype),
        }
        self._update(moments, dtype, inputs)


@keras.saving.register_keras_serializable(package="tbnets")
class FusedAdam(_Fused, keras.optimizers.Adam):
    """`keras.optimizers.Adam` with its update in a single operation.

    If `weight_decay` is set, this is AdamW.

    Args:
        learning_rate: a number or a Keras schedule.
        name: defaults to the name in Keras, so that the variables keep
            their names.
        **kwargs: arguments of `keras.optimizers.Adam`.

    Example:
        network.compile(tbnets.FusedAdam(1e-4), tbnets.TripletLoss())

    Source: Kingma and Ba 2015, the formula before Sec. 2.1.
    """

    def __init__(
        self, learning_rate: Any = 0.001, name: str = "adam", **kwargs: Any
    ) -> None:
        super().__init__(learning_rate, name=name, **kwargs)

    def _create(self, variables):
        if self.amsgrad:
            super(_Fused, self).build(variables)
            return []
        # Replaces Adam's own `build`, which has no public list of moments.
        super(keras.optimizers.Adam, self).build(variables)
        names = ADAM_MOMENTS[keras.__version__[0]]
        return [
            [self.add_variable_from_reference(variable, name) for name in names]
            for variable in variables
        ]

    def _update(self, moments, dtype, inputs):
        momentum, velocity = moments
        step = tf.cast(self.iterations, dtype) + 1
        beta_1 = tf.cast(self.beta_1, dtype)
        beta_2 = tf.cast(self.beta_2, dtype)
        tf.raw_ops.ResourceApplyAdam(
            m=momentum.handle,
            v=velocity.handle,
            beta1_power=beta_1**step,
            beta2_power=beta_2**step,
            beta1=beta_1,
            beta2=beta_2,
            epsilon=tf.cast(self.epsilon, dtype),
            **inputs,
        )


@keras.saving.register_keras_serializable(package="tbnets")
class FusedSGD(_Fused, keras.optimizers.SGD):
    """`keras.optimizers.SGD` with its update in a single operation.

    Args:
        learning_rate: a number or a Keras schedule.
        momentum: factor of the previous update, in [0, 1]; 0 uses Keras' own
            update. Wang et al. 2016: 0.9.
        name: defaults to the name in Keras, so that the variables keep
            their names.
        **kwargs: arguments of `keras.optimizers.SGD`.

    Example:
        optimizer = tbnets.FusedSGD(0.1, momentum=0.9)
        network.compile(optimizer, tbnets.TripletLoss())

    Source: Sutskever et al. 2013, Sec. 2.
    """

    def __init__(
        self,
        learning_rate: Any = 0.01,
        momentum: float = 0.0,
        name: str = "sgd",
        **kwargs: Any,
    ) -> None:
        super().__init__(learning_rate, momentum, name=name, **kwargs)

    def _create(self, variables):
        super(_Fused, self).build(variables)
        return [[m] for m in self.momentums] if self.momentum else []

    def _update(self, moments, dtype, inputs):
        (momentum,) = moments
        tf.raw_ops.ResourceApplyKerasMomentum(
            accum=momentum.handle,
            momentum=tf.cast(self.momentum, dtype),
            use_nesterov=self.nesterov,
            **inputs,
        )


MOMENTUM = 0.9
"""Momentum of sgd (Wang 2016)."""
OPTIMIZERS = {"sgd": FusedSGD, "adam": FusedAdam, "adamw": FusedAdam}
NOT_DECAYED = ["bias", "gamma", "beta"]


def build_schedule(name, rate, *, decay_steps, total_steps):
    """Returns the learning rate: a number, or a Keras schedule over steps.

    `name` is `constant`, `step`, `exponential` or `cosine`. `step` multiplies
    the rate by 0.1 every `decay_steps` (Wang et al. 2016: every 10 epochs),
    `exponential` decays smoothly at the same pace, and `cosine` decays to 0
    over `total_steps`.
    """
    if name == "constant":
        return rate
    if name == "cosine":
        return keras.optimizers.schedules.CosineDecay(rate, total_steps)
    return keras.optimizers.schedules.ExponentialDecay(
        rate, max(1, round(decay_steps)), 0.1, staircase=name == "step"
    )


def _addons_optimizer(name, rate, weight_decay):
    try:
        with warnings.catch_warnings():  # About the end of its support.
            warnings.simplefilter("ignore")
            import tensorflow_addons as tfa
    except ImportError as error:
        raise InputError(
            "--optimizer",
            f"be {', '.join(OPTIMIZERS)} without tensorflow-addons",
            name,
            'On Python <= 3.11 run: pip install -e ".[addons]"',
        ) from error
    known = {
        key: value
        for key, value in vars(tfa.optimizers).items()
        if inspect.isclass(value)
        and issubclass(value, keras.optimizers.legacy.Optimizer)
        and "learning_rate" in inspect.signature(value).parameters
    }
    check_choice("--optimizer", name, [*OPTIMIZERS, *sorted(known)])
    arguments = {"learning_rate": rate}
    if "weight_decay" in inspect.signature(known[name]).parameters:
        arguments["weight_decay"] = weight_decay
    return known[name](**arguments)


def build_optimizer(name, rate, *, weight_decay=0.0):
    """Returns the optimizer `name`, from `OPTIMIZERS` or tensorflow-addons.

    `rate` is a number or a Keras schedule. sgd has momentum 0.9. Weight decay
    is decoupled from the gradient, as in AdamW, and is not applied to biases
    and batch normalisation. adam ignores `weight_decay`.
    """
    if name not in OPTIMIZERS:
        return _addons_optimizer(name, rate, weight_decay)
    options = {"momentum": MOMENTUM} if name == "sgd" else {}
    if name != "adam" and weight_decay:
        options["weight_decay"] = weight_decay
    optimizer = OPTIMIZERS[name](rate, **options)
    if optimizer.weight_decay:
        optimizer.exclude_from_weight_decay(var_names=NOT_DECAYED)
    return optimizer


def create_optimizer_variables(optimizer, network):
    """Creates an optimizer's variables before they are restored."""
    if hasattr(optimizer, "build"):
        optimizer.build(network.trainable_variables)
        return
    # Optimizers of tensorflow-addons create variables at the first step.
    zeros = [(tf.zeros_like(v), v) for v in network.trainable_variables]
    optimizer.apply_gradients(zeros)


def current_learning_rate(optimizer):
    """Returns the learning rate of the next step, a float32 scalar.

    With a schedule and a Keras 2 optimizer, this is the rate of the last step.
    """
    rate = optimizer.learning_rate
    if callable(rate) and not isinstance(rate, tf.Variable):
        rate = rate(optimizer.iterations)
    return tf.cast(tf.convert_to_tensor(rate), tf.float32)


def loss_scale(optimizer):
    """Returns the factor by which the loss must be multiplied.

    The optimizer divides the gradients by this factor. The factor is a tensor
    under `mixed_float16` in Keras 3, and otherwise a number, usually 1.
    """
    scaled = getattr(optimizer, "scale_loss", None)
    return scaled(1.0) if scaled else 1.0
