"""Tests of requests by which a server warms up."""

import numpy as np
import pytest
import tensorflow as tf

from tbnets.serving import protocol
from tbnets.serving.inputs import TreeReader
from tbnets.serving.protocol import to_array
from tbnets.text.vocabulary import Vocabulary
from tests.refusals import refused

pytest.importorskip("tensorflow_serving")
TREES = TreeReader(Vocabulary(("", "[UNK]", "dog")), max_tokens=10)


def signature(function, **specs):
    """Returns a concrete function; specs: name -> (shape, dtype)."""
    given = [tf.TensorSpec(*one, name) for name, one in specs.items()]
    traced = tf.function(function, input_signature=given, autograph=False)
    return traced.get_concrete_function()


SIGNATURES = {
    "embed_trees": signature(
        lambda trees: {"rows": TREES(trees)}, trees=([None, None, 6], tf.int32)
    ),
    "score": signature(
        lambda image_bytes, image_features: {"rows": image_features},
        image_bytes=([None], tf.string),
        image_features=([None, 100_000], tf.float32),
    ),
    "search": signature(
        lambda text_features, k: {"rows": text_features[:, :k]},
        text_features=([None, 4], tf.float32),
        k=([], tf.int32),
    ),
}


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "assets.extra").mkdir()
    return tmp_path


def test_each_signature_has_warm_up_requests(folder):
    protocol.write_warm_up_requests(folder, SIGNATURES)
    sizes = {name: [] for name in SIGNATURES}
    for request in protocol.read_warm_up_requests(folder):
        name = request.model_spec.signature_name
        arrays = [to_array(key, one) for key, one in request.inputs.items()]
        sizes[name].append({len(one) for one in arrays if one.ndim}.pop())
        floats = [one for one in arrays if one.dtype.kind == "f"]
        assert all(np.isfinite(one).all() for one in floats)
    # 10 rows of 100,000 float32 are what 4 MiB hold.
    assert sizes.pop("score") == [1, 8, 10]
    assert all(one == [1, 8, 32] for one in sizes.values())


def test_failing_warm_up_request_raises_an_error(folder):
    def fail(rows):
        return {"rows": tf.ensure_shape(rows, [3, 4])}

    fails = signature(fail, rows=([None, 4], tf.float32))
    with pytest.raises(tf.errors.InvalidArgumentError):
        protocol.write_warm_up_requests(folder, {**SIGNATURES, "odd": fails})
    assert protocol.read_warm_up_requests(folder) == []


def test_damaged_warm_up_file_raises_an_error(folder):
    path = folder / protocol.WARMUP_FILE
    path.write_bytes(b"These are no records." * 5)
    with refused(path.name):
        protocol.read_warm_up_requests(folder)
    with tf.io.TFRecordWriter(str(path)) as file:
        file.write(b"\x12\x00")
    with refused(path.name):
        protocol.read_warm_up_requests(folder)
