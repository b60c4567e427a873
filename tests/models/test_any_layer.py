"""Networks of any Keras layers: built, trained, saved and called."""

import gc

import keras
import numpy as np
import pytest
import tensorflow as tf

from tbnets.data.batches import EpochBatches, Examples
from tbnets.features.image_encoders import SmallConvNet
from tbnets.layers.branch import Branch
from tbnets.layers.text_encoders import MeanOfWords
from tbnets.models import two_branch
from tbnets.models.embedding_network import EmbeddingNetwork
from tbnets.models.keras_file import load_model
from tbnets.training.retrieval_metrics import RetrievalMetrics
from tests.refusals import refused

layers = keras.layers
CAPTIONS = np.array(["a red dog", "the old cat", "a blue car", "one red cup"])
WORDS = sorted({word for caption in CAPTIONS for word in caption.split()})
PIXELS = np.random.default_rng(0).integers(0, 256, (4, 32, 32, 3), np.uint8)
TOKEN_IDS = np.array([[1, 2, 3], [4, 0, 0], [5, 6, 0], [3, 3, 3]], np.int32)
IDS = np.arange(4)


def of_strings():
    """Returns a `Sequential` that is not built yet."""
    return keras.Sequential(
        [
            layers.TextVectorization(vocabulary=WORDS),
            layers.Embedding(len(WORDS) + 2, 5, mask_zero=True),
            layers.GlobalAveragePooling1D(),
        ]
    )


def functional():
    """Returns a functional model with preprocessing of its own."""
    pixels = keras.Input((32, 32, 3))
    maps = layers.Conv2D(4, 3, 8)(layers.Rescaling(1 / 255)(pixels))
    maps = layers.BatchNormalization()(layers.Dropout(0.2)(maps))
    outputs = layers.GlobalAveragePooling2D()(maps)
    return keras.Model(pixels, outputs)


def of_ids():
    ids = keras.Input((None,), dtype="int32")
    states = layers.GRU(6)(layers.Embedding(9, 4, mask_zero=True)(ids))
    return keras.Model(ids, states)


