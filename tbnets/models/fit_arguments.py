"""What `fit` is given -> what Keras' `fit` takes, checked."""

from collections.abc import Mapping

import keras
import numpy as np
import tensorflow as tf

from tbnets.checked_numbers import check_finite
from tbnets.errors import InputError, InputTypeError
from tbnets.models.finite import FiniteSteps
from tbnets.training.retrieval_metrics import RetrievalMetrics


class _Epochs(keras.callbacks.Callback):
    """Tells batches which epoch it is."""

    def __init__(self, batches):
        super().__init__()
        self.batches = batches

    def on_epoch_begin(self, epoch, logs=None):
        """Sets it, before the first batch is drawn."""
        self.batches.epoch = epoch


def prepare(arguments, num_words):
    """Makes arguments of our `fit` those of Keras, in their place.

    Batches that are drawn anew each epoch (`data.batches.EpochBatches`) become
    their dataset. What adds to the logs of an epoch, and what ends it, comes
    before the callbacks that read them.

    Args:
        arguments: dict, changed.
        num_words: ids of words that the network knows; None where captions
            are something else.

    Raises:
        ValueError: as `check_arrays`.
    """
    callbacks, own = arguments.get("callbacks"), [FiniteSteps()]
    for name in ("x", "validation_data"):
        data = arguments.get(name)
        check_arrays(name, data, num_words)
        if hasattr(data, "dataset"):
            arguments[name] = data.dataset
            if name == "x":
                arguments["shuffle"] = False
                own.append(_Epochs(data))
    if isinstance(callbacks, keras.callbacks.CallbackList):
        for one in own:
            callbacks.append(one)
        return
    callbacks = tf.nest.flatten(callbacks or [])
    callbacks.sort(key=lambda one: not isinstance(one, RetrievalMetrics))
    arguments["callbacks"] = own + callbacks


def check_arrays(name, arrays, num_words=None):
    """Refuses what no network takes, in arrays that are in memory.

    Args:
        name: what the arrays are called together.
        arrays: dict of arrays, or anything else, which is let through.
        num_words: as in `prepare`.

    Raises:
        TypeError: one holds text, or is no array.
        ValueError: one has no rows, or another number of them, NaN, infinity
            or ids of words that are none; names the array and the row.
    """
    if not isinstance(arrays, Mapping):
        return
    counts = {}
    for key, array in arrays.items():
        called = f"{name}[{key!r}]"
        if isinstance(array, list | tuple):
            raise InputTypeError(
                f"`{called}` must be an array. Received: a "
                f"{type(array).__name__}. Use numpy.asarray; captions become "
                "ids by `tbnets.Tokenizer(vocabulary)(captions).numpy()`."
            )
        if isinstance(array, np.ndarray):
            counts[called] = len(array) if array.ndim else 0
            _check_array(called, array)
            if key == "captions" and num_words and array.ndim == 2:
                _check_words(called, array, num_words)
    if counts and (len(set(counts.values())) > 1 or not min(counts.values())):
        found = ", ".join(f"{one} has {count}" for one, count in counts.items())
        raise InputError(
            f"`{name}` must have as many rows in each array, at least one: an "
            f"image with one of its captions. Received: {found}. Batches of "
            "fewer images than captions come by `tbnets.EpochBatches`."
        )


def _check_array(called, array):
    """Refuses text, and numbers that are not finite."""
    if array.dtype.kind not in "fiub" and array.dtype.name != "bfloat16":
        raise InputTypeError(
            f"`{called}` must hold numbers. Received: dtype {array.dtype}. "
            "Captions become ids by `tbnets.Tokenizer(vocabulary)(captions)"
            ".numpy()`, names of images by numpy.unique(return_inverse=True)."
        )
    check_finite(called, array)


def _check_words(called, array, num_words):
    """Refuses ids of words that a network has no vectors of."""
    whole = array.dtype.kind in "iu"
    if not whole or array.min(initial=0) < 0 or array.max() >= num_words:
        raise InputError(
            f"`{called}` must be ids of words, integers from 0 to "
            f"{num_words - 1}. Received: {array.min()} to {array.max()}, dtype "
            f"{array.dtype}. Use the vocabulary that the network was made for."
        )
