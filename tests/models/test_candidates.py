"""Tests the losses of batches that contain candidate regions."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from tbnets.data.candidate_mining import CandidateMining
from tbnets.layers.branch import Branch, PairHead
from tbnets.losses.triplet import TripletLoss
from tbnets.models.embedding_network import EmbeddingNetwork
from tbnets.models.similarity_network import SimilarityNetwork
from tests import reference

DIMS = (6, 5)
MARGIN = 0.3
SHAPES = {"images": (None, DIMS[0]), "captions": (None, DIMS[1])}


def branches():
    keras.utils.set_random_seed(1)
    return [Branch((6, 4), "none", dropout=0.0, seed=seed) for seed in (1, 2)]


def batch(num_candidates=12, share=0.5, num_phrases=4):
    generator = np.random.default_rng(1)
    chains = np.array([3, 3, 8, 5])[:num_phrases]
    drawn_for = np.array([0, 1, 1, 2, 3], np.int32)
    drawn_for = drawn_for[drawn_for < num_phrases]
    images = generator.normal(size=(len(drawn_for), DIMS[0]))
    captions = generator.normal(size=(num_phrases, DIMS[1]))
    return {
        "images": images.astype("f4"),
        "captions": captions.astype("f4"),
        "image_ids": chains[drawn_for],
        "caption_image_ids": chains,
        "drawn_for": drawn_for,
        "candidates": generator.normal(size=(num_candidates, DIMS[0])).astype(
            "f4"
        ),
        "is_negative": generator.random((num_phrases, num_candidates)) < share,
    }


def tensors(values):
    return {key: tf.constant(value) for key, value in values.items()}


def embedding_network(weights, **loss):
    network = EmbeddingNetwork(*branches())
    network.build(SHAPES)
    loss = TripletLoss(
        margin=MARGIN, reduction="sum", term_weights=weights, **loss
    )
    network.compile("sgd", loss, mining=CandidateMining())
    return network


def gradients_of(network, values):
    with tf.GradientTape() as tape:
        output = network.batch_loss(tensors(values), training=True)
    return output, tape.gradient(output.total, network.trainable_variables)


def all_at_once(network, values, most):
    """Returns the loss of Algorithm 1, and its gradient for all candidates."""
    with tf.GradientTape() as tape:
        regions, found = (
            network.embed_images(values[key])
            for key in ("images", "candidates")
        )
        phrases = network.embed_text(values["captions"])
        by_region, by_phrase = reference.algorithm_1(
            regions.numpy(),
            phrases.numpy(),
            (values["image_ids"], values["caption_image_ids"]),
            found.numpy(),
            values["is_negative"],
            (MARGIN, most),
        )
        total = tf.zeros([])
        for x, y, other in by_region:
            near = tf.norm(regions[x] - phrases[y])
            total += MARGIN + near - tf.norm(regions[x] - phrases[other])
        for y, x, other in by_phrase:
            near = tf.norm(regions[x] - phrases[y])
            total += 4 * (MARGIN + near - tf.norm(found[other] - phrases[y]))
    return total, tape.gradient(total, network.trainable_variables)


@pytest.mark.parametrize(
    "most, changes",
    [
        (2, {}),
        (50, {}),
        (3, {"num_candidates": 40, "share": 0.05}),
        (2, {"share": 0.0}),
        (2, {"num_candidates": 0}),
        (2, {"num_candidates": 1, "share": 1.0}),
        (2, {"num_phrases": 2}),  # Of one thing.
        (4, {"num_phrases": 1, "share": 0.9}),
    ],
)
def test_loss_and_gradient_equal_algorithm_1(most, changes):
    network = embedding_network(
        {"image_to_text": 1, "text_to_image": 4}, num_negatives=most
    )
    values = batch(**changes)
    output, gradients = gradients_of(network, values)
    total, expected = all_at_once(network, values, most)
    np.testing.assert_allclose(output.total, total, rtol=1e-4)
    for one, other in zip(gradients, expected):
        other = np.zeros(one.shape) if other is None else other
        np.testing.assert_allclose(one, other, rtol=1e-3, atol=1e-4)


def test_only_picked_candidates_are_embedded_with_a_gradient():
    network = embedding_network({"text_to_image": 1}, num_negatives=1)
    seen = []
    embed = network.embed_images

    def counted(images, training=False):
        seen.append((len(images), training))
        return embed(images, training=training)

    network.embed_images = counted
    network.batch_loss(tensors(batch()), training=True)
    # First all 12 candidates, then 5 images and at most 4 candidates.
    assert seen[0] == (12, False)
    assert seen[1][1] is True and 5 < seen[1][0] <= 9
    assert len(seen) == 2


def test_terms_within_a_view_count_after_their_steps():
    weights = {"text_to_image": 1, "image_to_image": 0.5}
    network = embedding_network(weights)
    one = gradients_of(embedding_network({"text_to_image": 1}), batch())
    both = gradients_of(network, batch())
    network.structure_steps, network.structure_end = 1, 2
    # Steps 0 and 2 omit the term within a view.
    for step, wanted in enumerate((one, both, one)):
        network.optimizer.iterations.assign(step)
        output, gradients = gradients_of(network, batch())
        wanted_output, wanted_gradients = wanted
        assert output.total == wanted_output.total
        assert (output.terms["image_to_image"] == 0) == (wanted is one)
        for found, expected in zip(gradients, wanted_gradients):
            np.testing.assert_array_equal(found, expected)


def similarity_network(num_candidates=1, loss="logistic"):
    network = SimilarityNetwork(*branches(), head=PairHead((3,), seed=3))
    network.build(SHAPES)
    network.compile(
        "sgd",
        num_candidates=num_candidates,
        sampling_seed=4,
        loss=loss,
        mining=CandidateMining(),
    )
    return network


@pytest.mark.parametrize("num_candidates", [1, 3])
def test_pairs_have_a_negative_of_their_own_phrase(num_candidates):
    network = similarity_network(num_candidates)
    # A phrase has at most one negative, so the draw is known.
    values = batch(num_candidates=4)
    values["is_negative"] = np.eye(4, dtype=bool)
    values["is_negative"][3, 3] = False
    output = network.batch_loss(tensors(values))
    texts = network.embed_text(values["captions"]).numpy()[values["drawn_for"]]
    regions = network.embed_images(values["images"]).numpy()
    others = network.embed_images(values["candidates"]).numpy()
    others = others[values["drawn_for"]]
    # Phrase 3 has no negative, so its pair, the last, does not count.
    good, bad = (
        network.judge(rows[:4], texts[:4]).numpy() for rows in (regions, others)
    )
    np.testing.assert_allclose(
        output.positive_loss, np.log1p(np.exp(-good)).mean(), rtol=1e-4
    )
    np.testing.assert_allclose(
        output.negative_loss, np.log1p(np.exp(bad)).mean(), rtol=1e-4
    )


def test_hardest_of_the_drawn_candidates_is_the_negative():
    network = similarity_network(200)
    values = batch(num_candidates=4, share=1.0)
    output = network.batch_loss(tensors(values))
    texts = network.embed_text(values["captions"])
    others = network.embed_images(values["candidates"])
    # 200 draws out of 4 candidates include each candidate.
    worst = network.similarities(others, texts).numpy().max(axis=0)
    worst = worst[values["drawn_for"]]
    np.testing.assert_allclose(
        output.negative_loss, np.log1p(np.exp(worst)).mean(), rtol=1e-4
    )


def test_softmax_ranks_a_region_among_all_candidates_of_its_phrase():
    network, values = similarity_network(loss="softmax"), batch()
    # Phrase 3, of the last region, has no negatives and does not count.
    values["is_negative"][3] = False
    output = network.batch_loss(tensors(values))
    owners = values["drawn_for"]
    texts = network.embed_text(values["captions"])
    regions, others = (
        network.similarities(network.embed_images(values[key]), texts).numpy()
        for key in ("images", "candidates")
    )
    total, first, *_ = reference.softmax_loss(
        regions[np.arange(5), owners],
        others.T[owners],
        values["is_negative"][owners],
    )
    np.testing.assert_allclose(output.total, total, rtol=1e-4)
    np.testing.assert_allclose(output.ranked_first, first, rtol=1e-6)
