"""Models of a few numbers, in the layout of TensorFlow Serving."""

import tensorflow as tf

from tbnets.data.images import require
from tbnets.serving.endpoints import Endpoints
from tbnets.serving.export import write_saved_model


def write_version(folder, number):
    """Writes a version that multiplies by its number.

    Signatures: `times` (numbers float32 `[n, 2]`, none below 0) -> `products`
    `[n, 2]` and `sums` `[n]`; `pairs` (first, second: float32 `[n]`, `[m]`) ->
    `sums` `[n, m]`; `texts` (captions string `[n]`, ids int32 `[n]`) -> both.
    """

    @tf.function(input_signature=[tf.TensorSpec([None, 2], name="numbers")])
    def times(numbers):
        good = tf.reduce_all(numbers >= 0)
        numbers = require(numbers, good, "`numbers` must be positive:", numbers)
        numbers = numbers * tf.cast(number, tf.float32)
        return {"products": numbers, "sums": tf.reduce_sum(numbers, 1)}

    @tf.function(
        input_signature=[
            tf.TensorSpec([None], name="first"),
            tf.TensorSpec([None], name="second"),
        ]
    )
    def pairs(first, second):
        return {"sums": first[:, None] + second}

    @tf.function(
        input_signature=[
            tf.TensorSpec([None], tf.string, name="captions"),
            tf.TensorSpec([None], tf.int32, name="ids"),
        ]
    )
    def texts(captions, ids):
        return {"captions": captions, "ids": ids}

    functions = {"times": times, "pairs": pairs, "texts": texts}
    endpoints = Endpoints(functions, "times")
    return write_saved_model(endpoints, folder / str(number))
