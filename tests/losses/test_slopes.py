import numpy as np
import pytest
import tensorflow as tf

from tbnets.losses import hinges, triplet

BOTH = {"pairs": hinges.PairSlopes, "matrix": hinges.MatrixSlopes}


@pytest.fixture(params=BOTH)
def kind(request):
    return BOTH[request.param]


def added(kind, sides, groups):
    """Returns the gradients of sides, of groups `(pairs, values, turned)`."""
    gathered = kind([tf.constant(side, tf.float32) for side in sides])
    parts = [
        gathered.of_pairs(
            tf.constant(pairs, tf.int32, (len(pairs), 2)),
            tf.constant(values, tf.float32, (len(values),)),
            turned,
        )
        for pairs, values, turned in groups
    ]
    return gathered.of_sides([sum(one) for one in zip(*parts)])


def test_gradients_of_two_sides_are_those_of_their_pairs(kind):
    rows, columns = np.eye(3, 4), 10 * np.eye(2, 4)
    groups = [
        # A row and its column; one of them is told twice.
        ([(0, 1), (0, 1), (2, 0)], [1, 2, 3], False),
        # A column and its row.
        ([(0, 2), (1, 0)], [5, 7], True),
    ]
    by_rows, by_columns = added(kind, (rows, columns), groups)
    # Row 0 meets column 1 by 1 + 2 + 7, row 2 column 0 by 3 + 5.
    np.testing.assert_array_equal(
        by_rows, [[0, 100, 0, 0], [0] * 4, [80] + [0] * 3]
    )
    np.testing.assert_array_equal(by_columns, [[0, 0, 8, 0], [10, 0, 0, 0]])


def test_a_set_compared_with_itself_gets_the_gradient_of_both_sides(kind):
    rows = np.eye(3)
    groups = [([(0, 1), (2, 1), (2, 2)], [1, 3, 5], False)]
    [found] = added(kind, [rows], groups)
    np.testing.assert_array_equal(found, [[0, 1, 0], [1, 0, 3], [0, 3, 10]])


def test_no_pair_gives_no_gradient(kind):
    for found in added(kind, (np.eye(3), np.eye(2, 3)), [([], [], False)]):
        assert not np.any(found)


@pytest.mark.parametrize("reduction", ["mean_active", "sum"])
def test_a_sparse_gradient_is_the_dense_one(reduction):
    images = tf.math.l2_normalize(tf.random.stateless_normal([9, 5], (0, 1)), 1)
    texts = tf.math.l2_normalize(tf.random.stateless_normal([33, 5], (2, 3)), 1)
    ids = tf.range(9), tf.constant([0] * 9 + [*range(9)] * 2 + [3] * 6)
    gradients = []
    for gradient in triplet.GRADIENTS:
        loss = triplet.TripletLoss(
            0.5, 3, reduction=reduction, gradient=gradient
        )
        with tf.GradientTape() as tape:
            tape.watch([images, texts])
            total = loss(images, texts, *ids).total
        gradients.append(tape.gradient(total, [images, texts]))
    for one, other in zip(*gradients):
        assert np.any(one)
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-6)
