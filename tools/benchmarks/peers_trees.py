"""Rows of tree LSTMs: products, and the child-sum cell of tbnets."""

import tensorflow as tf

from benchmarks import loss, tree_lstm
from tbnets.layers.tree_lstm import TreeLSTM
from tbnets.text.packed_trees import pack_trees


def products(arrays):
    """The floor: the products of every level, forward and backward."""
    units = len(arrays["gates"])
    function = tree_lstm.products(pack_trees(arrays["rows"]), units)
    inputs = [tf.constant(arrays[name]) for name in ("words", "kernel")]
    return loss.waiting(tf.function(function), inputs)


def child_sum(arrays):
    """`TreeLSTM(tied=True)`: the sum of squares of all states."""
    layer = TreeLSTM(len(arrays["gates"]), tied=True)
    layer.build(arrays["words"].shape)
    layer.kernel.assign(arrays["kernel"])
    layer.noun_gates.assign(arrays["gates"])
    layer.noun_forget.assign(arrays["forget"])

    @tf.function
    def learn(words, rows):
        with tf.GradientTape() as tape:
            tape.watch(words)
            states = layer(words, pack_trees(rows))
            total = tf.reduce_sum(tf.square(states))
        return total, tape.gradient(total, [words, *layer.trainable_variables])

    inputs = [tf.constant(arrays[name]) for name in ("words", "rows")]
    return loss.valued(learn, inputs)
