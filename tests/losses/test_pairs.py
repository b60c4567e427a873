import numpy as np
import pytest
import tensorflow as tf

from tbnets.losses import logistic
from tests import reference

SEED = np.array([3, 4], np.int32)


def test_a_draw_close_to_one_picks_the_last_column():
    draws = np.full((1, 1), np.nextafter(np.float32(1), np.float32(0)))
    mask = np.ones((1, 2**12), bool)
    columns, _ = logistic.random_columns(mask, np.zeros(1, np.int32), draws)
    assert columns.numpy()[0, 0] == 2**12 - 1


@pytest.mark.parametrize("case", range(12))
def test_sampled_pairs_equal_the_reference(case):
    rng = np.random.default_rng(case)
    num_images, num_captions = rng.integers(1, 7, 2)
    ids = rng.integers(0, 4, num_images)
    owners = rng.integers(0, 5, num_captions)
    texts = rng.integers(0, 4, num_captions) if case % 2 else None
    found = logistic.sample_pairs(
        ids, owners, texts, seed=SEED, num_candidates=2
    )
    draws = tf.random.stateless_uniform((num_captions, 2), SEED, alg="philox")
    images, negatives = reference.pair_sample(
        ids.tolist(), owners.tolist(), texts, draws.numpy()
    )
    valid = found.valid.numpy()
    np.testing.assert_array_equal(valid, np.array(images) >= 0)
    for j in np.flatnonzero(valid):
        assert found.images[j] == images[j]
        assert found.negatives[j].numpy().tolist() == negatives[j]


def test_compiled_draws_equal_eager_draws(compiled):
    function = compiled(
        lambda ids, owners: logistic.sample_pairs(ids, owners, seed=SEED)
    )
    ids, owners = tf.range(4), tf.constant([0, 1, 1, 2, 3, 9])
    wanted = logistic.sample_pairs(ids, owners, seed=SEED)
    for one, other in zip(function(ids, owners), wanted):
        np.testing.assert_array_equal(one, other)
