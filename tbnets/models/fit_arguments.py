"""What `fit` is given -> what Keras' `fit` takes, checked."""

from collections.abc import Mapping

import keras
import numpy as np
import tensorflow as tf

from tbnets.checked_numbers import check_finite, checked_array
from tbnets.data.batches import EpochBatches
from tbnets.data.examples import Examples
from tbnets.data.shares import distributed
from tbnets.errors import InputError, InputTypeError
from tbnets.layers.text_encoders import TextEncoder
from tbnets.training.retrieval_metrics import RetrievalMetrics

TOLD = ("loss", "gradient_norm")


class FiniteSteps(keras.callbacks.Callback):
    """Ends a `fit` after the first epoch that left the finite numbers.

    A NaN in one row makes every weight NaN within a step. Arrays are looked at
    before the first step. What comes batch by batch is not, for that would
    cost each step: the means of an epoch tell it at the end of the first one.
    """

    def on_epoch_end(self, epoch, logs=None):
        """Raises ValueError where the loss or its gradient did.

        The gradient tells where the loss does not: a kernel that multiplies
        and cuts off at once may make 0 of a NaN on the way to the loss.
        """
        told = {key: float((logs or {}).get(key, 0.0)) for key in TOLD}
        if np.isfinite(list(told.values())).all():
            return
        found = " and ".join(f"{key} {value}" for key, value in told.items())
        raise InputError(
            "`x` must hold finite numbers, and the steps stay finite. Received:"
            f" {found} after epoch {epoch + 1}; the weights are lost. Look for "
            "NaN in images and captions, lower the rate, or set "
            "`gradient_clip_norm`."
        )


class _Epochs(keras.callbacks.Callback):
    """Tells batches which epoch it is."""

    def __init__(self, batches):
        super().__init__()
        self.batches = batches

    def on_epoch_begin(self, epoch, logs=None):
        """Sets it, before the first batch is drawn."""
        self.batches.epoch = epoch


def prepare(arguments, text_encoder, strategy, own=()):
    """Makes arguments of our `fit` those of Keras, in their place.

    Batches that are drawn anew each epoch (`data.batches.EpochBatches`) become
    their dataset, of shares where replicas learn together. What adds to the
    logs of an epoch, and what ends it, comes before the callbacks that read
    them.

    Args:
        arguments: dict, changed.
        text_encoder: layer that reads captions, or None.
        strategy: the `tf.distribute.Strategy` of the model.
        own: callbacks that come first.

    Raises:
        ValueError: as `check_arrays`; or there are targets or weights.
    """
    _refuse_targets(arguments)
    callbacks, own = arguments.get("callbacks"), [*own]
    counted = {"x": "steps_per_epoch", "validation_data": "validation_steps"}
    for name, steps in counted.items():
        data = prepare_data(arguments, name, text_encoder)
        if isinstance(data, EpochBatches):
            if name == "x":
                _check_steps(arguments.get(steps), data.num_batches)
            if strategy.num_replicas_in_sync > 1:
                arguments[name] = distributed(strategy, data)
                arguments.setdefault(steps, data.num_batches)
            if name == "x":
                arguments["shuffle"] = False
                own.append(_Epochs(data))
    if isinstance(callbacks, keras.callbacks.CallbackList):
        callbacks = callbacks.callbacks
    callbacks = tf.nest.flatten(callbacks or [])
    callbacks.sort(key=lambda one: not isinstance(one, RetrievalMetrics))
    arguments["callbacks"] = own + callbacks


def prepare_data(arguments, name, text_encoder):
    """Looks at an argument that holds data; of `EpochBatches` Keras gets data.

    Args:
        arguments: dict, changed.
        name: of the argument.
        text_encoder: layer that reads captions, or None.

    Returns:
        What it was.

    Raises:
        TypeError, ValueError: as `check_arrays`.
    """
    reads = isinstance(text_encoder, TextEncoder)
    num_words = text_encoder.vocabulary_size if reads else None
    data = arguments.get(name)
    inputs = data[0] if isinstance(data, tuple) and data else data
    check_arrays(name, inputs, num_words)
    if isinstance(data, EpochBatches):
        arguments[name] = data.dataset
    return data


def _check_steps(steps, num_batches):
    """Refuses epochs that would begin among the batches of another."""
    if steps not in (None, num_batches):
        raise InputError(
            "`steps_per_epoch` must be the batches of an epoch, or None, with "
            f"EpochBatches. Received: steps_per_epoch={steps}, {num_batches} "
            "batches. Leave it out, or draw from fewer examples."
        )


