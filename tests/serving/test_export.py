"""Tests of the SavedModel: same numbers, raw input, no need for tbnets."""

import functools
import json
import os
import pathlib
import shutil
import tempfile

import keras
import numpy as np
import pytest
import tensorflow as tf
from tensorflow.core.protobuf import config_pb2

from tbnets.layers.branch import Branch
from tbnets.layers.text_encoders import MeanOfWords
from tbnets.models.embedding_network import EmbeddingNetwork
from tbnets.serving import export, saved_files
from tbnets.serving.endpoints import Endpoints
from tbnets.serving.export import (
    export_saved_model,
    next_version,
    write_saved_model,
)
from tbnets.serving.inputs import MOST_WORDS, bounded
from tbnets.serving.saved_files import newest_version
from tbnets.serving.served import load_saved_model
from tbnets.text.vocabulary import Tokenizer, Vocabulary
from tests.refusals import refused

VOCABULARY = Vocabulary(("", "[UNK]", "a", "dog", "snow", "\u00e9t\u00e9"))
CAPTIONS = ["A dog in the snow!", "", "zebra", "\u00c9te\u0301 DOG", "?!"]

# What a process without tbnets does with the SavedModel.
CLIENT = """
import sys

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] == "tbnets":
            raise ModuleNotFoundError(name)

sys.meta_path.insert(0, Absent())
import numpy as np
import tensorflow as tf
import tensorflow_text

model = tf.saved_model.load(sys.argv[1])
given = np.load(sys.argv[2]).values()
captions, photos = [tf.constant(array.tolist()) for array in given]
call = model.signatures
np.savez(
    sys.argv[3],
    text=call["serving_default"](captions=captions)["embeddings"],
    image=call["embed_image"](image_bytes=photos)["embeddings"],
    score=call["score"](captions=captions, image_bytes=photos)["similarities"],
    attribute=model.embed_text(captions)["embeddings"],
)
assert "tbnets" not in sys.modules
"""


def make_network(dim=5):
    """Returns a network on `dim` features of an image."""
    keras.utils.set_random_seed(3)
    words = MeanOfWords(VOCABULARY.size, 8)
    network = EmbeddingNetwork(Branch((4,)), Branch((4,)), None, words)
    network.build({"images": (None, dim), "captions": (None, None)})
    return network


@functools.cache
def _of_features():
    """Returns a network and a `TemporaryDirectory`, once a process."""
    network, folder = make_network(), tempfile.TemporaryDirectory()
    export_saved_model(
        network,
        VOCABULARY,
        pathlib.Path(folder.name, "1"),
        metadata={"split": "train"},
    )
    return network, folder


def write_features_model(path):
    """Writes the SavedModel of `features_model`, a copy; returns the path."""
    return shutil.copytree(pathlib.Path(_of_features()[1].name, "1"), path)


@pytest.fixture(scope="module")
def features_model():
    """Network on features and captions, and its SavedModel: read it only."""
    network, folder = _of_features()
    return network, pathlib.Path(folder.name, "1")


@pytest.fixture(scope="module")
def served_features(features_model):
    return load_saved_model(features_model[1])


def close(actual, expected):
    np.testing.assert_allclose(actual, expected, rtol=0, atol=1e-5)


def test_served_model_takes_lists_and_arrays(features_model, served_features):
    network, served = features_model[0], served_features
    assert served.takes_captions and not served.takes_photos
    texts = network.embed_text(Tokenizer(VOCABULARY)(CAPTIONS))
    close(served.embed_text(CAPTIONS), texts)
    images = network.embed_images(np.eye(5, dtype=np.float32))
    close(served.embed_images(np.eye(5)), images)
    close(
        served.similarity(np.eye(5), CAPTIONS),
        tf.matmul(images, texts, transpose_b=True),
    )


def test_batches_may_be_empty_and_captions_of_any_length(served_features):
    served = served_features
    assert served.embed_text([]).shape == (0, 4)
    assert served.embed_images(np.ones([0, 5])).shape == (0, 4)
    assert served.similarity(np.ones([2, 5]), []).shape == (2, 0)
    rows = served.embed_text(["a dog", "a dog in more snow", "", "zebra", "?!"])
    close(rows[:1], served.embed_text(["a dog"]))
    close(rows[2:4], rows[3:])  # Each is one unknown word.


