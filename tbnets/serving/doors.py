"""The doors of a served graph: what comes in is checked before it is used.

A server runs whatever its clients send. A caption of another rank would end
the process in an op that trusts its input, a number that is none would come
out as an answer. `guarded` puts a door before each input of a signature, and
every function that is exported goes through it.
"""

import tensorflow as tf

from tbnets.data.photo_head import require
from tbnets.text.vocabulary import Tokenizer

MOST_WORDS = 200
"""Words of a caption that a served graph reads, unless it learned of longer."""


def guarded(function):
    """Returns a function that refuses what its signature does not say.

    Rank and known sides are checked when the graph runs, and that floats are
    numbers: NaN and infinity are refused by the row that has them.

    Args:
        function: `tf.function` with an input signature.

    Returns:
        A concrete function of the same signature.
    """
    inner = function.get_concrete_function()
    specs = inner.structured_input_signature[0]

    @tf.function(input_signature=specs, autograph=False)
    def call(*inputs):
        return inner(*[_enter(one, spec) for one, spec in zip(inputs, specs)])

    return call.get_concrete_function()


def _enter(value, spec):
    """Returns an input as its spec says it is."""
    value = tf.ensure_shape(value, spec.shape)
    if not spec.dtype.is_floating:
        return value
    finite = tf.math.is_finite(value)
    if spec.shape.rank:
        finite = tf.reduce_all(finite, axis=list(range(1, spec.shape.rank)))
    return require_rows(
        value, finite, f"`{spec.name}` must be finite numbers. Received: row"
    )


def require_rows(value, good, expectation):
    """Returns a value, once all of its rows are good.

    Args:
        value: tensor.
        good: bool `[n]`, or `[]` of a single one.
        expectation: what is told where one is not, before its number.

    Raises:
        tf.errors.InvalidArgumentError: when the graph runs, naming the row.
    """
    good = tf.reshape(good, [-1])
    first = tf.argmin(tf.cast(tf.concat([good, [False]], 0), tf.int32))
    return require(value, tf.reduce_all(good), expectation, first)


def bounded(tokenizer):
    """Returns what reads captions, with an end to how much it reads.

    Args:
        tokenizer: a `Tokenizer`, which gets a bound where it has none; or
            another reader or None, returned as it is.
    """
    if type(tokenizer) is Tokenizer and tokenizer.max_tokens is None:
        return Tokenizer(tokenizer.vocabulary, MOST_WORDS)
    return tokenizer
