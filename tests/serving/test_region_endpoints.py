"""An exported model of phrase localization that begins with the photo."""

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
from tbnets.serving.endpoints import region_endpoints
from tbnets.serving.export import write_saved_model
from tbnets.serving.text_readers import TreeReader
from tbnets.tasks.photo_readers import photo_reader
from tbnets.text.packed_trees import TreeRows
from tbnets.text.trees import read_tree
from tbnets.text.vocabulary import Tokenizer, Vocabulary
from tests.data.test_images import smooth
from tests.features import tiny_cnn
from tests.photo_files import encode
from tests.refusals import refused

BOXES = np.array([[0, 0, 40, 30], [5, 6, 20, 12], [1, 1, 3, 29]], "float32")


@pytest.fixture(scope="module")
def extractor():
    with tiny_cnn.known():
        cnn = build_named_cnn(tiny_cnn.NAME, "random", 64, top=False)
        yield AveragedFeatures(cnn, ["last"])


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
def exported(extractor, network, tokenizer, tmp_path_factory):
    """Returns a SavedModel of half precision, for 1200 pixels."""
    endpoints = region_endpoints(
        network,
        tokenizer,
        region_dim=extractor.dim,
        read_regions=photo_reader(extractor.description(), "random"),
    )
    folder = tmp_path_factory.mktemp("exported")
    half = write_saved_model(
        endpoints, folder / "1", half_precision=True, max_pixels=1200
    )
    return tf.saved_model.load(str(half))


def test_photo_and_boxes_score_as_their_features_do(
    extractor, network, tokenizer, exported
):
    photo, phrases = encode(), tf.constant(["a red ball", "Red!"])
    features = extractor(decode_photo(photo).numpy(), BOXES)
    texts = network.embed_text(tokenizer(phrases))
    regions = network.embed_images(features)
    expected = network.similarities(texts, regions).numpy()
    found = exported.localize(phrases, tf.constant(photo), tf.constant(BOXES))
    score = exported.score(phrases, tf.constant(features))
    for answers in (found["similarities"], score["similarities"]):
        np.testing.assert_allclose(answers, expected, 1e-2, 2e-3)
    np.testing.assert_array_equal(
        np.argsort(found["similarities"]), np.argsort(expected)
    )
    none = exported.localize(phrases, tf.constant(photo), tf.zeros([0, 4]))
    assert none["similarities"].shape == (2, 0)


def test_a_photo_that_is_none_and_boxes_that_are_none(extractor, exported):
    call = exported.signatures
    phrases, boxes = tf.constant(["a red ball"]), tf.constant(BOXES)

    def localize(photo, boxes=boxes, name="localize"):
        return call[name](
            phrases=phrases, image_bytes=tf.constant(photo), boxes=boxes
        )

    good = localize(encode())
    assert good["status"].numpy() == b""
    for photo, reason in (
        (b"", b"is empty"),
        (b"GIF89a", b"is of another kind"),
        (encode()[:-700], b"does not decode"),
        (encode(size=(41, 30)), b"has more than 1200 pixels"),
    ):
        answer = localize(photo)
        assert answer["status"].numpy() == reason
        np.testing.assert_array_equal(answer["similarities"], np.zeros((1, 3)))
        with pytest.raises(tf.errors.InvalidArgumentError, match="image_bytes"):
            localize(photo, name="localize_strict")
    for row, box in (
        (1, [5, 6, 4, 12]),
        (0, [0, np.nan, 1, 1]),
        (2, [np.inf] * 4),
    ):
        bad = BOXES.copy()
        bad[row] = box
        for name in ("localize", "localize_strict"):
            with pytest.raises(
                tf.errors.InvalidArgumentError, match=rf"`boxes`.*row\] \[{row}"
            ):
                localize(encode(), tf.constant(bad), name)
    again = localize(encode(), name="localize_strict")["similarities"]
    np.testing.assert_array_equal(again, good["similarities"])
    features = np.ones((2, extractor.dim), "float32")
    features[1, 0] = np.nan
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"row\] \[1\]"):
        call["embed_regions"](region_features=tf.constant(features))


def test_regions_of_a_large_photo_are_nearly_those_of_all_its_pixels():
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


def test_phrases_may_be_trees():
    vocabulary = Vocabulary.build(["a red ball"])
    network = EmbeddingNetwork(
        Branch((4,)),
        Branch((4,)),
        text_encoder=TreeEncoder(vocabulary.size, 3, 4),
    )
    network.build({"images": (None, 6), "captions": (None, *TreeRows.shape)})
    reader = TreeReader(vocabulary, 20)
    endpoints = region_endpoints(network, reader, region_dim=6)
    embed_phrases = endpoints.functions["embed_phrases"]
    trees = [
        read_tree("(NP (DT a) (JJ red) (NN ball))"),
        read_tree("(NP (NN ball))"),
    ]
    rows = reader.read(trees)
    found = embed_phrases(tf.constant(rows))["embeddings"]
    np.testing.assert_allclose(found, network.embed_text(rows), atol=1e-6)
    broken = rows.copy()
    broken[1, 0, 2] = 1 << 30  # Memory for so many levels would be asked for.
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"row\] \[1\]"):
        embed_phrases(tf.constant(broken))
    with pytest.raises(
        tf.errors.InvalidArgumentError, match="at most 80 nodes"
    ):
        embed_phrases(tf.zeros([1, 81, 6], tf.int32))


def test_other_features_and_weights_are_refused(extractor):
    made_by = extractor.description()
    with refused("weights"):
        photo_reader({**made_by, "weights_sha256": "0"}, "random")
    for other in ({}, {**made_by, "regions": "warp"}):
        with refused("--cnn_weights"):
            photo_reader(other, "random")
