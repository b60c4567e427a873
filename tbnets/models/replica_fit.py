"""Trains a network on several replicas, in place of `keras.Model.fit`."""

import itertools

import keras
import tensorflow as tf

from tbnets.errors import InputError

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
            f"{', '.join(SUPPORTED)}. Received: {', '.join(unsupported)}. Use "
            "tbnets.EpochBatches and tbnets.RetrievalMetrics."
        )
    backup = keras.callbacks.BackupAndRestore
    if any(isinstance(c, backup) for c in arguments.get("callbacks") or ()):
        raise InputError(
            "callbacks",
            "not contain BackupAndRestore if several replicas train",
            "a BackupAndRestore",
            "Use ModelCheckpoint and `initial_epoch`, or train with "
            "tbnets train, which can resume.",
        )
    if not model.built or model.jit_compile:
        raise InputError(
            "A model that several replicas train must be built, and compiled "
            "with jit_compile=False, in the scope of its strategy. Received: "
            f"built={model.built}, jit_compile={model.jit_compile}. Call "
            "`build` first."
        )
    optimizer = getattr(model.optimizer, "inner_optimizer", model.optimizer)
    # Keras 3 would clip each replica's gradient before summing.
    for name in PER_REPLICA:
        value = getattr(optimizer, name, None)
        if value is not None:
            raise InputError(
                f"`{name}` of an optimizer must be None if several replicas "
                f"train. Received: {name}={value}. Pass `gradient_clip_norm` "
                "to `compile`, or use larger batches."
            )


def _shared(model, arguments, name, steps_name):
    data, steps = arguments.get(name), arguments.get(steps_name)
    if isinstance(data, tf.distribute.DistributedDataset):
        return data, steps, False
    count = int(data.cardinality())
    is_endless = count == tf.data.INFINITE_CARDINALITY
    if is_endless and not steps:
        raise InputError(
            steps_name,
            "be set for an endless data set",
            "None",
            "Pass the number of batches per epoch.",
        )
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
                "Repeat the data set, or use fewer steps.",
            ) from error
        end(number, logs)
        if mode == "train" and model.stop_training:
            break
    return logs
