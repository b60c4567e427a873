"""Takes steps of a training and keeps what came of each.

By one device or by several that share each batch: `tools/compare_replicas.py`
compares them.
"""

import contextlib
import time

import keras
import numpy as np
import tensorflow as tf

from tbnets import cli
from tbnets.cli import train
from tbnets.layers import configured


class Recorder(keras.callbacks.Callback):
    """Keeps the loss of each step, and its time; ends after some steps.

    Args:
        steps: how many are taken.
    """

    def __init__(self, steps):
        super().__init__()
        self.steps, self.losses, self.times = steps, [], []

    def on_train_batch_begin(self, batch, logs=None):
        """Starts the clock."""
        self._start = time.perf_counter()

    def on_train_batch_end(self, batch, logs=None):
        """Takes the loss of this step alone."""
        self.losses.append(float(logs["loss"]))
        self.times.append(time.perf_counter() - self._start)
        self.model.reset_metrics()
        self.model.stop_training = len(self.losses) >= self.steps


@contextlib.contextmanager
def in_float64():
    """Computes what is traced within in float64, as far as it names a type.

    The package computes losses in `tf.float32`, whatever layers do; it has no
    use for more, but that rounding hides nothing then.
    """

    def where(mask, *values, **named):
        types = [v.dtype for v in values if hasattr(v, "dtype")]
        dtype = types[0] if types else tf.float64
        given = (
            kept["constant"](v, dtype) if isinstance(v, float) else v
            for v in values
        )
        return kept["where"](mask, *given, **named)

    def zeros(shape, dtype=None, **named):
        return kept["zeros"](shape, dtype or tf.float64, **named)

    def constant(value, dtype=None, *more, **named):
        if isinstance(value, float) and dtype is None:
            dtype = tf.float64
        return kept["constant"](value, dtype, *more, **named)

    changed = {"float32": tf.float64, "where": where, "zeros": zeros}
    changed["constant"] = constant
    if not _within:
        _kept.update({name: getattr(tf, name) for name in changed})
    kept = dict(_kept)
    for name, value in changed.items():
        setattr(tf, name, value)
    _within.append(True)
    try:
        yield
    finally:  # Replicas are traced in threads, by turns: the last restores.
        _within.pop()
        if not _within:
            for name, value in kept.items():
                setattr(tf, name, value)


_within, _kept = [], {}


def prepare_double():
    """Makes all layers of float64; their weights begin as those of float32."""
    keras.backend.set_floatx("float64")
    set_policy = keras.mixed_precision.set_global_policy
    keras.mixed_precision.set_global_policy = lambda _: set_policy("float64")

    def build(self, **kwargs):
        options = {**kwargs, "dtype": "float64", "trainable": False}
        configured.ConfiguredLayer.__init__(self, **options)

    def constant(self, name, shape, initial="zeros", dtype="float32"):
        dtype = "float64" if dtype == "float32" else dtype
        make(self, name, shape, initial, dtype)

    make = configured.FittedLayer.constant
    configured.FittedLayer.__init__ = build
    configured.FittedLayer.constant = constant


def train_part(options):
    """Takes the steps of one training; the chief writes what came of it."""

    def fit(session, examples, _):
        network, batches = session.network, session.batches
        recorder, epoch = Recorder(options.steps), 0
        if options.double:
            step = network.train_step

            def train_step(batch):
                wide = {
                    name: tf.cast(array, tf.float64)
                    if array.dtype.is_floating
                    else array
                    for name, array in batch.items()
                }
                with in_float64():
                    return step(wide)

            network.train_step = train_step
        while len(recorder.losses) < options.steps:
            session.task.data.start_epoch(network, examples, epoch)
            batches.epoch = epoch
            network.fit(
                session.workers.share(batches),
                steps_per_epoch=batches.num_batches,
                initial_epoch=epoch,
                epochs=epoch + 1,
                callbacks=[recorder],
                shuffle=False,
                verbose=0,
            )
            epoch += 1
        if session.workers.is_chief:
            weights = [np.ravel(np.asarray(w.numpy())) for w in network.weights]
            arrays = {"weights": np.concatenate(weights)}
            arrays |= {"losses": recorder.losses, "times": recorder.times}
            np.savez(options.part, **arrays)

    if options.double:
        prepare_double()
    train.fit_or_stop, train._finish = fit, lambda session, queries: None
    words = [f"--flagfile={options.configuration}", "--noexport"]
    cli.call("train", words + [f"--{flag}" for flag in options.more])
