"""Trees as a graph is given them, held to what `packed_trees` makes.

A network over trees goes where its input points: to the parent of a node, up
as many levels as a node names. Whoever serves one takes trees from strangers.
"""

import tensorflow as tf

from tbnets.text.packed_trees import TreeRows
from tbnets.text.padded_rows import padded_width

NODES_A_WORD = 4
"""Room for phrases: a binary tree has two nodes a word, chains have more."""


def most_nodes(most_words):
    """Returns how many nodes, padding included, trees of such length have."""
    return padded_width(NODES_A_WORD * most_words, TreeRows.least_step)


def whole_trees(rows, vocabulary_size):
    """Tells which rows are trees as `packed_trees.tree_array` makes them.

    Words come first and have an id of the vocabulary, phrases follow level by
    level, each below a parent of a higher level and with a child; the root is
    the last node, and what follows it is 0.

    Args:
        rows: int32 `[n, nodes, 6]`.
        vocabulary_size: number of ids, padding included.

    Returns:
        bool `[n]`.

    Source: a loop that says the same is `tests.reference.is_whole_tree`.
    """
    word, parent, level, noun_phrase, start, end = tf.unstack(rows, axis=-1)
    width = tf.shape(rows)[1]
    places = tf.range(width)
    is_node = level > 0
    counts = tf.reduce_sum(tf.cast(is_node, tf.int32), axis=1, keepdims=True)
    has_parent = places < counts - 1
    is_word = level == 1
    num_words = tf.reduce_sum(tf.cast(is_word, tf.int32), 1, keepdims=True)
    # Those of another range are told below; here they must not be gathered.
    safe = tf.clip_by_value(parent, 0, tf.maximum(width - 1, 0))
    above = tf.gather(level, safe, batch_dims=1)
    after = tf.concat([level[:, 1:], tf.zeros_like(level[:, :1])], axis=1)
    is_padding = tf.reduce_all(rows == 0, axis=2)
    before = tf.range(tf.shape(rows)[0])[:, None] * width
    children = tf.math.unsorted_segment_sum(
        tf.cast(has_parent, tf.int32), before + safe, tf.size(level)
    )
    good = [
        # What is no node follows all nodes, and is 0.
        is_node == (places < counts),
        is_node | is_padding,
        # Levels rise, and none is left out.
        tf.where(has_parent, (after == level) | (after == level + 1), True),
        (word > 0) == is_word,
        (word >= 0) & (word < vocabulary_size),
        tf.where(
            has_parent,
            (parent > places) & (parent < counts) & (above > level),
            parent == 0,
        ),
        (level < 2) | (tf.reshape(children, tf.shape(level)) > 0),
        (noun_phrase >= 0) & (noun_phrase <= 1),
        ~is_node | (start >= 0) & (start < end) & (end <= num_words),
    ]
    return tf.reduce_all(tf.stack(good), axis=[0, 2]) & (counts[:, 0] > 0)
