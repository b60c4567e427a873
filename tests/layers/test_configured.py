"""Configs of layers, and what constants of them are."""

import tensorflow as tf

from tbnets.layers.heads import CanonicalProjection
from tbnets.layers.text_encoders import RecurrentEncoder


def test_a_config_holds_the_arguments_of_all_constructors():
    layer = RecurrentEncoder(5, "gru", units=3, word_dropout=0.5, name="words")
    expected = {
        "vocabulary_size": 5,
        "cell": "gru",
        "embedding_dim": 256,
        "units": 3,
        "bidirectional": False,
        "pooling": "last",
        "mean_beside": False,
        "word_dropout": 0.5,
        "seed": 0,
        "word_training": "trained",
        "name": "words",
    }
    assert expected.items() <= layer.get_config().items()


def test_constants_are_float32_and_never_trained():
    layer = CanonicalProjection(2, dtype="float32", trainable=True)
    layer.build((None, 3))
    assert not layer.trainable and not layer.trainable_weights
    assert {weight.dtype for weight in layer.weights} <= {"float32", tf.float32}
