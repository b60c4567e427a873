"""Export of networks whose own Keras layers read their texts."""

import keras
import numpy as np

from tbnets.layers.branch import Branch
from tbnets.models.embedding_network import EmbeddingNetwork
from tbnets.serving.export import export_saved_model
from tbnets.serving.served import load_saved_model
from tests.models.test_any_layer import CAPTIONS, TOKEN_IDS, of_ids, of_strings

FEATURES = np.random.default_rng(0).normal(size=(4, 5)).astype("float32")
SHAPES = {"images": (None, 5)}


def network_of(text_encoder, captions):
    """Returns a network that was built for the shape of captions."""
    keras.utils.set_random_seed(0)
    image_branch = keras.Sequential([keras.layers.Dense(4)])
    network = EmbeddingNetwork(image_branch, Branch((4,)), None, text_encoder)
    network.build(SHAPES | {"captions": captions})
    return network


def test_network_that_takes_strings_is_exported(tmp_path):
    network = network_of(of_strings(), (None,))
    path = tmp_path / "1"
    export_saved_model(network, None, path, half_precision=True)
    served = load_saved_model(path)
    texts = network.embed_text(CAPTIONS)
    found = served.embed_text([*CAPTIONS])
    np.testing.assert_allclose(found, texts, atol=1e-3)
    assert served.takes_captions and served.vocabulary is None


def test_network_that_takes_ids_is_exported(tmp_path):
    network = network_of(of_ids(), (None, None))
    served = load_saved_model(export_saved_model(network, None, tmp_path / "1"))
    answer = served.call("embed_text", token_ids=TOKEN_IDS)["embeddings"]
    texts = network.embed_text(TOKEN_IDS)
    np.testing.assert_allclose(answer, texts, atol=1e-6)