def test_graph_rejects_captions_of_another_rank(
    features_model,
):
    """A server in C++ checks no shapes, and nor does this callable."""
    session, path = tf.compat.v1.Session(graph=tf.Graph()), features_model[1]
    with session.graph.as_default():
        graph = tf.compat.v1.saved_model.load(session, ["serve"], str(path))
    signature = graph.signature_def["embed_text"]
    call = session._make_callable_from_options(
        config_pb2.CallableOptions(
            feed=[signature.inputs["captions"].name],
            fetch=[signature.outputs["embeddings"].name],
        )
    )
    [wanted] = call(np.array([b"a dog"]))
    for captions in (b"a dog", [[b"a", b"dog"]], np.zeros([1, 0, 1], "S")):
        with pytest.raises(tf.errors.InvalidArgumentError):
            call(np.array(captions))
        np.testing.assert_array_equal(call(np.array([b"a dog"]))[0], wanted)


def test_graph_rejects_nan_and_names_the_row(
    served_features,
):
    signature = served_features.signatures["embed_image"]
    row = r"`image_features`.*row\] \[2"
    for number in (np.nan, -np.inf):
        features = np.ones([4, 5], np.float32)
        features[2, 3] = number
        with pytest.raises(tf.errors.InvalidArgumentError, match=row):
            signature(image_features=tf.constant(features))


def test_long_captions_are_truncated(served_features):
    assert served_features.metadata["max_tokens"] == MOST_WORDS == 200
    longest = "a " * 199 + "dog"
    texts = [f"{longest} snow", longest, "a dog"]
    cut, same, other = served_features.embed_text(texts)
    np.testing.assert_allclose(cut, same, rtol=0, atol=1e-6)
    assert np.abs(same - other).max() > 1e-3
    longer = Tokenizer(VOCABULARY, 201)
    assert bounded(longer) is longer
    assert bounded(Tokenizer(VOCABULARY)).max_tokens == 200
    assert bounded(None) is None


def test_metadata_describes_the_model(features_model, served_features):
    _, path = features_model
    content = json.loads((path / saved_files.METADATA_FILE).read_text())
    assert content == served_features.metadata
    assert os.listdir(path.parent) == ["1"]
    assert path.stat().st_mode & 0o777 == 0o755
    assert content["metadata"] == {"split": "train"}
    assert content["vocabulary_size"] == 6
    assert served_features.vocabulary == VOCABULARY


def test_export_keeps_only_the_variables_in_use(
    features_model, served_features
):
    names = [one.name for one in served_features.root.used_variables]
    assert len(names) == len(features_model[0].weights) - 1
    assert not any("draws" in name for name in names)  # Of word dropout.


@pytest.mark.parametrize(
    "error",
    [OSError(28, "full"), tf.errors.ResourceExhaustedError(None, None, "full")],
)
def test_export_on_a_full_disk_leaves_nothing(tmp_path, monkeypatch, error):
    def save(module, folder, signatures, options=None):
        pathlib.Path(folder, "saved_model.pb").write_text("half")
        raise error

    monkeypatch.setattr(tf.saved_model, "save", save)
    with refused("path", kind=OSError):
        export.save(tf.Module(), {}, tmp_path / "1", {})
    assert os.listdir(tmp_path) == []


def test_export_of_unknown_ops_raises_an_error(tmp_path):
    @tf.function(input_signature=[tf.TensorSpec([], tf.string, "name")])
    def read(name):
        # In a branch, so that the op is only in the function library.
        content = tf.cond(
            tf.equal(name, ""), lambda: name, lambda: tf.io.read_file(name)
        )
        return {"content": content}

    with refused("read"):
        write_saved_model(Endpoints({"read": read}, "read"), tmp_path / "1")
    assert os.listdir(tmp_path) == []


def test_next_version(tmp_path):
    assert next_version(tmp_path / "absent") == 1
    for name in ("2", "10", ".11.tmp", "12a", "\u00b2"):
        (tmp_path / name).mkdir()
    assert next_version(tmp_path) == 11


def test_newest_version_is_found_from_parent_folders(tmp_path):
    for name in ("2", "10", "x", "11"):
        (tmp_path / "saved_model" / name).mkdir(parents=True)
        if name != "11":  # It is not complete.
            (tmp_path / "saved_model" / name / "saved_model.pb").touch()
    newest = tmp_path / "saved_model" / "10"
    for path in (tmp_path, tmp_path / "saved_model", newest):
        assert newest_version(path) == newest
    assert newest_version(newest.with_name("2")).name == "2"
