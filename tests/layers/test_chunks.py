"""Encoding in chunks against encoding whole batches."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from tbnets.features.image_encoders import SmallConvNet
from tbnets.layers.branch import Branch, SeededDropout
from tbnets.layers.chunks import check_encoder, encode_in_chunks
from tbnets.layers.configured import ConfiguredLayer
from tbnets.layers.text_encoders import MeanOfWords, RecurrentEncoder
from tbnets.layers.tree_lstm import TreeEncoder
from tbnets.losses.infonce import InfoNCELoss
from tbnets.losses.triplet import TripletLoss
from tbnets.models.embedding_network import EmbeddingNetwork
from tbnets.models.hm_lstm import HMLSTM
from tbnets.models.similarity_network import SimilarityNetwork
from tests.models.test_hm_lstm import BATCH, VOCABULARY
from tests.refusals import refused

TERMS = {"image_to_text": 1.0, "text_to_text": 0.5}


class Convolution(ConfiguredLayer):
    """A convolution with a penalty on its weights, and optional dropout."""

    def __init__(self, rate=0.0, kind=SeededDropout, **kwargs):
        super().__init__(**kwargs)
        self.output_dim, self.rate, self.kind = 12, rate, kind
        penalty = keras.regularizers.L2(0.1)
        self.layer = keras.layers.Conv2D(
            3, 3, strides=2, padding="same", kernel_regularizer=penalty
        )
        self.drop = kind(rate, seed=5)

    def build(self, input_shape):
        self.layer.build(input_shape)
        self.drop.build((None, 2, 2, 3))
        super().build(input_shape)

    def call(self, inputs, training=False):
        maps = self.drop(tf.nn.relu(self.layer(inputs)), training=training)
        return tf.reshape(maps, [-1, 12])


def make_batch():
    generator = np.random.default_rng(0)
    owners = np.repeat(np.arange(5), (2, 1, 0, 3, 1))
    ids = generator.integers(1, 9, (len(owners), 4))
    ids[0, 2:] = 0
    pixels = generator.normal(size=(5, 4, 4, 3))
    return {
        "images": tf.constant(pixels, tf.float32),
        "captions": tf.constant(ids, tf.int32),
        "image_ids": tf.range(5, dtype=tf.int64),
        "caption_image_ids": tf.constant(owners, tf.int64),
    }


def losses_and_weights(network, chunk, graph, batch=None, **options):
    """Returns the losses of two training steps, and the weights after them."""
    batch = batch or make_batch()
    optimizer = keras.optimizers.SGD(0.1)
    network.compile(optimizer, encode_chunk=chunk, **options)
    step = network.train_step
    if graph:
        step = tf.function(step, autograph=False)
    losses = [float(step(batch)["loss"]) for _ in range(2)]
    return losses, network.get_weights()


def make_network(kind, words):
    keras.utils.set_random_seed(0)
    network = kind(
        Branch((8, 4), seed=1, dropout=0.3),
        Branch((8, 4), seed=2, dropout=0.3),
        image_encoder=Convolution(),
        text_encoder=words(),
    )
    network.build({"images": (None, 4, 4, 3), "captions": (None, None)})
    return network


def lstm():
    return RecurrentEncoder(9, "lstm", 5, 6)


def means():
    return MeanOfWords(9, 5)


TRIPLETS = {"loss": TripletLoss(margin=0.5, term_weights=TERMS)}
INFONCE = {"loss": InfoNCELoss(0.2, TERMS)}
ONE_TERM = {"loss": InfoNCELoss(0.2, {"image_to_text": 1.0})}
CASES = {
    "one_term": (EmbeddingNetwork, means, ONE_TERM),
    "triplets": (EmbeddingNetwork, lstm, TRIPLETS),
    "pairs": (SimilarityNetwork, means, {}),
}


@pytest.mark.parametrize(
    "case, chunk, graph",
    [
        ("one_term", 2, True),
        ("triplets", 3, False),
        ("pairs", 5, False),
    ],
)
def test_steps_in_chunks_equal_steps_of_whole_batches(case, chunk, graph):
    kind, words, options = CASES[case]
    assert_equal_steps(
        *(
            losses_and_weights(
                make_network(kind, words), size, graph and size, **options
            )
            for size in (None, chunk)
        )
    )


def assert_equal_steps(chunked, whole):
    np.testing.assert_allclose(chunked[0], whole[0], rtol=1e-5)
    for found, expected in zip(chunked[1], whole[1]):
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


def test_photos_and_regions_of_an_hm_lstm_are_encoded_in_chunks():
    def steps(chunk):
        keras.utils.set_random_seed(0)
        image_encoder, region_encoder, *branches = (
            Branch((6, 4), "none", dropout=0, seed=seed) for seed in range(5)
        )
        network = HMLSTM(
            *branches[:2],
            image_encoder,
            TreeEncoder(VOCABULARY.size, 3, 6),
            branches[2],
            region_encoder,
        )
        shapes = {"images": (None, 5), "regions": (None, 5)}
        network.build({**shapes, "captions": (None, None, 6)})
        batch = {name: tf.constant(array) for name, array in BATCH.items()}
        return losses_and_weights(network, chunk, False, batch, **INFONCE)

    assert_equal_steps(steps(2), steps(None))


@pytest.mark.parametrize(
    "kind, graph",
    [
        (SeededDropout, False),
        (SeededDropout, True),
        (keras.layers.Dropout, False),
    ],
)
def test_the_gradient_draws_the_dropout_masks_of_its_features(kind, graph):
    encoder = Convolution(0.5, kind)
    if keras.__version__.startswith("2.") and kind is not SeededDropout:
        with refused("encode_chunk"):  # It has no states.
            check_encoder(encoder, "encode_chunk", 2)
        return
    check_encoder(encoder, "encode_chunk", 2)
    encoder.build((None, 4, 4, 3))
    pixels, [kernel, bias] = make_batch()["images"], encoder.trainable_weights
    bias.assign([0.5, 1.0, 2.0])

    def gradient():
        with tf.GradientTape() as tape:
            twice = [encode_in_chunks(encoder, pixels, 2, 12) for _ in range(2)]
            total = tf.reduce_sum(twice[0]) + 3 * tf.reduce_sum(twice[1])
        return total, *tape.gradient(total, [kernel, bias])

    total, *slopes = (
        tf.function(gradient, autograph=False) if graph else gradient
    )()
    # A ReLU network with one layer is linear in its active weights.
    product = sum(tf.reduce_sum(v * g) for v, g in zip((kernel, bias), slopes))
    np.testing.assert_allclose(product, total, rtol=1e-5)
    if kind is SeededDropout:
        assert int(encoder.drop.draws) == 2 * 3  # Chunks of 2, 2 and 1 rows.


def test_an_empty_batch_and_frozen_weights_have_features():
    encoder = means()
    encoder.build((None, None))
    ids = make_batch()["captions"]
    assert encode_in_chunks(encoder, ids[:0], 2, 5).shape == (0, 5)
    encoder.trainable = False
    with tf.GradientTape() as tape:
        features = encode_in_chunks(encoder, ids, 3, 5)
    np.testing.assert_allclose(features, encoder(ids))
    assert tape.gradient(features, encoder.trainable_weights) == []


def test_trainable_batch_normalisation_is_rejected():
    encoder = SmallConvNet((3,))
    with refused("encode_chunk"):
        check_encoder(encoder, "encode_chunk", 2)
    encoder.trainable = False
    check_encoder(encoder, "encode_chunk", 2)


def test_xla_with_chunks_is_rejected():
    network = make_network(EmbeddingNetwork, means)
    with refused("jit_compile"):
        network.compile("sgd", encode_chunk=2, jit_compile=True, **INFONCE)
