"""Fitted encoders of captions: their layers, and their files."""

import copy

import numpy as np
import pytest
import tensorflow as tf

from tbnets.errors import InputError
from tbnets.features import caption_features
from tbnets.features.caption_encoder import CaptionReader, MeanFeatures
from tbnets.features.fisher import FisherFeatures
from tbnets.features.tfidf import TfidfFeatures
from tbnets.text.word_vectors import WordVectors
from tests import refusals
from tests.features.test_fisher import sentences

WORDS = tuple(
    f"{a}{b}" for a in "dog cat red blue run sit".split() for b in "abcdef"
)
KINDS = {
    "tfidf": lambda: TfidfFeatures(20),
    "mean_vector": MeanFeatures,
    "fisher": lambda: FisherFeatures(3),
    "fisher_pca": lambda: FisherFeatures(3, pca_dim=7),
}


@pytest.fixture(scope="module")
def encoders():
    rows = np.random.default_rng(0).laplace(size=(len(WORDS), 5))
    vectors = WordVectors(WORDS, rows.astype("float32"))
    return {
        kind: make().fit(sentences(60, words=WORDS), vectors)
        for kind, make in KINDS.items()
    }


@pytest.mark.parametrize("kind", KINDS)
def test_reader_of_raw_captions_equals_the_encoder(encoders, kind):
    encoder = encoders[kind]
    reader = CaptionReader(encoder)
    captions = [*sentences(30, 1, WORDS), "", "zebra", f"zebra {WORDS[0]}"]
    expected = encoder.transform(captions)
    found = tf.function(reader)(tf.constant(captions)).numpy()
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
def test_loaded_encoder_equals_the_saved_encoder(encoders, tmp_path, kind):
    encoder, captions = encoders[kind], [*sentences(9, 2, WORDS), "", "zebra"]
    path = tmp_path / "encoder.npz"
    encoder.save(path)
    for place in (tmp_path, path):
        loaded = caption_features.load_encoder(place)
        assert loaded.digest() == encoder.digest()
        assert loaded.describe() == encoder.describe()
        np.testing.assert_array_equal(
            loaded.transform(captions), encoder.transform(captions)
        )
    loaded.save(tmp_path / "again.npz")
    assert (tmp_path / "again.npz").read_bytes() == path.read_bytes()


DAMAGES = {
    "fisher": {
        "scales_": lambda x: x * 0,
        "laplacian_": lambda x: x.astype("f4"),
        "locations_": lambda x: x[:, 1:],
        "weights_": lambda x: x * np.float32("nan"),
        "pca_axes_": lambda x: np.zeros((2, 3), "f4"),
        "vectors_": lambda x: x[:, 0],
    },
    "tfidf": {
        "columns_": lambda x: x + 100,
        "idf_": lambda x: x * np.float32("nan"),
        "words_": lambda x: ("two words", *x[1:]),
        "kind": lambda x: "none",
    },
}


def test_error_names_the_damaged_encoder_file(encoders, tmp_path):
    path = tmp_path / "encoder.npz"
    for kind, damages in DAMAGES.items():
        for name, damage in damages.items():
            encoder = copy.copy(encoders[kind])
            setattr(encoder, name, damage(getattr(encoder, name)))
            encoder.save(path)
            with pytest.raises(InputError, match=path.name):
                caption_features.load_encoder(path)
    encoders["tfidf"].save(path)
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(InputError, match=path.name):
        caption_features.load_encoder(path)
    path.unlink()
    with pytest.raises(FileNotFoundError):
        caption_features.load_encoder(tmp_path)


def test_store_opens_the_encoder_that_computed_it(encoders, tmp_path):
    encoder, path = encoders["tfidf"], tmp_path / "encoder.npz"
    encoder.save(path)
    made_by = {"encoder_sha256": encoder.digest()}
    found = caption_features.load_encoder_of(made_by, tmp_path)
    assert found.digest() == encoder.digest()
    with refusals.at(path):
        caption_features.load_encoder_of({"encoder_sha256": "0"}, tmp_path)
