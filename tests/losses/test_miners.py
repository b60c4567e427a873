import numpy as np
import pytest
import tensorflow as tf

from tbnets.losses import miners


@pytest.mark.parametrize("columns", [1, 15, 16, 17, 100])
@pytest.mark.parametrize("num_negatives", [1, 3, 40])
def test_hardest_negatives_equal_those_of_a_full_sort(columns, num_negatives):
    rng = np.random.default_rng(columns)
    similarities = rng.normal(size=(7, columns)).astype(np.float32)
    similarities[0, columns // 2 :][:5] += 9  # In one group of neighbours.
    positive = rng.random((7, columns)) < 0.3
    indices, valid = miners.hardest_negatives(
        tf.constant(similarities), tf.constant(positive), num_negatives
    )
    assert indices.shape == (7, min(num_negatives, columns))
    assert indices.dtype == tf.int32
    assert np.isin(indices, range(columns)).all()
    for row in range(7):
        others = np.flatnonzero(~positive[row])
        wanted = others[np.argsort(-similarities[row, others])]
        found = indices[row].numpy()[valid[row].numpy()]
        np.testing.assert_array_equal(found, wanted[:num_negatives])


@pytest.mark.parametrize("shape", [(0, 0), (0, 3), (3, 0)])
def test_miners_return_no_columns_for_empty_batches(shape):
    for indices, valid in (
        miners.hardest_negatives(tf.zeros(shape), tf.zeros(shape, tf.bool), 4),
        miners.first_positives(tf.zeros(shape, tf.bool), 4),
    ):
        assert indices.shape == valid.shape == (shape[0], min(4, shape[1]))


def test_first_true_marks_rows_without_any(compiled):
    mask = tf.constant([[False, True, True], [False, False, False]])
    np.testing.assert_array_equal(compiled(miners.first_true)(mask), [1, -1])
    assert compiled(miners.first_true)(tf.zeros([2, 0], tf.bool))[0] == -1


@pytest.mark.parametrize("count", [1, 3, 40])
def test_largest_of_transposed_values_equals_largest_of_rows(count):
    generator = np.random.default_rng(count)
    values = generator.integers(0, 9, (48, 32)).astype(np.float32)
    values[:, 5] = values[:40, 6] = -np.inf
    found = miners.largest(tf.constant(values), count, transposed=True)
    wanted = miners.largest(tf.constant(values.T), count)
    for one, other in zip(found, wanted):
        np.testing.assert_array_equal(one, other)
