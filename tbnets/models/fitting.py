"""Converts the arguments of `fit`, and trains on several replicas."""

import itertools
import warnings
from collections.abc import Mapping

import keras
import numpy as np
import tensorflow as tf

from tbnets.checks import check_finite
from tbnets.data.batches import EpochBatches, distributed
from tbnets.errors import InputError, InputTypeError
from tbnets.layers.configured import ConfiguredLayer
from tbnets.layers.text_encoders import FeaturesAndMean, TextEncoder
from tbnets.training.retrieval_metrics import RetrievalMetrics

CHECKED = ("loss", "gradient_norm")
NOTHING_LEARNED = (
    "The mean loss of the epoch is 0, so the weights do not change. A batch "
    "must contain a caption that matches an image, and a caption that does "
    "not. Use larger batches, and check `image_ids` and `caption_image_ids`."
)


class FiniteSteps(keras.callbacks.Callback):
    """Stops `fit` after the first epoch with a non-finite loss or gradient."""

    # Checking each streamed batch would slow every step.

    def on_train_begin(self, logs=None):
        """Starts a training."""
        self._is_first = True

    def on_epoch_end(self, epoch, logs=None):
        """Raises ValueError if the loss or its gradient is not finite.

        After the first epoch, warns if the loss is 0.
        """
        # A fused kernel may turn a NaN into 0 before it reaches the loss.
        means = {key: float((logs or {}).get(key, 0.0)) for key in CHECKED}
        if np.isfinite(list(means.values())).all():
            if self._is_first and not means["loss"]:
                warnings.warn(NOTHING_LEARNED, stacklevel=2)
            self._is_first = False
            return
        values = " and ".join(f"{key} {value}" for key, value in means.items())
        raise InputError(
            "x",
            "hold finite numbers, and the loss must remain finite",
            f"{values} after epoch {epoch + 1}; the weights are lost",
            "Lower the learning rate.",
        )


class _Epochs(keras.callbacks.Callback):
    def __init__(self, batches):
        super().__init__()
        self.batches = batches

    def on_epoch_begin(self, epoch, logs=None):
        self.batches.epoch = epoch


def prepare_arguments(arguments, reader, strategy, first_callbacks=()):
    """Converts `arguments`, a dict of `fit` arguments, for Keras in place.

    `EpochBatches` are replaced by their dataset, which is distributed if there
    are several replicas. The callbacks are ordered: `first_callbacks`, any
    `RetrievalMetrics` (because they add logs), and then all others.
    """
    for name in ("y", "sample_weight", "class_weight"):
        if arguments.get(name) is not None:  # Keras may ignore weights.
            raise InputError(
                name,
                "be None, because ids in `x` define which rows match",
                type(arguments[name]).__name__,
            )
    callbacks, first_callbacks = arguments.get("callbacks"), [*first_callbacks]
    counted = {"x": "steps_per_epoch", "validation_data": "validation_steps"}
    for name, steps in counted.items():
        data = prepare_data(arguments, name, reader)
        if isinstance(data, EpochBatches):
            count = data.num_batches
            if name == "x" and arguments.get(steps) not in (None, count):
                expected = f"be None or {count}, the number of batches"
                raise InputError(steps, expected, arguments[steps])
            if strategy.num_replicas_in_sync > 1:
                arguments[name] = distributed(strategy, data)
                arguments.setdefault(steps, count)
            if name == "x":
                arguments["shuffle"] = False
                first_callbacks.append(_Epochs(data))
    if isinstance(callbacks, keras.callbacks.CallbackList):
        callbacks = callbacks.callbacks
    callbacks = tf.nest.flatten(callbacks or [])
    callbacks.sort(key=lambda c: not isinstance(c, RetrievalMetrics))
    arguments["callbacks"] = first_callbacks + callbacks


def prepare_data(arguments, name, reader):
    """Checks and returns the data that `arguments[name]` contains.

    In `arguments`, `EpochBatches` are replaced by their dataset, and string
    captions by a tensor. `reader` is the layer that reads the captions.
    """
    num_words = _num_words(reader)
    data = arguments.get(name)
    inputs = data[0] if isinstance(data, tuple) and data else data
    if isinstance(inputs, Mapping) and may_read_text(reader):
        captions = inputs.get("captions")
        if isinstance(captions, np.ndarray) and _is_text(captions):
            captions = tf.convert_to_tensor(captions, tf.string)
            inputs = {**inputs, "captions": captions}
            is_dict = isinstance(data, Mapping)
            arguments[name] = inputs if is_dict else (inputs, *data[1:])
    check_arrays(name, inputs, num_words)
    if isinstance(data, EpochBatches):
        arguments[name] = data.dataset
    return data


