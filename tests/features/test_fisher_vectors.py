"""Layers of fixed text features give what the encoders give."""

import numpy as np
import pytest
import tensorflow as tf

from tbnets.features.caption_encoder import MeanFeatures
from tbnets.features.fisher import FisherFeatures
from tbnets.features.fisher_vectors import CaptionReader, fitted_layer
from tbnets.features.tfidf import TfidfFeatures
from tbnets.text.word_vectors import WordVectors

WORDS = tuple(
    f"{a}{b}" for a in "dog cat red blue run sit".split() for b in "abcdef"
)
KINDS = {
    "tfidf": lambda: TfidfFeatures(20),
    "mean_vector": MeanFeatures,
    "fisher": lambda: FisherFeatures(3),
    "fisher_pca": lambda: FisherFeatures(3, pca_dim=7),
}


def sentences(number, seed=0):
    generator = np.random.default_rng(seed)
    return [
        " ".join(generator.choice(WORDS, generator.integers(1, 9)))
        for _ in range(number)
    ]


@pytest.fixture(scope="module")
def encoders():
    rows = np.random.default_rng(0).laplace(size=(len(WORDS), 5))
    vectors = WordVectors(WORDS, rows.astype("float32"))
    return {
        kind: make().fit(sentences(60), vectors) for kind, make in KINDS.items()
    }


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("mode", ["eager", "graph"])
def test_raw_captions_give_what_the_encoder_gives(encoders, kind, mode):
    encoder = encoders[kind]
    reader = CaptionReader(encoder)
    captions = [*sentences(30, 1), "", "zebra", f"zebra {WORDS[0]}"]
    call = tf.function(reader) if mode == "graph" else reader
    expected = encoder.transform(captions)
    found = call(tf.constant(captions)).numpy()
    # A signed square root makes much of what is left where sums cancel.
    tolerance = 1e-4 if "fisher" in kind else 2e-6
    np.testing.assert_allclose(found, expected, atol=tolerance)
    lengths = np.linalg.norm(found, axis=1) * np.linalg.norm(expected, axis=1)
    cosines = (found * expected).sum(axis=1)[lengths > 0]
    cosines /= lengths[lengths > 0]
    assert cosines.min() > 0.999999
    # Neither has a known word.
    np.testing.assert_array_equal(found[-3:-1], 0)
    np.testing.assert_array_equal(expected[-3:-1], 0)
    assert reader(tf.constant([], tf.string)).shape == (0, encoder.dim)


@pytest.mark.parametrize("kind", KINDS)
def test_padding_takes_part_in_nothing(encoders, kind):
    layer = fitted_layer(encoders[kind])
    ids = np.array([[2, 3, 1], [5, 0, 0]], np.int32)
    padded = np.pad(ids, [[0, 0], [0, 5]])
    np.testing.assert_allclose(layer(ids), layer(padded), atol=1e-6)
    assert layer(ids).shape == (2, layer.output_dim)
    assert not layer.trainable_variables
