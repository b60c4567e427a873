"""What `fit` is given -> what Keras' `fit` takes, checked."""

import inspect
import itertools
from collections.abc import Mapping
from typing import Any, NoReturn

import keras
import numpy as np
import tensorflow as tf

from tbnets.checks import check_finite, checked_array
from tbnets.data.batches import EpochBatches, Examples
from tbnets.data.splits import distributed
from tbnets.errors import InputError, InputTypeError
from tbnets.layers.text_encoders import TextEncoder
from tbnets.training.retrieval_metrics import RetrievalMetrics

# What a model is asked beside `fit`, looked at as `fit` does.


class CheckedModel(keras.Model):
    """A `keras.Model` that refuses what is not finite.

    A kernel may make 0 of a NaN, and what comes out is a number.
    """

    text_encoder: keras.layers.Layer | None

    def evaluate(self, *args: Any, **kwargs: Any) -> Any:
        """Measures the loss as `keras.Model.evaluate`, on finite numbers.

        Args:
            *args: as of `keras.Model.evaluate`; `x` may be `EpochBatches`.
            **kwargs: likewise.

        Returns:
            The loss and what else `report` tells, as Keras does.

        Raises:
            TypeError, ValueError: as `fit`.
        """
        given = self._on_finite(keras.Model.evaluate, args, kwargs)
        return super().evaluate(*given.args[1:], **given.kwargs)

    def predict(self, *args: Any, **kwargs: Any) -> Any:
        """Returns what `call` does, as `keras.Model.predict`; see `evaluate`.

        Args:
            *args: as of `keras.Model.predict`; `x` may be `EpochBatches`.
            **kwargs: likewise.

        Returns:
            NumPy arrays, of a whole data set at once.
        """
        given = self._on_finite(keras.Model.predict, args, kwargs)
        return super().predict(*given.args[1:], **given.kwargs)

    def export(self, *args: Any, **kwargs: Any) -> NoReturn:
        """Raises an error that names `tbnets.export_saved_model`.

        Keras exports a model of tensors. A served network also takes captions
        and photos, so it needs a vocabulary.

        Args:
            *args: as of `keras.Model.export`.
            **kwargs: likewise.

        Raises:
            TypeError: always.
        """
        raise InputTypeError(
            "export",
            "be `tbnets.export_saved_model`",
            f"{type(self).__name__}.export",
            "Call tbnets.export_saved_model(network, vocabulary, path, "
            "image_shape=...).",
        )

    def _on_finite(self, method, args, kwargs):
        """Returns what a method of Keras is given, once it was looked at."""
        given = inspect.signature(method).bind(self, *args, **kwargs)
        prepare_data(given.arguments, "x", self.text_encoder)
        return given


# `fit` for networks that several replicas train.
#
# That of Keras 3 can not do it (keras#20585). Before the first step it
# averages the first batch over the replicas to build the model, ids and shares
# of different sizes included; and under `MultiWorkerMirroredStrategy` it
# averages what a step logs over an axis that scalars do not have. That of
# Keras 2 sums the logs over the workers, so that a loss, or a rate, is told as
# many times as large.
#
# Here a step is `strategy.run(train_step)`, and what callbacks see is the
# same, in the same order. Every replica's logs are of the whole batch
# (`replicas`), so the first one of this process says it all.

TAKEN = (
    *("x", "epochs", "initial_epoch", "steps_per_epoch", "callbacks"),
    *("verbose", "shuffle"),
    *("validation_data", "validation_steps", "validation_freq"),
)
"""The arguments of Keras' `fit` that this one takes."""
CLIPPING = "clipnorm", "global_clipnorm", "clipvalue"
"""What Keras' optimizers take to clip gradients."""


def fit_replicas(self, **arguments):
    """Trains a model that was built and compiled in its strategy's scope.

    Args:
        self: the `TwoBranchModel`.
        **arguments: of `keras.Model.fit`, name -> value; `x` is a
            `DistributedDataset` of shares, or a `tf.data.Dataset` of whole
            batches, of which each replica gets an even share, and so is
            `validation_data`. An endless data set goes on from epoch to
            epoch, others begin anew.

    Returns:
        The history of Keras.

    Raises:
        ValueError: an argument that is not taken, or the data end too early.
    """
    model = self
    _check(model, arguments)
    names = "x", "steps_per_epoch"
    data, steps, is_endless = _shared(model, arguments, *names)
    validation = _validation(model, arguments)
    epochs, verbose = arguments.get("epochs", 1), arguments.get("verbose", 1)
    callbacks = keras.callbacks.CallbackList(
        arguments.get("callbacks"),
        add_history=True,
        add_progbar=verbose != 0,
        model=model,
        verbose=verbose,
        epochs=epochs,
        steps=steps,
    )
    model.stop_training, logs, batches = False, None, None
    if model.train_function is None:
        model.train_function = _step_function(model)
    callbacks.on_train_begin()
    for epoch in range(arguments.get("initial_epoch") or 0, epochs):
        model.reset_metrics()
        callbacks.on_epoch_begin(epoch)
        if batches is None or not is_endless:
            batches = iter(data)
        logs = _epoch(model, model.train_function, batches, steps, callbacks)
        logs = {**logs, **validation(epoch, callbacks)}
        callbacks.on_epoch_end(epoch, logs)
        if model.stop_training:
            break
    if epochs > 0 and hasattr(model.optimizer, "finalize_variable_values"):
        model.optimizer.finalize_variable_values(model.trainable_weights)
    callbacks.on_train_end(logs)
    return model.history


