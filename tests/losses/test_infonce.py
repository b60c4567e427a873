import math

import numpy as np
import tensorflow as tf

from tbnets.losses.infonce import InfoNCELoss
from tbnets.losses.positives import View
from tbnets.losses.ranking import rank
from tests import reference
from tests.losses.cases import batch, ids_of, unit_rows, with_gradients


def test_loss_of_a_batch_worked_by_hand():
    # Two captions of image 1 at similarities 1 and 0, one of image 2 at 0.
    images = tf.constant([[1.0, 0.0], [0.0, 1.0]])
    texts = tf.constant([[1.0, 0.0], [0.0, 1.0], [0.0, -1.0]])
    loss = InfoNCELoss(0.5, {"image_to_text": 2.0})
    output = loss(images, texts, [1, 2], [1, 1, 2])
    # Logits of image 1: 2, 0 | 0; of image 2: 0, 2 | -2. The first pays
    # log(e^2 + 2) - (2 + 0) / 2, the second log(1 + e^2 + e^-2) + 2.
    first = math.log(math.exp(2) + 2) - 1
    second = math.log(1 + math.exp(2) + math.exp(-2)) + 2
    term = (first + second) / 2
    np.testing.assert_allclose(output.terms["image_to_text"], term, rtol=1e-6)
    np.testing.assert_allclose(output.total, 2 * term, rtol=1e-6)
    # The closest caption of image 2 is one of image 1.
    assert output.active_fraction["image_to_text"] == 0.5


def test_gradient_is_finite_at_a_small_temperature():
    images = tf.constant([[1.0, 0.0], [-1.0, 0.0]])
    run = with_gradients(InfoNCELoss(1e-3))
    output, gradients = run(images, images, [1, 2], [2, 1])
    # Logits 1000 for the wrong one and -1000 for the right one.
    np.testing.assert_allclose(output.total, 2000, rtol=1e-6)
    assert all(np.isfinite(gradient).all() for gradient in gradients)


def test_both_directions_share_one_matrix_product():
    """The product of two views is made once, in both directions."""
    images, texts, _ = batch("ragged")
    run = tf.function(InfoNCELoss(), autograph=False)
    graph = run.get_concrete_function(images, texts, *ids_of("ragged")).graph
    assert [op.type for op in graph.get_operations()].count("MatMul") == 1


def test_weighted_anchors_and_excluded_candidates_equal_the_reference():
    generator = np.random.default_rng(0)
    anchors, candidates = unit_rows(5, 1), unit_rows(9, 2)
    kinds = generator.integers(0, 3, (5, 9))
    weights = generator.uniform(size=5).astype("f4")
    total, share, *wanted = reference.anchor_term(
        *(anchors, candidates, kinds == 0, kinds == 1),
        lambda near, far: reference.infonce(near, far, 0.2),
        weights,
    )
    with tf.GradientTape() as tape:
        sides = tf.constant(anchors), tf.constant(candidates)
        tape.watch(sides)
        view = View(*sides, kinds == 0, kinds != 1, weights)
        loss = InfoNCELoss(0.2, {"text_to_image": 1.0})
        output = rank(loss, {"text_to_image": view})
    np.testing.assert_allclose(output.total, total, rtol=1e-5)
    np.testing.assert_allclose(output.active_fraction["text_to_image"], share)
    for gradient, values in zip(tape.gradient(output.total, sides), wanted):
        np.testing.assert_allclose(gradient, values, rtol=1e-3, atol=1e-5)
