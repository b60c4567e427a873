"""`fit` for networks that several replicas train.

That of Keras 3 can not do it (keras#20585). Before the first step it
averages the first batch over the replicas to build the model, ids and shares
of different sizes included; and under `MultiWorkerMirroredStrategy` it averages
what a step logs over an axis that scalars do not have. That of Keras 2 sums
the logs over the workers, so that a loss, or a rate, is told as many times as
large.

Here a step is `strategy.run(train_step)`, and what callbacks see is the same,
in the same order. Every replica's logs are of the whole batch (`replicas`), so
the first one of this process says it all.
"""

import itertools

import keras
import tensorflow as tf

from tbnets.errors import InputError

TAKEN = (
    *("x", "epochs", "initial_epoch", "steps_per_epoch", "callbacks"),
    *("verbose", "shuffle"),
    *("validation_data", "validation_steps", "validation_freq"),
)
"""The arguments of Keras' `fit` that this one takes."""
CLIPPING = "clipnorm", "global_clipnorm", "clipvalue"
"""What Keras' optimizers take to clip gradients."""


def fit(self, **arguments):
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
    # BackupAndRestore tells where it goes on as Keras' own `fit` reads it.
    told = getattr(model, "_initial_epoch", None)
    for epoch in range(told or arguments.get("initial_epoch", 0), epochs):
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
            f"`{steps_name}` must be given with an endless data set. Received: "
            "none. Say how many batches are taken."
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
                f"`{name}` must hold the batches of each epoch. Received: an "
                f"end after {number} of {steps or 'any'} steps. Repeat the "
                "data set, or have fewer steps."
            ) from error
        end(number, logs)
        if kind == "train" and model.stop_training:
            break
    return logs
