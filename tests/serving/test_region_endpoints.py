"""An exported model of phrase localization that begins with the photo."""

import types

import numpy as np
import pytest
import tensorflow as tf

from tbnets.features.averaged_regions import AveragedFeatures
from tbnets.features.photo_features import build_named_cnn
from tbnets.images import decode_photo
from tbnets.layers.branch import Branch
from tbnets.layers.text_encoders import MeanOfWords
from tbnets.models.embedding_network import EmbeddingNetwork
from tbnets.serving.export import write_saved_model
from tbnets.serving.region_endpoints import region_endpoints
from tbnets.tasks.phrase_inputs import build_region_reader
from tbnets.text.vocabulary import Tokenizer
from tbnets.text.vocabulary import Vocabulary
from tests.photo_files import encode

BOXES = np.array([[0, 0, 40, 30], [5, 6, 20, 12], [1, 1, 3, 29]], "float32")


@pytest.fixture(scope="module")
def extractor():
    cnn = build_named_cnn("SqueezeNet", "random", 64)
    return AveragedFeatures(cnn, ["last"])


def settings(**changes):
    values = {"cnn_weights": "random", "regions": "r", "started_in": ""}
    return types.SimpleNamespace(**{**values, "data_root": "", **changes})


@pytest.fixture(scope="module")
def network(extractor):
    network = EmbeddingNetwork(
        Branch((4,)), Branch((4,)), text_encoder=MeanOfWords(5)
    )
    network.build({"images": (None, extractor.dim), "captions": (None, None)})
    return network


@pytest.fixture(scope="module")
def tokenizer():
    return Tokenizer(Vocabulary.build(["a red ball"]))


@pytest.fixture(scope="module")
def endpoints(extractor, network, tokenizer):
    fitted = {"image_features_made_by": extractor.description()}
    return region_endpoints(
        network,
        tokenizer,
        region_dim=extractor.dim,
        read_regions=build_region_reader(settings(), fitted),
    )


def offline(extractor, network, tokenizer, photo, phrases):
    """Returns features of the boxes, and similarities by them."""
    features = extractor(decode_photo(photo).numpy(), BOXES)
    texts = network.embed_text(tokenizer(phrases))
    regions = network.embed_images(features)
    return features, network.similarities(texts, regions).numpy()


def test_photo_and_boxes_score_as_their_features_do(
    extractor, network, tokenizer, endpoints, tmp_path
):
    path = write_saved_model(endpoints, tmp_path / "1")
    served = tf.saved_model.load(str(path))
    photo, phrases = encode(), tf.constant(["a red ball", "Red!"])
    found = served.localize(phrases, tf.constant(photo), tf.constant(BOXES))
    features, expected = offline(extractor, network, tokenizer, photo, phrases)
    assert found["similarities"].shape == (2, 3)
    np.testing.assert_allclose(found["similarities"], expected, 1e-3, 1e-4)
    score = served.score(phrases, tf.constant(features))["similarities"]
    np.testing.assert_allclose(score, expected, 1e-4, 1e-5)
    none = served.localize(phrases, tf.constant(photo), tf.zeros([0, 4]))[
        "similarities"
    ]
    assert none.shape == (2, 0)


def test_half_precision_ranks_as_the_features_do(
    extractor, network, tokenizer, endpoints, tmp_path
):
    path = write_saved_model(endpoints, tmp_path / "1", half_precision=True)
    served = tf.saved_model.load(str(path))
    photo, phrases = encode(), tf.constant(["a red ball", "Red!"])
    found = served.localize(phrases, tf.constant(photo), tf.constant(BOXES))
    found = found["similarities"].numpy()
    _, expected = offline(extractor, network, tokenizer, photo, phrases)
    for one, other in zip(found, expected):
        cosine = one @ other / np.linalg.norm(one) / np.linalg.norm(other)
        assert cosine > 0.999
    np.testing.assert_array_equal(np.argsort(found), np.argsort(expected))


def test_other_features_and_weights_are_refused(extractor):
    made_by = extractor.description()
    with pytest.raises(ValueError, match="`weights` must be those"):
        build_region_reader(
            settings(),
            {"image_features_made_by": {**made_by, "weights_sha256": "0"}},
        )
    for other in ({}, {**made_by, "regions": "warp"}):
        with pytest.raises(ValueError, match="`--cnn_weights` must come with"):
            build_region_reader(settings(), {"image_features_made_by": other})
    assert build_region_reader(settings(cnn_weights=""), {}) is None
