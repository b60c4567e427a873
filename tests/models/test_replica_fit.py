"""Compares the training loop for replicas with `fit`, on one replica."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import tbnets
from tbnets.models import fitting
from tests.refusals import refused

ROWS = np.random.default_rng(0).normal(size=(9, 6)).astype(np.float32)
BACKUP = keras.callbacks.BackupAndRestore("never")
EXAMPLES = tbnets.Examples.from_arrays(ROWS, ROWS, np.arange(9))


def make_network():
    keras.utils.set_random_seed(0)
    with tf.distribute.MirroredStrategy(["CPU:0"]).scope():
        branches = tbnets.Branch((4,)), tbnets.Branch((4,))
        network = tbnets.EmbeddingNetwork(*branches)
        network.build({"images": (None, 6), "captions": (None, 6)})
        sgd = keras.optimizers.SGD(0.1, use_ema=True, ema_momentum=0.5)
        loss = tbnets.InfoNCELoss(0.2, {"text_to_image": 1.0})
        network.compile(sgd, loss)
    return network


class Heard(keras.callbacks.Callback):
    """Records its calls; ends the training in the second epoch."""

    def __init__(self):
        super().__init__()
        self.calls = []
        names = "train", "epoch", "train_batch", "test", "test_batch"
        for name in names:
            for moment in ("begin", "end"):
                called = f"on_{name}_{moment}"
                setattr(self, called, self._hear(called))

    def _hear(self, name):
        def hear(*arguments, logs=None):
            *arguments, logs = (
                (*arguments, logs) if logs is not None else arguments
            )
            numbers = {k: float(v) for k, v in (logs or {}).items()}
            self.calls.append((name, *arguments, numbers, dict(self.params)))
            ends = [c for c in self.calls if c[:2] == ("on_train_batch_end", 0)]
            if len(ends) == 2:
                self.model.stop_training = True

        return hear


def test_callbacks_get_the_calls_of_keras_fit(eagerly):
    if keras.__version__.startswith("2."):
        pytest.skip("its fit has no need of another, and other parameters")
    by_keras, by_us = make_network(), make_network()
    heard = Heard(), Heard()
    batches = tbnets.EpochBatches(EXAMPLES, 5, 1, seed=0)
    options = {"epochs": 9, "initial_epoch": 1, "verbose": 0}
    others = tbnets.EpochBatches(EXAMPLES, 5, 1, seed=1)
    options |= {"validation_data": others.dataset, "validation_freq": 2}
    options |= {"x": batches.dataset, "shuffle": False}
    theirs = by_keras.fit(callbacks=[heard[0]], **options)
    ours = fitting.fit_replicas(by_us, callbacks=[heard[1]], **options)
    assert heard[0].calls == heard[1].calls
    assert ours.epoch == theirs.epoch == [1, 2]
    assert theirs.history == ours.history and "val_loss" in ours.history
    for one, other in zip(by_keras.weights, by_us.weights):
        np.testing.assert_array_equal(one, other)


@pytest.fixture(scope="module")
def network():
    """Returns a network whose steps the tests replace."""
    made = make_network()
    made.optimizer.use_ema = False  # The replaced steps create no averages.
    return made


def test_an_endless_data_set_continues_and_a_finite_one_restarts(network):
    seen = []

    def step(batches):
        seen.append(int(next(batches)))
        return {}

    network.train_function = step
    options = {"epochs": 2, "steps_per_epoch": 2, "verbose": 0}
    for data in (tf.data.Dataset.range(3).repeat(), tf.data.Dataset.range(3)):
        fitting.fit_replicas(network, x=data, **options)
    assert seen == [0, 1, 2, 0, 0, 1, 0, 1]


BATCHES = tbnets.EpochBatches(EXAMPLES, 5, 1, seed=0).dataset


@pytest.mark.parametrize("name", fitting.PER_REPLICA)
def test_optimizer_options_per_replica_are_rejected(network, name, monkeypatch):
    optimizer = keras.optimizers.SGD(0.1)
    setattr(optimizer, name, 2)
    scaled = keras.mixed_precision.LossScaleOptimizer(optimizer)
    for one in (optimizer, scaled):
        monkeypatch.setattr(network, "optimizer", one)
        with refused(name):
            fitting.fit_replicas(network, x=BATCHES, verbose=0)


@pytest.mark.parametrize(
    "argument, arguments",
    [
        ("class_weight", {"class_weight": 1}),
        ("x", {"steps_per_epoch": 9}),
        ("steps_per_epoch", {"x": BATCHES.repeat()}),
        ("callbacks", {"callbacks": [BACKUP]}),
    ],
)
def test_unsupported_arguments_of_fit_are_rejected(
    network, argument, arguments
):
    network.train_function = lambda batches: batches.get_next() and {}
    with refused(argument):
        fitting.fit_replicas(
            network, **{"x": BATCHES, "verbose": 0} | arguments
        )