def _refuse_targets(arguments):
    """Refuses what Keras would leave out without a word, or end on."""
    for name in ("y", "sample_weight", "class_weight"):
        if arguments.get(name) is not None:
            raise InputError(
                f"`{name}` must be None: ids in `x` tell what matches, and a "
                "loss is that of a whole batch. Received: "
                f"{name} of type {type(arguments[name]).__name__}. Leave it "
                "out; weigh terms of the loss by `term_weights`."
            )


def refuse_unheeded(arguments):
    """Refuses what `compile` takes and no step would look at.

    Args:
        arguments: dict, of `keras.Model.compile`.

    Raises:
        ValueError: there is a loss or a metric of Keras.
    """
    for name in ("loss", "loss_weights", "metrics", "weighted_metrics"):
        if arguments.get(name):
            raise InputError(
                f"`{name}` must be None: a network has no targets to compare "
                f"outputs with. Received: {name}={arguments[name]!r}. Leave it "
                "out; losses are `ranking_loss` or `pair_loss`, and "
                "tbnets.RetrievalMetrics among `callbacks` measures recalls."
            )


def check_arrays(name, arrays, num_words=None):
    """Refuses what no network takes, in arrays that are in memory.

    Args:
        name: what the arrays are called together.
        arrays: dict of arrays, or anything else, which is let through.
        num_words: ids of words that the network knows; None where captions
            are something else.

    Raises:
        TypeError: one holds text, or is no array.
        ValueError: one has no rows, or another number of them, NaN, infinity
            or ids of words that are none; names the array and the row.
    """
    if isinstance(arrays, Examples):
        raise InputTypeError(
            f"`{name}` must be batches or a dict of arrays. Received: Examples."
            " Draw batches of them: tbnets.EpochBatches(examples, ...)."
        )
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
        if isinstance(array, tf.Tensor):
            array = array.numpy()
        if isinstance(array, np.ndarray):
            counts[called] = len(array) if array.ndim else 0
            _refuse_text(called, array)
            check_finite(called, array)
            if key == "captions" and num_words and array.ndim == 2:
                _check_words(called, array, num_words)
    if counts and (len(set(counts.values())) > 1 or not min(counts.values())):
        found = ", ".join(f"{one} has {count}" for one, count in counts.items())
        raise InputError(
            f"`{name}` must have as many rows in each array, at least one: an "
            f"image with one of its captions. Received: {found}. Batches of "
            "fewer images than captions come by `tbnets.EpochBatches`."
        )


def _refuse_text(called, array):
    """Refuses what holds no numbers."""
    kind = getattr(array.dtype, "kind", "")
    if array.dtype == tf.string or (kind and kind in "OSU"):
        raise InputTypeError(
            f"`{called}` must hold numbers. Received: text. Captions become "
            "ids by `tbnets.Tokenizer(vocabulary)(captions)`, photos pixels "
            "by `tbnets.decode_images`, names ids by `numpy.unique`."
        )


def checked_inputs(name, inputs, encoder, shape):
    """Returns what one side of a network takes; refuses what it can not read.

    Of a tensor of a graph, nothing but its type and shape is looked at.

    Args:
        name: "images" or "captions".
        inputs: array or tensor; lists become arrays.
        encoder: the layer that reads them; None for a branch.
        shape: that the network was built for; None before that.

    Raises:
        TypeError: they are text, or words are no integers.
        ValueError: the shape is another, or an id is none of a word.
    """
    if not hasattr(inputs, "shape"):
        inputs = checked_array(name, inputs)
    _refuse_text(name, inputs)
    found = tf.TensorShape(inputs.shape)
    if shape is not None:
        first, last = shape[1:-1], shape[-1:]
        if encoder is not None:  # It may read photos of many sizes.
            first = [None] * len(first)
            last = [None] if name == "captions" and len(shape) == 2 else last
        wanted = tf.TensorShape([None, *first, *last])
        if not wanted.is_compatible_with(found):
            raise InputError(
                f"`{name}` must be of shape {wanted}. Received: {name}.shape="
                f"{found}. Give what the network was built for."
            )
    reads_words = isinstance(encoder, TextEncoder) and found.rank == 2
    if reads_words and isinstance(inputs, np.ndarray | tf.Tensor):
        _check_words(name, inputs, encoder.vocabulary_size)
    return inputs


def _check_words(called, words, num_words):
    """Refuses what is no id of a word, or of none that a network knows."""
    dtype = tf.as_dtype(words.dtype)
    if not dtype.is_integer:
        raise InputTypeError(
            f"`{called}` must be integers, ids of words. Received: "
            f"{dtype.name}. Cast them to int32."
        )
    if not tf.executing_eagerly():
        return
    words = np.asarray(words)
    least, most = words.min(initial=0), words.max(initial=0)
    if least < 0 or most >= num_words:
        raise InputError(
            f"`{called}` must be ids of words from 0 to {num_words - 1}. "
            f"Received: {least} to {most}. Use the vocabulary that the network "
            "was made for."
        )
