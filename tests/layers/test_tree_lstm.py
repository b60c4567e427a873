"""The level-by-level tree LSTM against its equations, node by node."""

import numpy as np
import pytest
import tensorflow as tf

from tbnets.layers.tree_lstm import WEIGHTS, TreeLSTM
from tbnets.text.packed_trees import TreeRows, pack_trees, tree_array
from tbnets.text.trees import Tree, read_tree
from tests import reference

UNITS, DIM = 3, 2


def random_tree(generator, depth, arity):
    """Returns a tree of a depth: one path goes all the way down."""
    labels, parents, texts = [], [], []

    def grow(parent, left):
        labels.append("NP" if generator.random() < 0.4 else "VP")
        parents.append(parent)
        texts.append("" if left else "w")
        number = len(labels) - 1
        if left:
            count = generator.integers(1, arity + 1)
            deep = generator.integers(count)
            for place in range(count):
                below = left - 1
                if place != deep:
                    below = min(below, generator.integers(3))
                grow(number, below)

    grow(-1, depth)
    return Tree(tuple(labels), tuple(parents), tuple(texts))


def batch_of(trees):
    """Returns the rows of trees; word n of the batch has the id n + 1."""
    arrays, count = [], 0
    for tree in trees:
        ids = np.arange(len(tree.words)) + count + 1
        arrays.append(tree_array(tree, ids))
        count += len(ids)
    return TreeRows(arrays).batch(np.arange(len(trees))), count


def built(tied=False, dtype="float64", seed=0):
    layer = TreeLSTM(UNITS, tied, dtype=dtype)
    layer.build((None, DIM))
    generator = np.random.default_rng(seed)
    for variable in layer.weights:
        variable.assign(generator.normal(size=variable.shape))
    return layer


def wanted_states(trees, layer, vectors):
    """Returns the states by loops, as {(tree, start, end, height): h}."""
    names, first, found = ("kernel", *WEIGHTS), 0, {}
    weights = {n: tf.convert_to_tensor(getattr(layer, n)) for n in names}
    for number, tree in enumerate(trees):
        words = vectors[first : first + len(tree.words)]
        first += len(tree.words)
        states = reference.h_lstm(tree, words, weights, (tf.sigmoid, tf.tanh))
        places = np.column_stack([tree.spans(), tree.heights()]).tolist()
        for place, state in zip(places, states, strict=True):
            found[(number, *place)] = state
    return found


def place_of_rows(packed):
    """Returns (tree, start, end, height) of each packed row."""
    heights = np.zeros(len(packed.trees), int)
    for parent, child in sorted(zip(packed.parents.numpy(), packed.children)):
        heights[parent] = max(heights[parent], heights[int(child)] + 1)
    return [
        (int(tree), int(start), int(end), int(height))
        for tree, (start, end), height in zip(
            packed.trees, packed.spans.numpy(), heights
        )
    ]


CASES = {
    "one_word": (1, 0, 1),
    "unary_chain": (1, 5, 1),
    "small": (4, 3, 3),
    "deep": (1, 12, 2),
    "wide": (2, 3, 6),
}


def make_case(case):
    count, depth, arity = CASES[case]
    generator = np.random.default_rng(len(case))
    trees = [random_tree(generator, depth, arity) for _ in range(count)]
    if case == "small":  # Depths differ, and one caption is a single word.
        trees += [random_tree(generator, depth, 2) for depth in (0, 1, 6)]
    return trees


@pytest.mark.parametrize(
    "case, tied, in_graph",
    [
        *((case, False, False) for case in CASES),
        ("small", True, False),
        ("deep", False, True),
    ],
)
def test_tree_lstm_and_its_gradients_equal_the_recursion(case, tied, in_graph):
    trees = make_case(case)
    rows, count = batch_of(trees)
    layer = built(tied)
    generator = np.random.default_rng(5)
    vectors = tf.constant(generator.normal(size=(count, DIM)))
    packed = pack_trees(rows, noun_phrases=not tied)
    ids = packed.word_ids - 1
    num_nodes = sum(tree.num_nodes for tree in trees)
    weighting = generator.normal(size=(num_nodes, UNITS))
    sources = [vectors, *layer.trainable_variables]

    def with_gradients(compute):
        with tf.GradientTape() as tape:
            tape.watch(vectors)
            states = compute()
            loss = tf.reduce_sum(states * weighting)
        return states, tape.gradient(loss, sources)

    places = place_of_rows(packed)

    def recursion():
        states = wanted_states(trees, layer, vectors)
        return tf.concat([states[place] for place in places], axis=0)

    call = tf.function(layer.call, autograph=False) if in_graph else layer
    found, found_gradients = with_gradients(
        lambda: call(tf.gather(vectors, ids), packed)
    )
    wanted, wanted_gradients = with_gradients(recursion)
    assert len(set(places)) == len(places) == num_nodes
    np.testing.assert_allclose(found, wanted, atol=1e-12)
    for one, other in zip(found_gradients, wanted_gradients):
        other = 0 * one if other is None else other
        one, other = (tf.convert_to_tensor(value) for value in (one, other))
        np.testing.assert_allclose(one, other, atol=1e-9)


def test_tree_lstm_is_traced_once_per_width():
    layer, traces = built(dtype="float32"), []

    @tf.function(autograph=False)
    def run(rows):
        traces.append(rows.shape)
        packed = pack_trees(rows)
        return layer(tf.ones([tf.size(packed.word_ids), DIM]), packed)

    generator = np.random.default_rng(0)
    for depth in (1, 2, 4, 2, 1):
        array = tree_array_of(random_tree(generator, depth, 2))
        run(TreeRows([array, array]).batch([0, 1]))
    widths = {tuple(shape) for shape in traces}
    assert len(traces) == len(widths) < 4


def tree_array_of(tree):
    return tree_array(tree, np.ones(len(tree.words), int))


def test_a_long_chain_of_nodes_is_computed():
    tree = read_tree(f"{'(S ' * 120}(NN dog){')' * 120}")
    rows = TreeRows([tree_array_of(tree)]).batch([0])
    layer = built(dtype="float32")
    packed = pack_trees(rows)
    states = layer(tf.ones([1, DIM]), packed)
    assert states.shape == (121, UNITS) and np.isfinite(states).all()
