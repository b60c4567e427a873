"""Tests of the embeddings of a photo's cells, and of heat maps."""

import numpy as np
import pytest
import tensorflow as tf

from tbnets.serving.endpoints import embed_map

RNG = np.random.default_rng(0)
MAPS = RNG.uniform(0, 2, (2, 3, 4, 5)).astype(np.float32)
FIRST = RNG.normal(size=(5, 16)).astype(np.float32)
LAST = RNG.normal(size=(16, 6)).astype(np.float32)


@pytest.mark.parametrize("hidden", [tf.identity, tf.tanh])
def test_cells_are_the_linear_approximation(hidden):
    def embed(rows):
        units = hidden(tf.sqrt(rows) @ FIRST)
        return tf.math.l2_normalize(units @ LAST, axis=1)

    found = embed_map(embed, tf.constant(MAPS)).numpy()
    means = tf.constant(MAPS.mean(axis=(1, 2)))
    with tf.GradientTape() as tape:
        tape.watch(means)
        embeddings = embed(means)
    slopes = tape.batch_jacobian(embeddings, means).numpy()
    for n, y, x in np.ndindex(2, 3, 4):
        moved = slopes[n] @ (MAPS[n, y, x] - means[n].numpy())
        expected = embeddings[n].numpy() + moved
        # The finite difference has a relative error of about its step.
        np.testing.assert_allclose(found[n, y, x], expected, atol=0.03)
    mean = found.mean(axis=(1, 2))
    np.testing.assert_allclose(mean, embeddings, atol=0.02)
