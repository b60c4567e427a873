"""Optimizers and learning rates by name."""

import inspect
import warnings

import keras
import tensorflow as tf

from tbnets.errors import InputError, check_choice
from tbnets.training.fused_optimizers import FusedAdam, FusedSGD

OPTIMIZERS = {"sgd": FusedSGD, "adam": FusedAdam, "adamw": FusedAdam}
NOT_DECAYED = ["bias", "gamma", "beta", "logit_scale"]


def build_schedule(name, rate, *, decay_rate, decay_steps, total_steps):
    """Returns the learning rate: a number, or a Keras schedule over steps.

    Args:
        name: `constant`; `step` (multiplied by `decay_rate` every
            `decay_steps` steps; Wang et al. 2016: by 0.1 every 10 epochs);
            `exponential` (the same decay at every step); or `cosine` (to 0
            over `total_steps`).
        rate: the learning rate of the first step.
        decay_rate: see `name`.
        decay_steps: see `name`; rounded, at least 1.
        total_steps: see `name`.
    """
    if name == "constant":
        return rate
    if name == "cosine":
        return keras.optimizers.schedules.CosineDecay(rate, total_steps)
    return keras.optimizers.schedules.ExponentialDecay(
        rate, max(1, round(decay_steps)), decay_rate, staircase=name == "step"
    )


def _addons_optimizer(name, rate, weight_decay):
    """Returns an optimizer of tensorflow-addons by its name."""
    try:
        with warnings.catch_warnings():  # It warns of its end of life.
            warnings.simplefilter("ignore")
            import tensorflow_addons as tfa
    except ImportError as error:
        raise InputError(
            f"`--optimizer` must be one of {', '.join(OPTIMIZERS)}, or of "
            f"tensorflow-addons. Received: --optimizer={name}. Install that on "
            'Python <= 3.11: pip install -e ".[addons]"'
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


def build_optimizer(
    name,
    rate,
    *,
    momentum=0.0,
    weight_decay=0.0,
    weight_average=0.0,
):
    """Returns an optimizer by its name.

    Weight decay is decoupled from the gradient (as in AdamW) and scaled by
    the learning rate. It leaves out biases, batch normalisation and a learned
    temperature.

    Args:
        name: a key of `OPTIMIZERS`, or a class of tensorflow-addons.
        rate: the learning rate, a number or a Keras schedule.
        momentum: of sgd.
        weight_decay: of all optimizers but adam.
        weight_average: momentum of a moving average of the weights, which
            replaces them at the end of an epoch; 0 for none.

    Raises:
        ValueError: an unknown name; the known ones are listed.
    """
    if name not in OPTIMIZERS:
        return _addons_optimizer(name, rate, weight_decay)
    options = {"momentum": momentum} if name == "sgd" else {}
    if name != "adam" and weight_decay:
        options["weight_decay"] = weight_decay
    if weight_average:
        options |= {"use_ema": True, "ema_momentum": weight_average}
    optimizer = OPTIMIZERS[name](rate, **options)
    if optimizer.weight_decay:
        optimizer.exclude_from_weight_decay(var_names=NOT_DECAYED)
    return optimizer


def create_optimizer_variables(optimizer, network):
    """Makes an optimizer create its variables before they are restored."""
    if hasattr(optimizer, "build"):
        optimizer.build(network.trainable_variables)
        return
    # Optimizers of tensorflow-addons make theirs at the first step.
    zeros = [(tf.zeros_like(v), v) for v in network.trainable_variables]
    optimizer.apply_gradients(zeros)


def current_learning_rate(optimizer):
    """Returns the learning rate of `optimizer`, a float32 scalar.

    Under a schedule it is the rate of the coming step; only the optimizers
    of Keras 2 (not those of tensorflow-addons, which hand out the schedule
    itself) give the rate of the last step taken.
    """
    rate = optimizer.learning_rate
    if callable(rate) and not isinstance(rate, tf.Variable):
        rate = rate(optimizer.iterations)
    return tf.cast(tf.convert_to_tensor(rate), tf.float32)


def loss_scale(optimizer):
    """Returns the factor that an optimizer divides gradients by.

    A loss must have been multiplied by it. Keras 3 has it under
    `mixed_float16`, as a tensor, lest small gradients become 0, and skips
    steps in which they overflow; elsewhere it is a number, mostly 1.
    """
    scaled = getattr(optimizer, "scale_loss", None)
    return scaled(1.0) if scaled else 1.0