def check_no_targets(arguments):
    """Raises an error if `compile` receives weights of targets."""
    for name in ("loss_weights", "weighted_metrics"):
        if arguments.get(name):
            reason = "because a network has no targets"
            raise InputError(name, f"be None, {reason}", arguments[name])


def check_arrays(name, arrays, num_words=None):
    """Raises ValueError if arrays in memory would spoil the weights.

    All values must be finite. Error messages contain `name`. `num_words` is the
    number of word ids, or None if captions are not word ids.
    """
    if not isinstance(arrays, Mapping):
        return
    for key, array in arrays.items():
        argument = f"{name}[{key!r}]"
        if isinstance(array, tf.Tensor) and array.dtype != tf.string:
            array = array.numpy()
        if isinstance(array, np.ndarray):
            check_finite(argument, array)
            if key == "captions" and num_words and array.ndim == 2:
                _check_words(argument, array, num_words)


def _is_text(array):
    kind = getattr(array.dtype, "kind", "")
    return array.dtype == tf.string or bool(kind and kind in "OSU")


def may_read_text(reader):
    """Returns whether a layer may accept strings. Layers in tbnets never do."""
    return reader is not None and not isinstance(reader, ConfiguredLayer)


def checked_inputs(name, inputs, encoder, reader):
    """Checks inputs; converts text to a tensor and uint8 pixels to float32.

    Only the dtype of a symbolic tensor is checked. `name` is "images" or
    "captions". `reader` is the layer that reads the inputs: the `encoder`, or
    the branch if `encoder` is None.
    """
    if not hasattr(inputs, "shape"):
        inputs = np.asarray(inputs)
    if _is_text(inputs):
        if name != "captions" or not may_read_text(reader):
            raise InputTypeError(
                name,
                "hold numbers",
                "text",
                "Use `tbnets.Tokenizer` or `tbnets.decode_images`.",
            )
        inputs = tf.convert_to_tensor(inputs, tf.string)
    if tf.as_dtype(inputs.dtype) == tf.uint8:
        inputs = tf.cast(inputs, tf.float32)
    input_shape = tf.TensorShape(inputs.shape)
    num_words = _num_words(encoder) if input_shape.rank == 2 else None
    if num_words and isinstance(inputs, np.ndarray | tf.Tensor):
        _check_words(name, inputs, num_words)
    return inputs


def _num_words(encoder):
    """Returns the number of word ids if an encoder reads only word ids."""
    if isinstance(encoder, FeaturesAndMean):
        return None
    return encoder.vocabulary_size if isinstance(encoder, TextEncoder) else None


def _check_words(argument, words, num_words):
    dtype = tf.as_dtype(words.dtype)
    if not dtype.is_integer:
        raise InputTypeError(argument, "be integer word ids", dtype.name)
    if not tf.executing_eagerly():
        return
    words = np.asarray(words)
    least, most = words.min(initial=0), words.max(initial=0)
    if least < 0 or most >= num_words:
        raise InputError(
            argument,
            f"be word ids from 0 to {num_words - 1}",
            f"{least} to {most}",
        )


# Keras' own `fit` does not support these networks. To build the model, Keras 3
# averages the first batch over the replicas, although ids cannot be averaged
# and shares differ in size. Under `MultiWorkerMirroredStrategy` it averages
# scalar logs over an axis that they lack (keras#20585). Keras 2 sums the logs
# over workers, so losses and learning rates are multiplied.
#
# Here a step is `strategy.run(train_step)`. Callbacks are called in the same
# order and with the same values as in Keras. The logs of every replica describe
# the whole batch, so the logs of the first replica are used.

