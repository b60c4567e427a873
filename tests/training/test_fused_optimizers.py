"""Compares the fused optimizers with the optimizers of Keras."""

import functools

import keras
import numpy as np
import pytest
import tensorflow as tf

from tbnets.training.checkpoints import optimizer_variables
from tbnets.training.optimizers import FusedAdam, FusedSGD

KERAS_2 = keras.__version__.startswith("2.")
STEPS = 6
SHAPES = {"kernel": (7, 5), "bias": (5,), "scale": ()}


KERAS = {
    "adam": keras.optimizers.Adam,
    "adam_w": keras.optimizers.AdamW,
    "SGD": keras.optimizers.SGD,
}
# Name -> (Keras' optimizer, its arguments; a true `cosine` is a schedule).
CASES = {
    "adam": ("adam", {}),
    "adam, other numbers": (
        "adam",
        {"beta_1": 0.8, "beta_2": 0.95, "epsilon": 1e-3},
    ),
    "adam, averages": ("adam", {"use_ema": True, "ema_overwrite_frequency": 4}),
    "amsgrad": ("adam", {"amsgrad": True}),
    "adamw": ("adam_w", {"weight_decay": 0.1}),
    "adamw, schedule and clipping": (
        "adam_w",
        {"cosine": True, "weight_decay": 0.1, "global_clipnorm": 0.5},
    ),
    "sgd": ("SGD", {}),
    "sgd, nesterov": ("SGD", {"momentum": 0.9, "nesterov": True}),
    "sgd, schedule, decay and clipping": (
        "SGD",
        {
            "cosine": True,
            "momentum": 0.9,
            "weight_decay": 0.01,
            "clipnorm": 0.5,
        },
    ),
}


class Weights(keras.layers.Layer):
    """Weights of all ranks."""

    def build(self, input_shape):
        """Creates the weights."""
        for name, shape in SHAPES.items():
            self.add_weight(name=name, shape=shape, initializer="zeros")
        super().build(input_shape)


def made_weights(seed=0):
    layer = Weights(name="weights")  # Keras would add a number to the name.
    layer.build((None,))
    generator = np.random.default_rng(seed)
    for variable in layer.trainable_variables:
        variable.assign(generator.normal(size=variable.shape))
    return layer.trainable_variables


def make(name, fused, variables):
    """Returns a built optimizer of `CASES`; biases do not decay."""
    kind, arguments = CASES[name]
    arguments, rate = {**arguments}, 0.1 if kind == "SGD" else 0.01
    if arguments.pop("cosine", False):
        rate = keras.optimizers.schedules.CosineDecay(rate, STEPS)
    if fused:
        if kind == "adam_w":
            arguments["name"] = kind
        made = FusedSGD if kind == "SGD" else FusedAdam
        optimizer = made(rate, **arguments)
    else:
        optimizer = KERAS[kind](rate, **arguments)
    if optimizer.weight_decay:
        optimizer.exclude_from_weight_decay(var_names=["bias"])
    optimizer.build(variables)
    return optimizer


def gradients(step, seed=1):
    generator = np.random.default_rng([seed, step])
    return [
        tf.constant(generator.normal(size=shape), tf.float32)
        for shape in SHAPES.values()
    ]


def run(optimizer, variables, steps, jit_compile=None):
    """Takes steps; returns the values of the weights and of the optimizer.

    The steps run eagerly if `jit_compile` is None, otherwise in a graph.
    """

    def step(*arrays):
        optimizer.apply_gradients(zip(arrays, variables))

    if jit_compile is not None:
        step = tf.function(step, autograph=False, jit_compile=jit_compile)
    for i in steps:
        step(*gradients(i))
    return [v.numpy() for v in [*variables, *optimizer_variables(optimizer)]]


def assert_close(found, wanted, num_weights=3):
    """Compares arrays, relative to the largest number of each.

    The arrays after the weights may be velocities, whose factor 1 - 0.999 has
    a relative error of 1.3e-5 in float32.
    """
    for i, (one, other) in enumerate(zip(found, wanted, strict=True)):
        tolerance = 1e-6 if i < num_weights else 2e-5
        largest = np.abs(other).max()
        np.testing.assert_allclose(one, other, 0, tolerance * largest)


