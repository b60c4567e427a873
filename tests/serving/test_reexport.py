"""Tests of a SavedModel written once more: what stays answers the same."""

import json

import numpy as np
import pytest
import tensorflow as tf

from tbnets.errors import ExistingFileError
from tbnets.serving import export
from tbnets.serving.export import reexport
from tbnets.serving.saved_files import METADATA_FILE
from tbnets.serving.served import load_saved_model
from tests import tiny_localizer
from tests.refusals import refused

SEARCH = [
    tf.TensorSpec([None], tf.string, "phrases"),
    tf.TensorSpec([], tf.int32, "k"),
]


def search_over(rows, ids):
    """Returns what adds `search` over rows of embeddings."""

    def add(served):
        rows_kept, ids_kept = tf.Variable(rows), tf.Variable(ids)
        embed = served.signatures["embed_phrases"]

        @tf.function(input_signature=SEARCH)
        def search(phrases, k):
            embeddings = embed(phrases=phrases)["embeddings"]
            found = tf.matmul(embeddings, rows_kept, transpose_b=True)
            best = tf.math.top_k(found, k)
            return {
                "ids": tf.gather(ids_kept, best.indices),
                "similarities": best.values,
            }

        return {"search": search}

    return add


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    """A model of phrase localization, in TensorFlow Serving's layout."""
    folder = tmp_path_factory.mktemp("localizer")
    tiny_localizer.write_model(folder / "1", read_regions=None)
    return folder


@pytest.fixture(scope="module")
def searching(source, tmp_path_factory):
    """The same model with a search over colours."""
    folder = tmp_path_factory.mktemp("searching")
    rows = np.eye(3, dtype=np.float32)
    add = search_over(rows, ["red", "green", "blue"])
    reexport(source, folder / "1", add=add)
    return folder


def ask(signature):
    inputs = {
        "phrases": ["red", "a blue one"],
        "phrase_embeddings": [[1.0, 2, 3]],
        "region_embeddings": [[3.0, 2, 1]],
        "region_features": [[1.0, 0, 3], [4, 5, 6]],
    }
    specs = export.inputs_of(signature)
    given = {n: tf.constant(inputs[n], s.dtype) for n, s in specs.items()}
    answers = signature(**given)
    return {key: value.numpy() for key, value in answers.items()}


@pytest.fixture(scope="module")
def loaded(searching):
    return tf.saved_model.load(str(searching / "1"))


def test_what_stays_answers_the_same_to_the_bit(source, loaded):
    before, after = load_saved_model(source).signatures, loaded.signatures
    assert set(after) == {*before, "search"}
    for name, signature in before.items():
        assert export.describe_signature(
            after[name]
        ) == export.describe_signature(signature)
        found = ask(after[name])
        for key, value in ask(signature).items():
            np.testing.assert_array_equal(found[key], value, strict=True)
    assert loaded.embed_phrases(tf.constant(["red"]))["embeddings"][0, 0] == 1


def test_what_is_added_answers_and_has_doors(loaded):
    search = loaded.signatures["search"]
    answers = search(phrases=tf.constant(["green"]), k=tf.constant(1))
    assert answers["ids"].numpy().tolist() == [[b"green"]]
    with pytest.raises(tf.errors.InvalidArgumentError):
        search(phrases=tf.constant([["green"]]), k=tf.constant(1))


def test_what_it_says_of_itself_is_kept_and_extended(source, searching):
    before = json.loads((source / "1" / METADATA_FILE).read_text())
    after = json.loads((searching / "1" / METADATA_FILE).read_text())
    assert after["signatures"].pop("search")["inputs"] == {
        "phrases": {"dtype": "string", "shape": [None]},
        "k": {"dtype": "int32", "shape": []},
    }
    digits = before.pop("sha256")
    assert (
        after.pop("sha256")["assets.extra/vocabulary.txt"]
        == (digits["assets.extra/vocabulary.txt"])
    )
    origin = after.pop("exported_from")
    assert origin["sha256"] == digits["saved_model.pb"]
    assert origin["tensorflow_version"] == tf.__version__
    assert after == before


def test_what_is_left_out_or_replaced_leaves_its_weights(searching, tmp_path):
    other = search_over(np.ones([1, 3], np.float32), ["white"])
    keep = ["compare", "search"]
    path = reexport(searching, tmp_path / "1", keep=keep, add=other)
    model = load_saved_model(path)
    assert set(model.signatures) == {*keep, "serving_default"}
    assert model.inputs("serving_default") == model.inputs("compare")
    assert not hasattr(model.root, "score")
    shapes = sorted(tuple(one.shape) for one in model.root.used_variables)
    assert shapes == [(1,), (1, 3), (5, 3)]  # Ids and rows; words.


def test_an_unknown_signature_and_a_folder_that_is_there(source, tmp_path):
    with refused("signatures"):
        reexport(source, tmp_path / "1", keep=["score", "nod"])
    with pytest.raises(ExistingFileError):
        reexport(source, source / "1")
