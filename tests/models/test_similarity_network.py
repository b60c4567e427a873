import keras
import numpy as np
import pytest
import tensorflow as tf

from tbnets.layers.branch import Branch, PairHead
from tbnets.losses.logistic import PAIR_LOSSES, sample_pairs
from tbnets.models.similarity_network import SimilarityNetwork
from tests import reference

OWNERS = [0, 0, 1, 3, 3, 3, 4]


def make(dropout=0.0, head=(6, 3), scale=None):
    keras.utils.set_random_seed(0)
    branch = {"dropout": dropout, "batch_normalization": "none"}
    network = SimilarityNetwork(
        Branch((8, 4), seed=1, **branch),
        Branch((8, 4), seed=2, **branch),
        head=PairHead(head, dropout, scale, seed=3),
    )
    network.build({"images": (None, 6), "captions": (None, 5)})
    return network


def make_batch(num_images=5, owners=OWNERS, seed=0):
    rng = np.random.default_rng(seed)
    first = 1000092795  # As float32, this number equals the next.
    return {
        "images": tf.constant(rng.normal(size=(num_images, 6)), tf.float32),
        "captions": tf.constant(rng.normal(size=(len(owners), 5)), tf.float32),
        "image_ids": tf.range(num_images, dtype=tf.int64) + first,
        "caption_image_ids": tf.constant(owners, tf.int64) + first,
    }


def embedded(network, batch):
    return (
        network.embed_images(batch["images"]),
        network.embed_text(batch["captions"]),
    )


def test_a_head_may_be_any_layer():
    head = keras.layers.Lambda(lambda products: tf.reduce_sum(products, 1))
    network = SimilarityNetwork(Branch((8, 4)), Branch((8, 4)), head=head)
    network.build({"images": (None, 6), "captions": (None, 5)})
    images, texts = embedded(network, make_batch())
    found = network.similarities(images, texts)
    np.testing.assert_allclose(found, images @ tf.transpose(texts), 1e-4, 1e-5)
    assert network.floats_per_pair == 8  # The two embeddings.


@pytest.mark.parametrize("head, scale", [((), None), ((3,), 1), ((6, 3), None)])
def test_similarities_equal_the_reference(head, scale):
    network = make(head=head, scale=scale)
    images, texts = embedded(network, make_batch())
    layers = [*network.head.steps, network.head.last]
    kernels = [layer.kernel.numpy() for layer in layers]
    kernels[0] = kernels[0] * (scale or 4)  # The product has 4 entries.
    biases = [layer.bias.numpy() for layer in layers]
    wanted = reference.pair_logits(
        images.numpy(), texts.numpy(), kernels, biases
    )
    found = network.similarities(images, texts)
    assert found.dtype == tf.float32
    np.testing.assert_allclose(found, wanted, 1e-4, 1e-5)
    called = network(make_batch())["similarities"]
    np.testing.assert_array_equal(called, found)


def test_training_applies_dropout_in_the_head():
    network, again = make(dropout=0.5), make(dropout=0.5)
    batch = make_batch()
    found = network(batch, training=True)["similarities"]
    images = again.embed_images(batch["images"], training=True)
    texts = again.embed_text(batch["captions"], training=True)
    served = again.similarities(images, texts)
    wanted = again.similarities(images, texts, training=True)
    np.testing.assert_array_equal(found, wanted)
    assert not np.allclose(found, served)


@pytest.mark.parametrize("num_candidates", [1, 4])
def test_batch_loss_equals_the_loss_of_its_pairs(num_candidates):
    network, batch = make(), make_batch()
    network.compile("sgd", num_candidates=num_candidates, sampling_seed=5)
    logits = network(batch)["similarities"].numpy()
    ids = batch["image_ids"], batch["caption_image_ids"]
    options = {"seed": [5, 0], "num_candidates": num_candidates}
    images, negatives, _ = sample_pairs(*ids, **options)
    positives = [logits[i, j] for j, i in enumerate(images)]
    # The candidate with the largest logit is the negative.
    others = [logits[i, row].max() for i, row in zip(images, negatives.numpy())]
    count = len(OWNERS)
    wanted = reference.logistic_loss(
        positives + others, [True] * count + [False] * count, [True] * 2 * count
    )
    np.testing.assert_allclose(
        list(network.batch_loss(batch)), wanted[:4], 1e-5
    )


@pytest.mark.parametrize("text_ids", [None, [7, 8, 7, 9, 10, 11, 12]])
def test_softmax_loss_averages_both_directions(text_ids):
    # The last image has no caption, and the last caption has no image.
    network, batch = make(), make_batch(4)
    network.compile("sgd", loss="softmax")
    if text_ids:
        batch["text_ids"] = tf.constant(text_ids)
    logits = network(batch)["similarities"].numpy()
    wrong = ~reference.positive_masks(range(4), OWNERS, text_ids)[0]
    pairs = [(i, j) for j, i in enumerate(OWNERS) if i < 4]
    images, texts = np.transpose(pairs)
    matches = logits[images, texts]
    both = [
        reference.softmax_loss(matches, logits[images], wrong[images])[:2],
        reference.softmax_loss(matches, logits.T[texts], wrong.T[texts])[:2],
    ]
    np.testing.assert_allclose(
        list(network.batch_loss(batch)), np.mean(both, axis=0), 1e-5
    )


def test_each_step_draws_other_captions():
    network, batch = make(), make_batch()
    network.compile("sgd")
    losses = set()
    for step in range(5):
        network.optimizer.iterations.assign(step)
        losses.add(float(network.batch_loss(batch).total))
    assert len(losses) > 1


@pytest.mark.parametrize("loss", PAIR_LOSSES)
def test_weights_do_not_change_without_a_wrong_caption(loss):
    network = make()
    network.compile(keras.optimizers.SGD(1.0), loss=loss)
    before = [v.numpy() for v in network.trainable_variables]
    # A single pair, a single image, and captions without an image.
    for num_images, owners in ((1, [0]), (1, [0, 0, 0]), (2, [7, 7])):
        logs = network.train_step(make_batch(num_images, owners))
        assert float(logs["loss"]) == 0.0
    for one, other in zip(before, network.trainable_variables):
        np.testing.assert_array_equal(one, other.numpy())