@keras.saving.register_keras_serializable(package="tests")
class Subclassed(keras.layers.Layer):
    """Reads ids without `build` and without telling its size."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.table, self.dense = layers.Embedding(9, 3), layers.Dense(4)

    def call(self, inputs):
        return self.dense(tf.reduce_mean(self.table(inputs), axis=1))


# Image encoder, text encoder, captions.
NETWORKS = {
    "strings": (functional, of_strings, CAPTIONS),
    "subclassed": (layers.Flatten, Subclassed, TOKEN_IDS),
}


def data_of(captions):
    inputs = {"images": PIXELS, "captions": captions}
    return {**inputs, "image_ids": IDS, "caption_image_ids": IDS}


@pytest.fixture
def small_branch(monkeypatch):
    monkeypatch.setattr(two_branch, "Branch", lambda: Branch((6, 4)))


@pytest.mark.parametrize("name", NETWORKS)
def test_networks_train_and_are_saved(name, tmp_path, small_branch, eagerly):
    images, texts, captions = NETWORKS[name]
    network = EmbeddingNetwork(image_encoder=images(), text_encoder=texts())
    network.compile("adam")
    data = data_of(captions)
    network.fit(data, batch_size=2, verbose=0)
    rows = network.embed_images(PIXELS), network.embed_text(data["captions"])
    for side in rows:
        assert side.shape == (4, 4) and side.dtype == tf.float32
        np.testing.assert_allclose(np.linalg.norm(side, axis=1), 1, rtol=1e-5)
    assert network.embed_images(PIXELS[:0]).shape == (0, 4)
    network.save(tmp_path / "network.keras")
    loaded = load_model(tmp_path / "network.keras")
    assert loaded.output_dims == network.output_dims
    assert loaded.input_dtypes == network.input_dtypes
    np.testing.assert_array_equal(loaded.embed_images(PIXELS), rows[0])
    texts = loaded.embed_text(data["captions"])
    np.testing.assert_array_equal(texts, rows[1])
    batches = tf.data.Dataset.from_tensor_slices(data).batch(2)
    assert np.isfinite(loaded.evaluate(batches, verbose=0)).all()
    examples = Examples.from_arrays(PIXELS, captions, IDS)
    history = loaded.fit(
        EpochBatches(examples, 2, captions_per_image=1, seed=0),
        callbacks=[RetrievalMetrics(examples)],
        verbose=0,
    )
    assert history.history["val_recall_sum"][0] >= 0
    clone = keras.models.clone_model(network)
    assert clone.text_encoder is not network.text_encoder
    network.summary(print_fn=lambda *_, **__: None)


def test_bytes_and_float_pixels_are_equal():
    network = EmbeddingNetwork(
        Branch((4,)), Branch((4,)), SmallConvNet((2,)), of_ids()
    )
    network.build({"images": (None, 32, 32, 3), "captions": (None, None)})
    floats = network.embed_images(PIXELS.astype("float32"))
    np.testing.assert_array_equal(network.embed_images(PIXELS), floats)


def test_outputs_of_any_branch_are_normalised_and_a_message_is_printed_once(
    capsys,
):
    units = keras.Sequential([layers.Dense(3), layers.UnitNormalization()])
    network = EmbeddingNetwork(
        keras.Sequential([layers.Flatten(), layers.Dense(3)]), units, None, None
    )
    network.compile("sgd", run_eagerly=True)
    data = data_of(np.ones((4, 5), np.float32))
    for _ in range(2):
        network.fit(data, batch_size=4, verbose=0)
    said = capsys.readouterr().err
    assert said.count("normalisation") == 1 and "image_branch" in said
    norms = np.linalg.norm(network.embed_images(PIXELS), axis=1)
    np.testing.assert_allclose(norms, 1, rtol=1e-5)


@pytest.mark.skipif(two_branch.KERAS_2, reason="Keras 2 does not quantize")
@pytest.mark.filterwarnings("ignore:Layer")
def test_a_quantized_network_returns_similar_embeddings(eagerly, monkeypatch):
    network = EmbeddingNetwork(
        Branch((4,)), layers.Dense(4), None, MeanOfWords(9, 5)
    )
    network.build({"images": (None, 5), "captions": (None, None)})
    texts = network.embed_text(TOKEN_IDS)
    # Keras collects garbage for each variable that it replaces.
    monkeypatch.setattr(gc, "collect", lambda: None)
    network.quantize("int8")
    found = network.embed_text(TOKEN_IDS)
    np.testing.assert_allclose(found, texts, atol=0.05)
    assert not np.array_equal(found, texts)


def test_a_text_layer_without_words_is_rejected(small_branch):
    vectorize = layers.TextVectorization()
    texts = keras.Sequential(
        [vectorize, layers.Embedding(15, 5), layers.GlobalMaxPooling1D()]
    )
    network = EmbeddingNetwork(
        image_encoder=layers.Flatten(), text_encoder=texts
    )
    network.compile("adam", run_eagerly=True)
    with refused("text_encoder"):
        network.fit(data_of(CAPTIONS), batch_size=2, verbose=0)
    vectorize.adapt(CAPTIONS)
    network.fit(data_of(CAPTIONS), batch_size=4, verbose=0)


@pytest.mark.parametrize(
    "shape, layer",
    [
        ((None, 32, 32, 3), layers.Conv2D(4, 3)),
        ((None, 7, 5), layers.LSTM(4, return_sequences=True)),
        ((None, None), layers.Embedding(9, 4)),
    ],
)
def test_layers_that_return_several_vectors_per_row_are_rejected(shape, layer):
    network = EmbeddingNetwork(Branch((4,)), Branch((4,)), None, layer)
    with refused("text_encoder"):
        network.build({"images": (None, 5), "captions": shape})
