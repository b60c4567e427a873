"""The endpoints of regions and cells of a photo."""

import sys

import numpy as np
import pytest
import tensorflow as tf

from tbnets.data.images import decode_photo
from tbnets.features.photo_features import build_named_cnn
from tbnets.features.regions import AveragedFeatures
from tbnets.layers.branch import Branch
from tbnets.layers.text_encoders import MeanOfWords
from tbnets.layers.tree_lstm import TreeEncoder
from tbnets.models.embedding_network import EmbeddingNetwork
from tbnets.serving.endpoints import embed_map, region_endpoints
from tbnets.serving.inputs import TreeReader, guarded
from tbnets.tasks.photo_readers import photo_reader
from tbnets.text.packed_trees import TreeRows, tree_array
from tbnets.text.trees import read_tree
from tbnets.text.vocabulary import Tokenizer, Vocabulary
from tests.data.test_images import smooth
from tests.features import tiny_cnn
from tests.photo_files import encode

BOXES = np.array([[0, 0, 40, 30], [5, 6, 20, 12], [1, 1, 3, 29]], "float32")
VOCABULARY = Vocabulary.build(["a red ball"])
refused_by_graph = tf.errors.InvalidArgumentError


def network_of(text_encoder, region_dim, captions):
    """Returns a built network of regions and phrases."""
    network = EmbeddingNetwork(Branch((4,)), Branch((4,)), None, text_encoder)
    network.build({"images": (None, region_dim), "captions": captions})
    return network


@pytest.fixture(scope="module")
def extractor():
    with tiny_cnn.known():
        cnn = build_named_cnn(tiny_cnn.NAME, "random", 64, top=False)
        yield AveragedFeatures(cnn, ["last"])


@pytest.fixture(scope="module")
def network(extractor):
    words = MeanOfWords(VOCABULARY.size, 5)
    return network_of(words, extractor.dim, (None, None))


@pytest.fixture(scope="module")
def localize(extractor, network):
    """Returns the traced endpoints, by name, for photos of 1200 pixels."""
    endpoints = region_endpoints(
        network,
        Tokenizer(VOCABULARY),
        region_dim=extractor.dim,
        read_regions=photo_reader(extractor.description(), "random"),
    )
    endpoints.photos.max_pixels = 1200
    functions = endpoints.functions.items()
    return {name: guarded(f) for name, f in functions if "localize" in name}


def test_photo_and_boxes_score_like_their_features(
    extractor, network, localize
):
    photo, phrases = encode(), tf.constant(["a red ball", "Red!"])
    features = extractor(decode_photo(photo).numpy(), BOXES)
    texts = network.embed_text(Tokenizer(VOCABULARY)(phrases))
    regions = network.embed_images(features)
    expected = network.similarities(texts, regions).numpy()
    inputs = phrases, tf.constant(photo)
    found = localize["localize"](*inputs, tf.constant(BOXES))
    np.testing.assert_allclose(found["similarities"], expected, atol=1e-5)
    none = localize["localize"](*inputs, tf.zeros([0, 4]))
    assert none["similarities"].shape == (2, 0)


def test_broken_photo_and_invalid_boxes_are_reported(localize):
    def call(photo, boxes=BOXES, name="localize"):
        inputs = ["a red ball"], photo, boxes
        return localize[name](*map(tf.constant, inputs))

    assert call(encode())["status"].numpy() == b""
    for photo, reason in (
        (b"", b"is empty"),
        (encode(size=(41, 30)), b"has more than 1200 pixels"),
    ):
        answer = call(photo)
        assert answer["status"].numpy() == reason
        np.testing.assert_array_equal(answer["similarities"], np.zeros((1, 3)))
    with pytest.raises(refused_by_graph, match="image_bytes"):
        call(b"GIF89a", name="localize_strict")
    for row, box in ((1, [5, 6, 4, 12]), (0, [0, np.nan, 1, 1])):
        bad = BOXES.copy()
        bad[row] = box
        with pytest.raises(refused_by_graph, match=rf"`boxes`.*row\] \[{row}"):
            call(encode(), bad)
    strict = call(encode(), name="localize_strict")["similarities"]
    np.testing.assert_array_equal(strict, call(encode())["similarities"])


