"""Compares the times of the tree LSTM, its matrix products and a Keras LSTM.

The matrix products of a forward and a backward pass, level by level, without
gates, gathers or sums over children, are a lower bound of the time. The Keras
LSTM reads the words as sequences.
"""

import keras
import numpy as np
import tensorflow as tf

from benchmarks import timing
from benchmarks.products import graph, learning_squares
from tbnets.layers.tree_lstm import TreeLSTM
from tbnets.text.packed_trees import TreeRows, pack_trees, tree_array
from tbnets.text.trees import read_tree

NUM_WORDS, WORD_DIM = 12, 300
TREES = (
    "(S (NP (NP a small girl) (PP in (NP a pink dress))) (VP climbs (PP into "
    "(NP a wooden house))))",
    "(S (NP (NP two men) (CC and) (NP a dog)) (VP are (VP running (PP along "
    "(NP a wide sandy beach)))))",
    "(NP (NP a child) (VP jumping (PP off (NP (NP the edge) (PP of (NP (NP a "
    "blue pool) (PP of water)))))))",
    "(S (NP a black dog) (VP carries (NP (NP a stick) (PP in (NP its mouth))) "
    "(PP through (NP the snow))))",
)


def run(options):
    """Prints the table."""
    num_captions, units = options.num_captions, options.hidden_dim
    rows = tree_rows(num_captions)
    packed = pack_trees(rows)
    words = tf.random.stateless_normal(
        [num_captions, NUM_WORDS, WORD_DIM], (0, 1)
    )
    tree_lstm, lstm = TreeLSTM(units), keras.layers.LSTM(units)
    tree_lstm.build((None, WORD_DIM))
    lstm.build((None, NUM_WORDS, WORD_DIM))
    flat = tf.reshape(words, [-1, WORD_DIM])
    kernel = tf.convert_to_tensor(tree_lstm.kernel)
    timing.print_table(
        f"{num_captions} captions of {NUM_WORDS} words, {len(packed.trees)} "
        f"nodes in {len(packed.levels) + 1} levels, {WORD_DIM} -> {units}, "
        "forward and backward",
        {
            "matmuls alone": graph(products(packed, units), flat, kernel),
            "LSTM of Keras": graph(learning_squares(lstm), words),
            "LSTM over trees": graph(
                learning_squares(tree_lstm, over_trees(tree_lstm)),
                flat,
                tf.constant(rows),
            ),
        },
        options.repeats or 15,
    )


def over_trees(layer):
    """Returns a function that maps words and tree rows to a layer's states."""
    return lambda words, rows: layer(words, pack_trees(rows))


def tree_rows(num_captions):
    """Returns the trees of a batch as arrays."""
    trees = [read_tree(text) for text in TREES]
    ids = np.arange(1, NUM_WORDS + 1)
    arrays = [tree_array(tree, ids) for tree in trees]
    picked = [arrays[i % len(arrays)] for i in range(num_captions)]
    return TreeRows(picked).batch(np.arange(num_captions))


def products(packed, units):
    """Returns a function that computes the matrix products of a step.

    All products differ, because TensorFlow would compute identical products
    only once.
    """
    bounds = np.concatenate(
        [packed.levels, np.array(packed.ends)[[0, 0, 0, 1, 1]][None]]
    )
    kinds = [_matrices(units, seed) for seed in (1, 2)]
    states = tf.random.stateless_normal([len(packed.trees), units], (1, 3))
    wide = tf.random.stateless_normal([len(packed.trees), 3 * units], (1, 4))
    # Rows of parents and edges: first other phrases, then noun phrases.
    rows = [
        (
            (slice(start, only), slice(first, edge)),
            (slice(noun, stop), slice(edge, last)),
        )
        for (start, noun, only, first, edge), (stop, _, _, last, _) in zip(
            bounds[:-1], bounds[1:]
        )
    ]
    counts = np.vectorize(lambda rows: rows.stop - rows.start)(rows).sum(0)

    def run(vectors, kernel):
        projected = tf.matmul(vectors, kernel)
        results = [
            projected,
            tf.matmul(projected, kernel, transpose_b=True),
            tf.matmul(vectors, projected, transpose_a=True),
        ]
        for level in rows:
            for (parents, edges), matrices in zip(level, kinds):
                gates, gates_back, forget, forget_back = matrices
                results += [
                    tf.matmul(states[parents], gates),
                    tf.matmul(wide[parents], gates_back),
                    tf.matmul(states[edges], forget),
                    tf.matmul(states[edges], forget_back),
                ]
        for parents, edges in counts:
            results += [
                tf.matmul(states[:parents], wide[:parents], transpose_a=True),
                tf.matmul(states[:edges], states[:edges], transpose_a=True),
            ]
        return [result[:1] for result in results]

    return run


def _matrices(units, seed):
    shapes = np.array([[1, 3], [3, 1], [1, 1], [1, 1]]) * units
    return [
        tf.random.stateless_normal(shape, (seed, place))
        for place, shape in enumerate(shapes)
    ]