def _check(model, arguments):
    """Refuses what is not taken."""
    given = {name for name, value in arguments.items() if value is not None}
    others = sorted(given - {*TAKEN})
    if others:
        raise InputError(
            f"`fit` on several replicas must be given {', '.join(TAKEN)} only. "
            f"Received: {', '.join(others)}. Draw batches by "
            "tbnets.EpochBatches, measure by tbnets.RetrievalMetrics."
        )
    backup = keras.callbacks.BackupAndRestore
    if any(isinstance(one, backup) for one in arguments.get("callbacks") or ()):
        raise InputError(
            "callbacks",
            "have no BackupAndRestore where several replicas train",
            "one",
            "Save by ModelCheckpoint and give `initial_epoch`, or train by "
            "tools/train.py, which resumes.",
        )
    if not model.built or model.jit_compile:
        raise InputError(
            "A model that several replicas train must be built, and compiled "
            "with jit_compile=False, in the scope of its strategy. Received: "
            f"built={model.built}, jit_compile={model.jit_compile}. Call "
            "`build` first."
        )
    optimizer = getattr(model.optimizer, "inner_optimizer", model.optimizer)
    if getattr(optimizer, "gradient_accumulation_steps", None):
        raise InputError(
            "`gradient_accumulation_steps` of an optimizer must be None where "
            "several replicas train. Received: "
            f"{optimizer.gradient_accumulation_steps}. Use larger batches."
        )
    # Keras 3 has it clip what one replica gives, before that is summed.
    for name in CLIPPING:
        limit = getattr(optimizer, name, None)
        if limit is not None:
            raise InputError(
                f"`{name}` of an optimizer must be None where several replicas "
                f"train. Received: {name}={limit}. Give `compile` a "
                "gradient_clip_norm, which clips the gradient of the whole "
                "batch."
            )


def _shared(model, arguments, name, steps_name):
    """Returns an argument's batches as shares: (shares, steps, is_endless).

    Args:
        model: see `fit`.
        arguments: likewise.
        name: of the argument.
        steps_name: of that which tells how many steps it is taken for; where
            it does not, they are all that there are, None if nobody knows.
    """
    data, steps = arguments.get(name), arguments.get(steps_name)
    if isinstance(data, tf.distribute.DistributedDataset):
        return data, steps, False
    if not isinstance(data, tf.data.Dataset):
        raise InputError(
            f"`{name}` on several replicas must be batches. Received: {name} "
            f"of type {type(data).__name__}. Draw them by tbnets.EpochBatches, "
            "or make a tf.data.Dataset."
        )
    count = int(data.cardinality())
    is_endless = count == tf.data.INFINITE_CARDINALITY
    if is_endless and not steps:
        raise InputError(
            steps_name,
            "be given with an endless data set",
            "none",
            "Say how many batches are taken.",
        )
    steps = steps or (count if count >= 0 else None)
    shares = model.distribute_strategy.experimental_distribute_dataset(data)
    return shares, steps, is_endless


def _validation(model, arguments):
    """Returns the function (epoch, callbacks) -> logs of `validation_data`."""
    if arguments.get("validation_data") is None:
        return lambda epoch, callbacks: {}
    names = "validation_data", "validation_steps"
    data, steps, _ = _shared(model, arguments, *names)
    if model.test_function is None:
        model.test_function = _step_function(model, "test")
    run, often = model.test_function, arguments.get("validation_freq") or 1

    def measure(epoch, callbacks):
        is_each = isinstance(often, int)
        if (epoch + 1) % often if is_each else epoch + 1 not in often:
            return {}
        model.reset_metrics()
        callbacks.on_test_begin()
        logs = _epoch(model, run, iter(data), steps, callbacks, "test")
        callbacks.on_test_end(logs)
        return {f"val_{name}": value for name, value in logs.items()}

    return measure