def test_regions_of_a_large_photo_are_computed_from_a_smaller_one():
    with tiny_cnn.known():
        cnn = build_named_cnn(tiny_cnn.NAME, "random", 32, top=False)
    extractor = AveragedFeatures(cnn, ["last"])
    photo = smooth(600, 520)
    pixels, sides = extractor.decode(photo)
    assert pixels.shape == (260, 300, 3)
    assert sides.numpy().tolist() == [600, 520]
    boxes = 10 * BOXES
    found = extractor.of_decoded(pixels, sides, tf.constant(boxes)).numpy()
    whole = extractor(decode_photo(photo).numpy(), boxes)
    assert np.abs(found - whole).max() < 0.02 * np.abs(whole).max()


def test_tree_reader_cuts_words_beyond_the_most(monkeypatch):
    tree = read_tree("(S (NP (DT a) (NN ball)) (VBZ runs))")
    words = [VOCABULARY.words.index("a"), VOCABULARY.words.index("ball"), 1]
    found = TreeReader(VOCABULARY).read([tree, read_tree("(NN cat)")])
    assert found.shape == (2, 8, 6)
    np.testing.assert_array_equal(found[0, :5], tree_array(tree, words))
    assert found[1, 0].tolist() == [1, 0, 1, 0, 0, 1]
    found = TreeReader(VOCABULARY, max_tokens=2).read([tree])
    assert (found[0, :, 2] == 1).sum() == 2
    for known in [x for x in sys.modules if x.split(".")[0] == "nltk"]:
        monkeypatch.delitem(sys.modules, known)
    monkeypatch.setitem(sys.modules, "nltk", None)
    with pytest.raises(ModuleNotFoundError, match=r"nltk.*tbnets\[parse\]"):
        TreeReader(VOCABULARY).read([tree, "a dog"])


def test_phrases_can_be_trees(eagerly):
    encoder = TreeEncoder(VOCABULARY.size, 3, 4)
    network = network_of(encoder, 6, (None, *TreeRows.shape))
    reader = TreeReader(VOCABULARY, 20)
    endpoints = region_endpoints(network, reader, region_dim=6)
    embed_phrases = endpoints.functions["embed_phrases"]
    rows = reader.read(
        [*map(read_tree, ("(NP (DT a) (JJ red) (NN ball))", "(NP (NN ball))"))]
    )
    found = embed_phrases(tf.constant(rows))["embeddings"]
    np.testing.assert_allclose(found, network.embed_text(rows), atol=1e-6)
    broken = rows.copy()
    broken[1, 0, 2] = 1 << 30  # Memory for so many levels would be asked for.
    with pytest.raises(refused_by_graph, match=r"row\] \[1\]"):
        embed_phrases(tf.constant(broken))
    with pytest.raises(refused_by_graph, match="at most 80 nodes"):
        embed_phrases(tf.zeros([1, 81, 6], tf.int32))


RNG = np.random.default_rng(0)
MAPS = RNG.uniform(0, 2, (2, 3, 4, 5)).astype(np.float32)
FIRST = RNG.normal(size=(5, 16)).astype(np.float32)
LAST = RNG.normal(size=(16, 6)).astype(np.float32)


@pytest.mark.parametrize("hidden", [tf.identity, tf.tanh])
def test_cells_are_the_linear_approximation(hidden):
    def embed(rows):
        units = hidden(tf.sqrt(rows) @ FIRST)
        return tf.math.l2_normalize(units @ LAST, axis=1)

    found = embed_map(embed, tf.constant(MAPS)).numpy()
    means = tf.constant(MAPS.mean(axis=(1, 2)))
    with tf.GradientTape() as tape:
        tape.watch(means)
        embeddings = embed(means)
    slopes = tape.batch_jacobian(embeddings, means).numpy()
    for n, y, x in np.ndindex(2, 3, 4):
        moved = slopes[n] @ (MAPS[n, y, x] - means[n].numpy())
        expected = embeddings[n].numpy() + moved
        # The finite difference has a relative error of about its step.
        np.testing.assert_allclose(found[n, y, x], expected, atol=0.03)
    mean = found.mean(axis=(1, 2))
    np.testing.assert_allclose(mean, embeddings, atol=0.02)
