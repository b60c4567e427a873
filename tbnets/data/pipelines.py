"""How `tf.data` reads: as the code says, with nothing tuned on the way."""

import tensorflow as tf


def untuned(dataset: tf.data.Dataset) -> tf.data.Dataset:
    """Returns a dataset that `tf.data` does not tune while it is read.

    The thread that tunes sleeps for twice as long each time, and where a
    dataset ends it is not always woken: its reader then waits until it has
    slept, which may double the time of an epoch or an extraction. Here all
    buffers and parallel calls are given as numbers, so that nothing is left
    to tune.

    Args:
        dataset: the last of a pipeline; what reads it sees the option.
    """
    options = tf.data.Options()
    options.autotune.enabled = False
    return dataset.with_options(options)
