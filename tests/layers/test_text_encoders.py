import numpy as np
import pytest
import tensorflow as tf

from tbnets.layers.text_encoders import (
    MeanOfWords,
    RecurrentEncoder,
    pool_words,
)

IDS = np.array([[2, 3, 4], [5, 0, 0], [1, 0, 0]], np.int32)


def make(kind):
    if kind == "mean":
        return MeanOfWords(6, 4)
    cell, direction, pooling, *beside = kind.split("-")
    return RecurrentEncoder(
        6,
        cell,
        embedding_dim=4,
        units=5,
        bidirectional=direction == "both",
        pooling=pooling,
        mean_beside=bool(beside),
    )


KINDS = (
    "mean",
    "lstm-one-last",
    "lstm-one-max-mean",
    "lstm-both-mean",
    "gru-one-mean",
    "gru-both-last-mean",
    "gru-both-max",
)


@pytest.mark.parametrize("kind", KINDS)
def test_padding_and_other_rows_do_not_change_the_features(kind):
    encoder = make(kind)
    found, padded = encoder(IDS), np.pad(IDS, [[0, 0], [0, 4]])
    assert found.shape == (3, encoder.output_dim)
    np.testing.assert_allclose(found, encoder(padded), atol=1e-6)
    alone = encoder(IDS[1:2, :1])
    np.testing.assert_allclose(found[1:2], alone, atol=1e-6)
    for words in (4, 0):
        none = encoder(np.zeros((0, words), np.int32))
        assert none.shape == (0, encoder.output_dim)


def test_mean_of_words_is_the_mean():
    encoder = MeanOfWords(6, 2)
    encoder.build((None, None))
    table = np.arange(12, dtype="float32").reshape(6, 2)
    encoder.embedding.set_weights([table])
    # Words 2, 3, 4 are (4, 5), (6, 7), (8, 9); word 5 is (10, 11).
    np.testing.assert_allclose(encoder(IDS)[:2], [[6, 7], [10, 11]])


def test_pool_words_by_hand():
    states = tf.constant([[[1.0, -5.0], [3.0, -7.0], [9.0, 9.0]]])
    mask = tf.constant([[True, True, False]])
    np.testing.assert_allclose(pool_words(states, mask, "mean"), [[2, -6]])
    np.testing.assert_allclose(pool_words(states, mask, "max"), [[3, -5]])


def test_mean_of_words_is_appended_to_the_states():
    encoder, mean = make("gru-one-last-mean"), make("mean")
    features = encoder(IDS).numpy()
    mean.build((None, None))
    mean.embedding.set_weights(encoder.embedding.get_weights())
    np.testing.assert_allclose(features[:, 5:], mean(IDS), atol=1e-6)
