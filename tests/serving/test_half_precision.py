"""Tests of float16 weights: half the space, the same answers."""

import numpy as np
import pytest
import tensorflow as tf

from tbnets.errors import InputError
from tbnets.features.image_encoders import SmallConvNet
from tbnets.layers.branch import Branch
from tbnets.layers.text_encoders import RecurrentEncoder
from tbnets.models.embedding_network import EmbeddingNetwork
from tbnets.serving import ops
from tbnets.serving.export import export_saved_model
from tbnets.serving.served import load_saved_model
from tests.serving.test_export import CAPTIONS, VOCABULARY, run_client

SIZE = 16


@pytest.fixture(scope="module")
def network():
    """Returns a network with all that reads weights: loops, too."""
    network = EmbeddingNetwork(
        Branch((32, 8), batch_normalization="last", dropout=0.0),
        Branch((8,), batch_normalization="none"),
        image_encoder=SmallConvNet((8, 16)),
        text_encoder=RecurrentEncoder(VOCABULARY.size, "gru", 16, 32),
    )
    network.build({"images": (None, SIZE, SIZE, 3), "captions": (None, None)})
    return network


@pytest.fixture(scope="module")
def path(network, tmp_path_factory):
    return export_saved_model(
        network,
        VOCABULARY,
        tmp_path_factory.mktemp("half") / "1",
        image_shape=(SIZE, SIZE, 3),
        half_precision=True,
    )


def cosines(some, others):
    return (some * others).sum(axis=1)


def test_halves_embed_alike_without_tbnets(network, path, tmp_path):
    images = np.random.default_rng(0).uniform(0, 255, (3, SIZE, SIZE, 3))
    images = images.astype(np.float32)
    served = run_client(
        tmp_path,
        path,
        image_features=images,
        captions=np.array([caption.encode() for caption in CAPTIONS]),
    )
    embedded = network.embed_images(images).numpy()
    assert cosines(served["image"], embedded).min() > 0.9999
    full = load_saved_model(
        export_saved_model(
            network,
            VOCABULARY,
            tmp_path / "1",
            image_shape=(SIZE, SIZE, 3),
        )
    )
    texts = full.embed_text(CAPTIONS)
    for name in ("text", "default", "attribute"):
        assert cosines(served[name], texts).min() > 0.9999
    np.testing.assert_allclose(served["score"], embedded @ texts.T, atol=0.01)
    assert np.abs(served["text"] - texts).max() > 0  # It is another model.


def test_matrices_are_float16_and_vectors_float32(network, path):
    module = tf.saved_model.load(str(path))
    kept = [(v.shape.rank, v.dtype.name) for v in module.used_variables]
    assert set(kept) == {(1, "float32")} | {(n, "float16") for n in (2, 4)}
    data = path / "variables" / "variables.data-00000-of-00001"
    counts = [int(np.prod(v.shape)) for v in network.variables]
    assert data.stat().st_size < 3 * sum(counts)  # 4 bytes before.


def test_a_weight_beyond_float16_is_named():
    weights = [tf.Variable([[1.0, 70000.0]], name="much"), tf.Variable([7e4])]
    with pytest.raises(InputError, match="much"):
        ops.copy_halved(weights)
    assert ops.copy_halved(weights[1:]) == {}


def test_calls_branches_and_gathers_are_followed(tmp_path):
    table = tf.Variable(tf.random.normal([5, 3]))
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
    halves = ops.copy_halved(function.variables)
    assert len(halves) == 2
    module = tf.Module()
    module.call = ops.with_halves(function, halves)
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


def test_a_weight_that_is_written_is_refused():
    weight = tf.Variable([[1.0]])

    @tf.function(input_signature=[])
    def count():
        return {"now": weight.assign_add([[1.0]])}

    function = count.get_concrete_function()
    halves = ops.copy_halved([weight])
    with pytest.raises(InputError, match="AssignAdd"):
        ops.with_halves(function, halves)