SUPPORTED = (
    "x",
    "epochs",
    "initial_epoch",
    "steps_per_epoch",
    "callbacks",
    "verbose",
    "shuffle",
    "validation_data",
    "validation_steps",
    "validation_freq",
)
"""Arguments of Keras' `fit` that `fit_replicas` accepts."""
PER_REPLICA = (
    "clipnorm",
    "global_clipnorm",
    "clipvalue",
    "gradient_accumulation_steps",
)
"""Arguments of Keras' optimizers that apply to the gradient of a replica."""


def fit_replicas(self, **arguments):
    """Trains a model on several replicas, in place of `keras.Model.fit`.

    The model must have been built and compiled in the strategy's scope.
    `arguments` are the arguments of `keras.Model.fit`. `x` and
    `validation_data` are each a `DistributedDataset`, or a `tf.data.Dataset` of
    whole batches. In each epoch, an endless data set continues, and a finite
    data set restarts.
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
    passed = {name for name, value in arguments.items() if value is not None}
    unsupported = sorted(passed - {*SUPPORTED})
    if unsupported:
        raise InputError(
            "The arguments of `fit` on several replicas must be among "
            f"{', '.join(SUPPORTED)}. Received: {', '.join(unsupported)}."
        )
    backup = keras.callbacks.BackupAndRestore
    if any(isinstance(c, backup) for c in arguments.get("callbacks") or ()):
        raise InputError(
            "callbacks",
            "not contain BackupAndRestore if several replicas train",
            "a BackupAndRestore",
        )
    if not model.built or model.jit_compile:
        raise InputError(
            "A model that several replicas train must be built, and compiled "
            "with jit_compile=False, in the scope of its strategy. Received: "
            f"built={model.built}, jit_compile={model.jit_compile}."
        )
    optimizer = getattr(model.optimizer, "inner_optimizer", model.optimizer)
    # Keras 3 would clip each replica's gradient before summing.
    for name in PER_REPLICA:
        value = getattr(optimizer, name, None)
        if value is not None:
            raise InputError(name, "be None if several replicas train", value)


def _shared(model, arguments, name, steps_name):
    data, steps = arguments.get(name), arguments.get(steps_name)
    if isinstance(data, tf.distribute.DistributedDataset):
        return data, steps, False
    count = int(data.cardinality())
    is_endless = count == tf.data.INFINITE_CARDINALITY
    if is_endless and not steps:
        raise InputError(steps_name, "be set for an endless data set", steps)
    steps = steps or (count if count >= 0 else None)
    shares = model.distribute_strategy.experimental_distribute_dataset(data)
    return shares, steps, is_endless


def _validation(model, arguments):
    if arguments.get("validation_data") is None:
        return lambda epoch, callbacks: {}
    names = "validation_data", "validation_steps"
    data, steps, _ = _shared(model, arguments, *names)
    if model.test_function is None:
        model.test_function = _step_function(model, "test")
    run, frequency = model.test_function, arguments.get("validation_freq") or 1

    def measure(epoch, callbacks):
        is_each = isinstance(frequency, int)
        if (epoch + 1) % frequency if is_each else epoch + 1 not in frequency:
            return {}
        model.reset_metrics()
        callbacks.on_test_begin()
        logs = _epoch(model, run, iter(data), steps, callbacks, "test")
        callbacks.on_test_end(logs)
        return {f"val_{name}": value for name, value in logs.items()}

    return measure


def _step_function(model, mode="train"):
    strategy = model.distribute_strategy

    def step(iterator):
        step_method = getattr(model, f"{mode}_step")
        logs = strategy.run(step_method, args=(iterator.get_next(),))
        local = strategy.experimental_local_results
        return {name: local(value)[0] for name, value in logs.items()}

    if model.run_eagerly:
        return step
    return tf.function(step, autograph=False, reduce_retracing=True)


def _epoch(model, run, batches, steps, callbacks, mode="train"):
    logs, name = None, "x" if mode == "train" else "validation_data"
    begin = getattr(callbacks, f"on_{mode}_batch_begin")
    end = getattr(callbacks, f"on_{mode}_batch_end")
    for number in itertools.count() if steps is None else range(steps):
        begin(number)
        try:
            logs = run(batches)
        except tf.errors.OutOfRangeError as error:
            if steps is None and logs is not None:
                break
            raise InputError(
                name,
                "have batches for each epoch",
                f"an end after {number} of {steps or 'any'} steps",
            ) from error
        end(number, logs)
        if mode == "train" and model.stop_training:
            break
    return logs
