"""What the encoder of trees adds to the LSTM that it reads them with."""

import numpy as np
import pytest
import tensorflow as tf

from tbnets.layers.tree_lstm import TreeEncoder, span_means
from tbnets.text.packed_trees import TreeRows, pack_trees, tree_array
from tbnets.text.trees import read_tree

TREES = [
    "(S (NP (DT a) (NN dog)) (VP (VBZ runs)))",
    "(NN cat)",
    "(NP (NP (DT a) (JJ red) (NN ball)) (PP (IN on) (NP (NN grass))))",
]


def packed_rows():
    """Returns rows of three trees with one that has no node between them."""
    trees = [read_tree(text) for text in TREES]
    ids = iter(range(2, 20))
    arrays = [
        tree_array(tree, [next(ids) for _ in tree.words]) for tree in trees
    ]
    rows = TreeRows([arrays[0], arrays[1][:0], *arrays[1:]])
    return rows.batch(np.arange(4))


def test_means_of_spans_equal_the_reference():
    trees = pack_trees(packed_rows())
    generator = np.random.default_rng(0)
    words = generator.normal(size=(len(trees.word_ids), 5)).astype("f4")
    found = span_means(tf.constant(words), trees)
    owners = trees.trees.numpy()
    for row, (owner, (start, end)) in enumerate(zip(owners, trees.spans)):
        own = words[owners[: len(words)] == owner]
        np.testing.assert_allclose(
            found[row], own[start:end].mean(axis=0), atol=1e-6
        )


def test_means_do_not_depend_on_the_other_captions():
    rows = packed_rows()[[0, 2, 3]]
    many = pack_trees(np.concatenate([rows] * 500))
    words = np.random.default_rng(0).normal(size=(9, 5)).astype("f4") + 3
    owners = many.trees.numpy()
    found = span_means(tf.tile(tf.constant(words), [500, 1]), many).numpy()
    first, last = found[owners < 3], found[owners >= len(rows) * 499]
    np.testing.assert_array_equal(first, last)


@pytest.mark.parametrize("tied", [False, True])
def test_mean_of_words_is_appended_to_the_state(tied):
    alone = TreeEncoder(20, 4, 6, tied=tied)
    beside = TreeEncoder(20, 4, 6, tied=tied, mean_beside=True)
    for encoder in (alone, beside):
        encoder.build((None, None, 6))
    beside.set_weights(alone.get_weights())
    rows = packed_rows()[[0, 2, 3]]
    states, found = alone(rows).numpy(), beside(rows).numpy()
    assert found.shape == (3, beside.output_dim) == (3, 10)
    np.testing.assert_array_equal(found[:, :6], states)
    table = beside.embedding.get_weights()[0]
    ids = [range(2, 5), range(5, 6), range(6, 11)]
    means = [table[list(row)].mean(axis=0) for row in ids]
    np.testing.assert_allclose(found[:, 6:], means, atol=1e-6)
