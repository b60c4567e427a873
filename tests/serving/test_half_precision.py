"""Tests of float16 weights: half the space, the same answers."""

import numpy as np
import pytest
import tensorflow as tf

from tbnets.errors import InputError
from tbnets.features.image_encoders import SmallConvNet
from tbnets.layers.branch import Branch
from tbnets.layers.text_encoders import RecurrentEncoder
from tbnets.models.embedding_network import EmbeddingNetwork
from tbnets.serving import export
from tbnets.serving.export import export_saved_model
from tbnets.serving.served import load_saved_model
from tbnets.text.vocabulary import Tokenizer
from tests.serving.test_export import CAPTIONS, VOCABULARY

SIZE = 16


def test_half_precision_model_has_similar_embeddings(tmp_path):
    """The network has all that reads weights: loops, too."""
    network = EmbeddingNetwork(
        Branch((32, 8), batch_normalization="last", dropout=0.0),
        Branch((8,), batch_normalization="none"),
        image_encoder=SmallConvNet((8, 16)),
        text_encoder=RecurrentEncoder(VOCABULARY.size, "gru", 16, 32),
    )
    network.build({"images": (None, SIZE, SIZE, 3), "captions": (None, None)})
    path = tmp_path / "1"
    export_saved_model(network, VOCABULARY, path, half_precision=True)
    halved = load_saved_model(path)
    shape = 3, SIZE, SIZE, 3
    images = np.random.default_rng(0).uniform(0, 255, shape).astype("float32")
    wanted = network.embed_images(images).numpy()
    texts = network.embed_text(Tokenizer(VOCABULARY)(CAPTIONS)).numpy()
    for found, full in (
        (halved.embed_images(images), wanted),
        (halved.embed_text(CAPTIONS), texts),
    ):
        assert (found * full).sum(axis=1).min() > 0.9999
        assert np.abs(found - full).max() > 0  # It is another model.
    # Matrices are float16, vectors float32.
    used = halved.root.used_variables
    kept = {(v.shape.rank, v.dtype.name) for v in used}
    assert kept == {(1, "float32")} | {(n, "float16") for n in (2, 4)}
    data = path / "variables" / "variables.data-00000-of-00001"
    counts = [int(np.prod(v.shape)) for v in network.variables]
    assert data.stat().st_size < 3 * sum(counts)  # 4 bytes before.


def test_weight_beyond_float16_raises_an_error():
    weights = [tf.Variable([[1.0, 70000.0]], name="much"), tf.Variable([7e4])]
    with pytest.raises(InputError, match="much"):
        export.copy_halved(weights)
    assert export.copy_halved(weights[1:]) == {}


def test_half_precision_follows_calls_branches_and_gathers(tmp_path):
    table = tf.Variable(tf.random.stateless_normal([5, 3], (0, 1)))
    other = tf.Variable([[0.5, 0.25, 2.0]])  # float16 holds these exactly.
    bias = tf.Variable([1.0, 1 / 3, 2.0])

    @tf.function
    def rows(ids):
        return tf.gather(table, ids)  # Reads some rows alone.

    @tf.function(input_signature=[tf.TensorSpec([None], tf.int32)])
    def embed(ids):
        found = rows(ids) + bias
        if tf.size(ids) > 1:
            found += other
        for _ in tf.range(2):
            found += rows(ids) * other
        return {"found": found, "ids": ids}

    function = embed.get_concrete_function()
    halves = export.copy_halved(function.variables)
    assert len(halves) == 2
    module = tf.Module()
    module.call = export.with_halves(function, halves)
    module.used = [bias, *halves.values()]  # And none of the others.
    tf.saved_model.save(module, str(tmp_path))
    halved = tf.saved_model.load(str(tmp_path)).call
    exact = halves[id(table)].numpy().astype(np.float32)
    for ids in ([0, 4, 2], [3]):
        found = halved(tf.constant(ids))
        other_part = np.array([[0.5, 0.25, 2.0]], np.float32)
        wanted = exact[ids] + [1.0, 1 / 3, 2.0] + 2 * exact[ids] * other_part
        wanted += other_part * (len(ids) > 1)
        np.testing.assert_allclose(found["found"], wanted, rtol=1e-6)
        assert found["ids"].numpy().tolist() == ids
