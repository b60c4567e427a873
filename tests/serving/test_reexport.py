"""Tests of a SavedModel written once more: what stays answers the same."""

import json

import numpy as np
import pytest
import tensorflow as tf

from tbnets.serving.export import reexport
from tbnets.serving.saved_files import METADATA_FILE
from tbnets.serving.served import load_saved_model
from tests import tiny_localizer

INPUTS = {
    "phrases": ["red", "a blue one"],
    "phrase_embeddings": [[1.0, 2, 3]],
    "region_embeddings": [[3.0, 2, 1]],
    "region_features": [[1.0, 0, 3], [4, 5, 6]],
    "number": [1.0, 2, 3],
}


def scaled_by(factors):
    """Returns a function that adds a signature with a weight, `scale`."""

    def add(served):
        weight = tf.Variable(factors)

        @tf.function(input_signature=[tf.TensorSpec([3], name="number")])
        def scale(number):
            return {"scaled": number * weight}

        return {"scale": scale}

    return add


def ask(model, name):
    """Returns the answers of a signature, which takes `INPUTS`."""
    inputs = {key: INPUTS[key] for key in model.inputs(name)}
    return model.call(name, **inputs)


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    """A model of phrase localization, in TensorFlow Serving's layout."""
    folder = tmp_path_factory.mktemp("localizer")
    tiny_localizer.write_model(folder / "1", read_regions=None)
    return folder


@pytest.fixture(scope="module")
def scaling(source, tmp_path_factory):
    """The same model with another signature."""
    path = tmp_path_factory.mktemp("scaling") / "1"
    return load_saved_model(reexport(source, path, add=scaled_by([2.0, 3, 4])))


def test_copied_signatures_return_identical_results(source, scaling):
    before = load_saved_model(source)
    assert set(scaling.signatures) == {*before.signatures, "scale"}
    for name in before.signatures:
        for key, value in ask(before, name).items():
            found = ask(scaling, name)[key]
            np.testing.assert_array_equal(found, value, strict=True)
    found = scaling.root.embed_phrases(tf.constant(["red"]))
    assert found["embeddings"][0, 0] == 1


def test_added_signature_checks_its_input(scaling):
    assert ask(scaling, "scale")["scaled"].tolist() == [2, 6, 12]
    with pytest.raises(tf.errors.InvalidArgumentError):
        scaling.signatures["scale"](number=tf.constant([np.nan, 0, 0]))


def test_reexport_keeps_and_extends_metadata(source, scaling):
    before = json.loads((source / "1" / METADATA_FILE).read_text())
    after = json.loads((scaling.path / METADATA_FILE).read_text())
    assert after["signatures"].pop("scale")["inputs"] == {
        "number": {"dtype": "float32", "shape": [3]},
    }
    digits, vocabulary = before.pop("sha256"), "assets.extra/vocabulary.txt"
    assert after.pop("sha256")[vocabulary] == digits[vocabulary]
    origin = after.pop("exported_from")
    assert origin["sha256"] == digits["saved_model.pb"]
    assert origin["tensorflow_version"] == tf.__version__
    assert after == before


def test_weights_of_omitted_signatures_are_not_saved(scaling, tmp_path):
    keep = ["compare", "scale"]
    other = scaled_by([[5.0] * 3])
    path = reexport(scaling.path, tmp_path / "1", keep=keep, add=other)
    model = load_saved_model(path)
    assert set(model.signatures) == {*keep, "serving_default"}
    assert model.inputs("serving_default") == model.inputs("compare")
    assert not hasattr(model.root, "score")
    shapes = [tuple(one.shape) for one in model.root.used_variables]
    assert shapes == [(1, 3)]  # The new factors, and no words.
