import numpy as np
import pytest
import tensorflow as tf

from tbnets.losses import triplet
from tests import reference
from tests.losses.cases import (
    IDS,
    TERMS,
    batch,
    check,
    ids_of,
    unit_rows,
    with_gradients,
)

KEPT = {"top_k": 3, "hardest": 1, "all": None}

REDUCED = [
    {"margin": 0.05, "distance": "euclidean", "reduction": "mean_active"},
    {"margin": 0.5, "distance": "euclidean", "reduction": "mean"},
    {"margin": 0.2, "distance": "cosine", "reduction": "sum"},
]


@pytest.mark.parametrize("number, name", enumerate(IDS))
def test_values_and_gradients_equal_the_reference(number, name):
    """Each choice of negatives meets all of `REDUCED` and `GRADIENTS`.

    A batch has one choice; tests/losses/test_ranking.py has it with others.
    """
    images, texts, masks = batch(name)
    negatives, options = [*KEPT][number % 3], REDUCED[number // 3 % 3]
    loss = triplet.TripletLoss(
        num_negatives=3 if negatives == "top_k" else None,
        term_weights=TERMS,
        negatives=negatives,
        gradient=triplet.GRADIENTS[(number + 1) % 2],
        **options,
    )
    margin, *others = options.values()
    wanted = reference.triplet_loss(
        *(images, texts, masks, TERMS, margin, KEPT[negatives]), *others
    )
    check(with_gradients(loss)(images, texts, *ids_of(name)), wanted)


def test_loss_of_a_batch_worked_by_hand():
    # Images (1, 0) and (0, 1); captions (0.6, 0.8) of the first, (1, 0) of
    # the second. Cosine distances: first image 0.4 to its own, 0 to the
    # other; second image 1 to its own, 0.2 to the other.
    images = tf.constant([[1.0, 0.0], [0.0, 1.0]])
    texts = tf.constant([[0.6, 0.8], [1.0, 0.0]])
    loss = triplet.TripletLoss(
        margin=0.1,
        term_weights={"image_to_text": 2.0},
        distance="cosine",
        reduction="sum",
    )
    output = loss(images, texts, [1, 2], [1, 2])
    # 0.1 + 0.4 - 0 = 0.5 and 0.1 + 1 - 0.2 = 0.9: 1.4, weighted 2.8.
    np.testing.assert_allclose(output.terms["image_to_text"], 1.4, rtol=1e-6)
    np.testing.assert_allclose(output.total, 2.8, rtol=1e-6)
    assert output.active_fraction["image_to_text"] == 1.0


def test_identical_embeddings_sit_at_the_margin_with_finite_gradients():
    images = tf.tile([[1.0, 0.0]], [3, 1])
    run = with_gradients(triplet.TripletLoss(0.05))
    output, gradients = run(images, images, [1, 2, 3], [1, 2, 3])
    np.testing.assert_allclose(output.terms["image_to_text"], 0.05, rtol=1e-6)
    assert all(np.all(np.isfinite(gradient)) for gradient in gradients)


def test_hardest_hinge_agrees_with_tensorflow_addons():
    addons = pytest.importorskip(
        "tensorflow_addons", reason="needs the addons stack", exc_type=Exception
    )
    # Its hardest triplet of an anchor takes the farthest positive too; with
    # two captions an image an anchor has one positive, and both coincide.
    texts = unit_rows(8, 3)
    labels = tf.constant([1, 2, 3, 4, 1, 2, 3, 4])
    wanted = addons.losses.triplet_hard_loss(labels, texts, margin=0.3)
    loss = triplet.TripletLoss(
        0.3,
        term_weights={"text_to_text": 1.0},
        reduction="mean",
        negatives="hardest",
    )
    found = loss(texts[:4], texts, labels[:4], labels)
    np.testing.assert_allclose(found.total, wanted, rtol=1e-4)
