import numpy as np
import pytest
import tensorflow as tf

from tbnets.losses import triplet


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
