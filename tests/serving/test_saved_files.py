"""A SavedModel that is damaged, or of somebody else."""

import pathlib

import numpy as np
import pytest
import tensorflow as tf

from tbnets.errors import InputError, MissingFileError
from tbnets.serving import saved_files, zoo
from tbnets.serving.endpoints import Endpoints
from tbnets.serving.export import write_saved_model
from tbnets.serving.saved_files import (
    ALLOWED_OPS,
    GRAPH_FILE,
    METADATA_FILE,
    foreign_ops,
)
from tbnets.serving.served import load_saved_model
from tests.refusals import refused
from tests.serving.test_export import write_features_model

FILES = (
    GRAPH_FILE,
    "variables/variables.index",
    "variables/variables.data-00000-of-00001",
    "assets.extra/vocabulary.txt",
)


@pytest.fixture
def path(tmp_path):
    return write_features_model(tmp_path / "1")


def cut(path):
    path.write_bytes(path.read_bytes()[:-9])


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("damage", [cut, pathlib.Path.unlink])
def test_error_about_a_damaged_model_names_the_file(path, name, damage):
    damage(path / name)
    with pytest.raises((InputError, MissingFileError), match=name):
        load_saved_model(path, trust=True)


@pytest.mark.parametrize(
    "content",
    [
        b"[]",
        # Outside of the folder.
        b'{"sha256": {"../x": ""}}',
        b'{"sha256": {"/x": ""}}',
    ],
)
def test_damaged_metadata_raise_an_error(path, content):
    (path / METADATA_FILE).write_bytes(content)
    with pytest.raises(InputError):
        load_saved_model(path)


def write_file(path, name):
    """Writes a model that writes a file when its answer is asked for."""

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, "captions")])
    def embed_text(captions):
        # In a branch, so that the op is only in the function library.
        def harm():
            tf.io.write_file(name, "written")
            return tf.zeros([tf.size(captions), 2])

        harmless = lambda: tf.ones([tf.size(captions), 2])  # noqa: E731
        rows = tf.cond(tf.size(captions) > 0, harm, harmless)
        return {"embeddings": rows}

    module = tf.Module()
    module.embed_text = embed_text
    names = ("embed_text", "embed_image", "score")
    tf.saved_model.save(
        module, str(path), signatures=dict.fromkeys(names, embed_text)
    )
    return path


def test_model_that_writes_files_must_be_trusted(tmp_path):
    target = tmp_path / "written"
    path = write_file(tmp_path / "1", str(target))
    for load in (load_saved_model, zoo.open_model):
        with pytest.raises(InputError, match="WriteFile"):
            load(path)
    model = load_saved_model(path, trust=True)
    assert not target.exists()
    assert model.embed_text(["a dog"]).shape == (1, 2)
    assert target.read_text() == "written"
    assert zoo.open_model(path, trust=True).embed_text([]).shape == (0, 2)


def test_ops_that_save_are_allowed_only_in_the_saver(tmp_path):
    @tf.function(input_signature=[tf.TensorSpec([], tf.string, "name")])
    def save(name):
        tf.raw_ops.SaveV2(
            prefix=name,
            tensor_names=["x"],
            shape_and_slices=[""],
            tensors=[tf.ones([2])],
        )
        return {"name": name}

    module = tf.Module()
    module.save = save
    tf.saved_model.save(module, str(tmp_path), signatures={"save": save})
    assert foreign_ops(saved_files.read_graphs(tmp_path)) == ["SaveV2"]


def test_allowed_ops_compute_and_access_no_files():
    assert ALLOWED_OPS >= {
        *("MatMul", "DecodeJpeg", "ParallelMapDatasetV2"),
        "TFText>WhitespaceTokenizeWithOffsetsV2",
    }
    assert not ALLOWED_OPS & {
        *("TextLineDataset", "ReadFile", "WriteFile", "PrintV2", "PyFunc"),
        *("EagerPyFunc", "InitializeTableFromTextFileV2", "DecodeProtoV2"),
    }


def test_model_with_other_signatures_is_called(tmp_path):
    @tf.function(input_signature=[tf.TensorSpec([None, 1], name="numbers")])
    def double(numbers):
        return {"doubled": 2 * numbers}

    endpoints = Endpoints({"double": double}, "double")
    model = load_saved_model(write_saved_model(endpoints, tmp_path / "1"))
    found = model.call("double", numbers=[[1], [2]])
    np.testing.assert_array_equal(found["doubled"], [[2], [4]])
    with refused("signature"):
        model.call("triple")
    with refused("numbers"):
        model.call("double", numbers=[1])
    assert not model.takes_captions and model.vocabulary is None