def _step_function(model, kind="train"):
    """Returns the function iterator -> logs of a step of all replicas."""
    strategy = model.distribute_strategy

    def step(iterator):
        taken = getattr(model, f"{kind}_step")
        logs = strategy.run(taken, args=(iterator.get_next(),))
        local = strategy.experimental_local_results
        return {name: local(value)[0] for name, value in logs.items()}

    if model.run_eagerly:
        return step
    return tf.function(step, autograph=False, reduce_retracing=True)


def _epoch(model, run, batches, steps, callbacks, kind="train"):
    """Takes the steps of an epoch; returns the logs of the last one."""
    logs, name = None, "x" if kind == "train" else "validation_data"
    begin = getattr(callbacks, f"on_{kind}_batch_begin")
    end = getattr(callbacks, f"on_{kind}_batch_end")
    for number in itertools.count() if steps is None else range(steps):
        begin(number)
        try:
            logs = run(batches)
        except tf.errors.OutOfRangeError as error:
            if steps is None and logs is not None:
                break
            raise InputError(
                name,
                "hold the batches of each epoch",
                f"an end after {number} of {steps or 'any'} steps",
                "Repeat the data set, or have fewer steps.",
            ) from error
        end(number, logs)
        if kind == "train" and model.stop_training:
            break
    return logs


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
            "x",
            "hold finite numbers, and the steps stay finite",
            f"{found} after epoch {epoch + 1}; the weights are lost",
            "Look for NaN in images and captions, lower the rate, or set "
            "`gradient_clip_norm`.",
        )


class _Epochs(keras.callbacks.Callback):
    """Tells batches which epoch it is."""

    def __init__(self, batches):
        super().__init__()
        self.batches = batches

    def on_epoch_begin(self, epoch, logs=None):
        """Sets it, before the first batch is drawn."""
        self.batches.epoch = epoch


def prepare_arguments(arguments, text_encoder, strategy, own=()):
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
            "steps_per_epoch",
            "be the batches of an epoch, or None, with EpochBatches",
            f"steps_per_epoch={steps}, {num_batches} batches",
            "Leave it out, or draw from fewer examples.",
        )


def _refuse_targets(arguments):
    """Refuses what Keras would leave out without a word, or end on."""
    for name in ("y", "sample_weight", "class_weight"):
        if arguments.get(name) is not None:
            raise InputError(
                name,
                "be None: ids in `x` tell what matches, and a loss is that of "
                "a whole batch",
                f"{name} of type {type(arguments[name]).__name__}",
                "Leave it out; weigh terms of the loss by `term_weights`.",
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
                name,
                "be None: a network has no targets to compare outputs with",
                f"{name}={arguments[name]!r}",
                "Leave it out; losses are `ranking_loss` or `pair_loss`, and "
                "tbnets.RetrievalMetrics among `callbacks` measures recalls.",
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
            name,
            "be batches or a dict of arrays",
            "Examples",
            "Draw batches of them: tbnets.EpochBatches(examples, ...).",
        )
    if not isinstance(arrays, Mapping):
        return
    counts = {}
    for key, array in arrays.items():
        called = f"{name}[{key!r}]"
        if isinstance(array, list | tuple):
            raise InputTypeError(
                called,
                "be an array",
                f"a {type(array).__name__}",
                "Use numpy.asarray; captions become ids by "
                "`tbnets.Tokenizer(vocabulary)(captions).numpy()`.",
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
            name,
            "have as many rows in each array, at least one: an image with one "
            "of its captions",
            f"{found}",
            "Batches of fewer images than captions come by "
            "`tbnets.EpochBatches`.",
        )


def _refuse_text(called, array):
    """Refuses what holds no numbers."""
    kind = getattr(array.dtype, "kind", "")
    if array.dtype == tf.string or (kind and kind in "OSU"):
        raise InputTypeError(
            called,
            "hold numbers",
            "text",
            "Captions become ids by `tbnets.Tokenizer(vocabulary)(captions)`, "
            "photos pixels by `tbnets.decode_images`, names ids by "
            "`numpy.unique`.",
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
                name,
                f"be of shape {wanted}",
                f"{name}.shape={found}",
                "Give what the network was built for.",
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
            called,
            "be integers, ids of words",
            f"{dtype.name}",
            "Cast them to int32.",
        )
    if not tf.executing_eagerly():
        return
    words = np.asarray(words)
    least, most = words.min(initial=0), words.max(initial=0)
    if least < 0 or most >= num_words:
        raise InputError(
            called,
            f"be ids of words from 0 to {num_words - 1}",
            f"{least} to {most}",
            "Use the vocabulary that the network was made for.",
        )
