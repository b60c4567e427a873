"""What a model lacks that can not be exported again."""

import numpy as np
import pytest
import tensorflow as tf
from zoo_making import again

from tbnets.serving.endpoints import Endpoints
from tbnets.serving.export import write_saved_model
from tbnets.serving.served import load_saved_model


def scaling(factor):
    """Returns the endpoints of a model that multiplies."""

    @tf.function(input_signature=[tf.TensorSpec([None, 2], name="rows")])
    def embed(rows):
        return {"embeddings": factor * rows, "status": tf.constant("")}

    return Endpoints({"embed": embed}, "embed")


def test_a_model_that_tells_no_settings_is_refused(tmp_path):
    path = write_saved_model(scaling(1.0), tmp_path / "1")
    with pytest.raises(ValueError, match="`source` .* not tell its settings"):
        again.export_again(path, tmp_path / "2")
    assert not (tmp_path / "2").exists()


def test_an_answer_that_differs_is_told(tmp_path):
    one, same, other = (
        load_saved_model(write_saved_model(scaling(factor), tmp_path / name))
        for name, factor in (("1", 1.0), ("2", 1.0), ("3", 1.1))
    )
    assert again._compare(one.signatures, same) == 0
    with pytest.raises(ValueError, match="embed, whose embeddings differ by"):
        again._compare(one.signatures, other)


def test_weights_without_a_place_are_named():
    variable = tf.Variable(np.zeros([2]), name="kernel")
    embed = tf.function(
        lambda rows: {"embeddings": rows + variable},
        input_signature=[tf.TensorSpec([None, 2], tf.float64, name="rows")],
    )
    endpoints = Endpoints({"embed": embed}, "embed")
    other = tf.Variable(np.ones([2]), name="other")
    with pytest.raises(ValueError, match="`source` .*kernel:0 and 1 others"):
        again._assign(endpoints, {"other:0": other}, "model")
    again._assign(endpoints, {"kernel:0": other}, "model")
    assert variable.numpy().tolist() == [1, 1]
