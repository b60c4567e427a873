"""Encodes the rows of a batch in chunks, so that activations need less memory.

Source: Gao et al. 2021, "Scaling Deep Contrastive Learning Batch Size under
Memory Limited Setup". Departures: only the encoders run in chunks.
"""

from collections.abc import Mapping

import keras
import tensorflow as tf

from tbnets.errors import InputError
from tbnets.losses import replicas

# Only the features of the whole batch are kept. The gradient computation
# encodes each chunk again. Branches, which may normalise over the batch,
# process all features at once.


def encode_in_chunks(encoder, inputs, chunk, size):
    """Applies an encoder in training mode to at most `chunk` rows at a time.

    The built `encoder` maps each row of `[n, ...]` to a vector of `size`
    features. Features and gradients do not depend on `chunk`, except that each
    chunk draws its own dropout masks. The inputs receive no gradient. XLA
    cannot compile the loop, because the last chunk may be smaller.
    """
    num_rows = tf.shape(inputs)[0]
    # All replicas draw equally many masks, so that their counters agree.
    num_chunks = replicas.maximum(tf.maximum(1, -(-num_rows // chunk)))
    dtype = encoder.compute_dtype

    def rows_of(tensor, i):
        return tensor[i * chunk : (i + 1) * chunk]

    @tf.custom_gradient
    def encode(rows):
        counters = _read(encoder)

        def add_features(i, features):
            outputs = encoder(rows_of(rows, i), training=True)
            return i + 1, features.write(i, tf.cast(outputs, dtype))

        features = tf.TensorArray(
            dtype, num_chunks, infer_shape=False, element_shape=[None, size]
        )
        _, features = _loop(num_chunks, add_features, features)

        def gradient(slopes, variables=()):
            keys = {_key(v) for v in encoder.trainable_variables}
            trained = [v for v in variables if _key(v) in keys]

            def add_gradients(i, *sums):
                with tf.GradientTape(watch_accessed_variables=False) as tape:
                    for variable in trained:
                        tape.watch(variable)
                    outputs = encoder(rows_of(rows, i), training=True)
                    outputs = tf.cast(outputs, dtype)
                added = tape.gradient(
                    outputs,
                    trained,
                    output_gradients=rows_of(slopes, i),
                    unconnected_gradients="zero",
                )
                # A table's gradient is sparse, and its sum dense.
                added = map(tf.convert_to_tensor, added)
                return i + 1, *map(tf.add, sums, added)

            if not trained:
                return None, [None] * len(variables)
            last_counters = _read(encoder)
            _write(encoder, counters)
            zeros = [tf.zeros(v.shape, v.dtype) for v in trained]
            _, *sums = _loop(num_chunks, add_gradients, *zeros)
            _write(encoder, last_counters)
            sums = dict(zip(map(_key, trained), sums))
            return None, [sums.get(_key(v)) for v in variables]

        return features.concat(), gradient

    return tf.ensure_shape(encode(inputs), [inputs.shape[0], size])


def _loop(count, body, *values):
    return tf.while_loop(
        lambda i, *_: i < count, body, (0, *values), parallel_iterations=1
    )


def _key(variable):
    return id(variable.handle)  # Equal for a Keras 3 variable and its value.


def _counters(encoder):
    """Returns the integer states from which layers draw random numbers."""
    # Keras 2 lists the vocabulary of a `TextVectorization`, which has no dtype.
    states = [v for v in encoder.non_trainable_variables if hasattr(v, "dtype")]
    return [v for v in states if tf.as_dtype(v.dtype).is_integer]


def _read(encoder):
    return [tf.convert_to_tensor(v) for v in _counters(encoder)]


def _write(encoder, values):
    for counter, value in zip(_counters(encoder), values):
        counter.assign(value)


def check_encoder(encoder, argument, chunk):
    """Raises an error if an encoder's training depends on the whole batch."""
    random = "rate", "dropout", "recurrent_dropout"
    is_seeded = not keras.__version__.startswith("2.")
    for layer in inner_layers(encoder):
        received = f"{argument}={chunk}, {type(encoder).__name__}"
        if isinstance(layer, keras.layers.BatchNormalization):
            if layer.trainable:
                raise InputError(
                    argument,
                    "be left out with trainable batch normalisation",
                    f"{received} with the layer {layer.name}",
                )
        elif not is_seeded and type(layer).__module__.startswith("keras."):
            if any(getattr(layer, name, 0) for name in random):
                raise InputError(
                    argument,
                    "be left out with dropout of Keras 2",
                    f"{received} with the layer {layer.name}",
                    "Use tbnets.SeededDropout.",
                )


def inner_layers(layer):
    """Returns a layer and all layers in its attributes, at any depth."""
    layers, values = {}, [layer]
    while values:
        value = values.pop()
        if isinstance(value, keras.layers.Layer):
            if id(value) not in layers:
                layers[id(value)] = value
                values += vars(value).values()
        elif isinstance(value, Mapping):
            values += value.values()
        elif isinstance(value, (list, tuple)):
            values += value
    return list(layers.values())
