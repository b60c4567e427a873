"""The losses under test, batches of all shapes, and losses with gradients."""

from typing import NamedTuple

import numpy as np
import tensorflow as tf

from tbnets.losses.infonce import InfoNCELoss
from tbnets.losses.triplet import TripletLoss
from tests import reference

TERMS = dict(zip(reference.TERMS, (1.0, 1.5, 0.3, 0.2)))


class Case(NamedTuple):
    """A loss, and its loops: a function (images, texts, masks, weights)."""

    loss: object
    loops: object


def triplets(*loops, **options):
    def wanted(*batch):
        return reference.triplet_loss(*batch, 0.3, *loops)

    return Case(TripletLoss(0.3, **options), wanted)


# The ways of summing hinges: of picked pairs, over all negatives.
CASES = {
    "picked": triplets(
        *(3, "euclidean", "mean"),
        num_negatives=3,
        term_weights={"text_to_image": 1.5},
        reduction="mean",
    ),
    "all": triplets(
        *(None, "cosine", "sum"),
        term_weights={"image_to_text": 1.0, "text_to_image": 1.5},
        negatives="all",
        distance="cosine",
        reduction="sum",
    ),
    "infonce": Case(
        InfoNCELoss(0.1, TERMS),
        lambda *batch: reference.loss_of_anchors(
            *batch, lambda near, far: reference.infonce(near, far, 0.1)
        ),
    ),
}
"""Every loss. Tests of modes, tiles, configs and dtypes run them all."""
# Ids of images, of the captions' images, and of the captions' texts.
IDS = {
    "ragged": ([4, 9, 2, 7], [4, 4, 9, 7, 7, 7, 2], None),
    "image_without_caption": ([1, 2, 3], [1, 1, 3, 3, 3], None),
    "image_drawn_twice": ([5, 6, 5], [5, 6, 6, 5, 6], None),
    "one_text_on_two_images": ([1, 2, 3, 1], [1, 2, 3, 1], [8, 8, 9, 7]),
    "more_images": ([1, 2, 3, 4, 5], [2, 4], None),
    "one_image": ([1], [1, 1, 1], None),
    "one_pair": ([1], [1], None),
    "no_positive": ([1, 2], [3, 4, 5], None),
    "no_caption": ([1, 2], [], None),
    "empty": ([], [], None),
    "crowded": ([1, 2], [1] * 11 + [2], None),
}


def unit_rows(count, seed, dim=6):
    rows = np.random.default_rng(seed).normal(size=(count, dim))
    return (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype("f4")


def batch(name):
    """Returns images, texts and masks of a batch of `IDS`."""
    image_ids, caption_ids, text_ids = IDS[name]
    return (
        unit_rows(len(image_ids), 1),
        unit_rows(len(caption_ids), 2),
        reference.positive_masks(image_ids, caption_ids, text_ids),
    )


def ids_of(name):
    """Returns the ids of a batch of `IDS` as tensors, with a text id each."""
    image_ids, caption_ids, text_ids = IDS[name]
    if text_ids is None:
        text_ids = range(len(caption_ids))
    return [
        tf.constant([*x], tf.int64) for x in (image_ids, caption_ids, text_ids)
    ]


def with_gradients(loss, **options):
    """Returns a function (images, texts, *ids) -> output, gradients."""

    def run(images, texts, *ids):
        sides = [tf.convert_to_tensor(rows) for rows in (images, texts)]
        with tf.GradientTape() as tape:
            tape.watch(sides)
            output = loss(*sides, *ids, **options)
        return output, tape.gradient(
            output.total, sides, unconnected_gradients="zero"
        )

    return run


def check(found, wanted):
    """Compares an output and its gradients with what a loop returns."""
    output, gradients = found
    total, terms, fractions, *wanted_gradients = wanted
    assert output.total.dtype == tf.float32
    np.testing.assert_allclose(output.total, total, rtol=1e-4, atol=1e-5)
    assert list(output.terms) == list(terms)
    for term in terms:
        value, share = output.terms[term], output.active_fraction[term]
        np.testing.assert_allclose(value, terms[term], rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(share, fractions[term], rtol=1e-6)
    for gradient, values in zip(gradients, wanted_gradients):
        np.testing.assert_allclose(gradient, values, rtol=1e-3, atol=1e-5)