@functools.cache
def of_keras(name):
    """Returns the values of `run` for Keras after half and all steps."""
    variables = made_weights()
    optimizer = make(name, False, variables)
    half = STEPS // 2
    return [
        run(optimizer, variables, steps)
        for steps in (range(half), range(half, STEPS))
    ]


@pytest.mark.parametrize("name", CASES)
def test_fused_optimizers_equal_those_of_keras(name):
    fused = made_weights()
    optimizer, half = make(name, True, fused), STEPS // 2
    assert_close(run(optimizer, fused, range(half)), of_keras(name)[0])
    found = run(optimizer, fused, range(half, STEPS), jit_compile=False)
    assert_close(found, of_keras(name)[1])


@pytest.mark.parametrize("name", ["adamw", "sgd, nesterov"])
def test_fused_optimizers_under_xla_equal_those_of_keras(name):
    fused = made_weights()
    found = run(make(name, True, fused), fused, range(STEPS), jit_compile=True)
    assert_close(found, of_keras(name)[1])


# Row 1 occurs twice; rows 0 and 2 do not occur.
SLICES = tf.IndexedSlices([[1.0, 2], [3, 4], [5, 6]], [1, 1, 3], [4, 2])
OPTIONS = [
    {},
    {"clipnorm": 0.5},
    {"global_clipnorm": 0.5},
    {"clipvalue": 5.0},  # Of the summed 6, not of 2 and 4.
    {"weight_decay": 0.1},
    {"use_ema": True, "ema_overwrite_frequency": 2},
]


@pytest.mark.parametrize(
    "kind, options",
    [(kind, each) for kind in ("adam", "SGD") for each in OPTIONS]
    + [("adam", {"amsgrad": True, "clipnorm": 0.5})]
    + [("SGD", {"momentum": 0.9, "nesterov": True, "clipnorm": 0.5})],
)
def test_sparse_gradient_moves_weights_as_the_dense_gradient(kind, options):
    found = []
    for make, gradient in (
        ({"adam": FusedAdam, "SGD": FusedSGD}[kind], SLICES),
        (KERAS[kind], tf.convert_to_tensor(SLICES)),
    ):
        table = keras.layers.Embedding(4, 2, embeddings_initializer="ones")
        table.build((None,))
        (variable,) = table.trainable_variables
        optimizer = make(0.01, **options)
        for _ in range(3):
            optimizer.apply_gradients([(gradient, variable)])
        found.append([variable.numpy()])
        found[-1] += [v.numpy() for v in optimizer_variables(optimizer)]
    assert_close(*found, num_weights=1)


def test_only_variables_with_gradients_change():
    variables = made_weights()
    before = [v.numpy() for v in variables]
    optimizer = make("adam", True, variables)
    optimizer.apply_gradients([(tf.ones((5,)), variables[1])])
    # The first step of Adam has the length of the learning rate.
    np.testing.assert_allclose(variables[1].numpy(), before[1] - 0.01, 1e-5)
    for i in (0, 2):
        np.testing.assert_array_equal(variables[i].numpy(), before[i])


@pytest.mark.parametrize("fused", [False, True], ids=["keras", "fused"])
def test_loss_scaling_does_not_change_the_step(fused):
    variables = made_weights()
    optimizer = keras.mixed_precision.LossScaleOptimizer(
        make("adam", fused, variables)
    )
    optimizer.build(variables)
    scale = 2.0**15
    for wrong in (False, True):
        arrays = [scale * gradient for gradient in gradients(0)]
        if wrong:  # The optimizer skips this step.
            arrays[0] = arrays[0] * np.inf
        if KERAS_2:  # Keras 3 divides by the scale itself.
            arrays = optimizer.get_unscaled_gradients(arrays)
        optimizer.apply_gradients(zip(arrays, variables))
    wanted = made_weights()
    run(make("adam", False, wanted), wanted, range(1))
    assert_close([v.numpy() for v in variables], [v.numpy() for v in wanted])
