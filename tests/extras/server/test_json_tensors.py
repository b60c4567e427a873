"""Tests of TensorFlow Serving's JSON, by the examples of its documentation."""

import json

import numpy as np
import pytest
import tensorflow as tf

from tbnets.extras.server import json_tensors
from tbnets.serving import protocol

NUMBERS = {"x": tf.TensorSpec([None, 2], tf.float32)}
TEXTS = {"captions": tf.TensorSpec([None], tf.string)}
THREE = {
    "tag": tf.TensorSpec([None], tf.string),
    "signal": tf.TensorSpec([None, 5], tf.int32),
    "sensor": tf.TensorSpec([None, 2, 2], tf.float32),
}
ROWS = [
    {"tag": "foo", "signal": [1, 2, 3, 4, 5], "sensor": [[1, 2], [3, 4]]},
    {"tag": "bar", "signal": [3, 4, 1, 2, 5], "sensor": [[4, 5], [6, 8]]},
]
COLUMNS = {name: [row[name] for row in ROWS] for name in THREE}


def read(specs, **document):
    parsed = json_tensors.parse(json.dumps(document).encode())
    return json_tensors.read_inputs(parsed, specs)


@pytest.mark.parametrize(
    "specs, document, wanted",
    [
        (TEXTS, {"instances": ["foo", "bär"]}, [b"foo", "bär".encode()]),
        (TEXTS, {"instances": [{"captions": "a"}]}, [b"a"]),
        (TEXTS, {"instances": [{"b64": "/wA="}, "a"]}, [b"\xff\0", b"a"]),
        (TEXTS, {"inputs": ["foo"]}, [b"foo"]),
        (TEXTS, {"inputs": {"captions": []}}, []),
        (TEXTS, {"inputs": {"b64": "YQ=="}}, b"a"),
        (NUMBERS, {"instances": [[1, 2.5]]}, [[1, 2.5]]),
        (NUMBERS, {"inputs": {"x": [[16777215, -1e-9]]}}, None),
        (NUMBERS, {"inputs": {"x": [[float("inf"), 1]]}}, [[np.inf, 1]]),
        (NUMBERS, {"inputs": {"x": [[3.4028235e38, -1]]}}, None),
    ],
)
def test_a_single_input_needs_no_name(specs, document, wanted):
    arrays, by_rows = read(specs, **document)
    [(name, array)] = arrays.items()
    assert by_rows == ("instances" in document)
    assert array.dtype == specs[name].dtype.as_numpy_dtype
    if wanted is None:
        wanted = np.float32(document["inputs"]["x"]).tolist()
    assert array.tolist() == wanted


@pytest.mark.parametrize("document", [{"instances": ROWS}, {"inputs": COLUMNS}])
def test_rows_and_columns_say_the_same(document):
    arrays, _ = read(THREE, **document)
    assert arrays["tag"].tolist() == [b"foo", b"bar"]
    assert arrays["signal"].dtype == np.int32
    assert arrays["sensor"].tolist() == [[[1, 2], [3, 4]], [[4, 5], [6, 8]]]


@pytest.mark.parametrize(
    "specs, document",
    [
        (TEXTS, {}),
        (TEXTS, {"inputs": [], "instances": []}),
        (TEXTS, {"instances": []}),
        (TEXTS, {"instances": "a"}),
        (TEXTS, {"inputs": [1]}),
        (TEXTS, {"inputs": [None]}),
        (TEXTS, {"inputs": [{"b64": "a"}]}),
        (TEXTS, {"inputs": [{"b64": "!!!!"}]}),
        (TEXTS, {"inputs": [{"b64": 1}]}),
        (TEXTS, {"inputs": ["\ud800"]}),
        (TEXTS, {"inputs": {"texts": ["a"]}}),
        (TEXTS, {"inputs": {"captions": ["a"], "x": 1}}),
        (TEXTS, {"instances": ["a", {"captions": "a"}]}),
        (TEXTS, {"inputs": [["a"], ["b", "c"]]}),
        (TEXTS, {"inputs": ["a", ["b"]]}),
        (TEXTS, {"inputs": [["a"], "b"]}),
        (THREE, {"instances": [1]}),
        (THREE, {"inputs": [1]}),
        (NUMBERS, {"inputs": [[True, 1]]}),
        (NUMBERS, {"inputs": [["1", 1]]}),
        (NUMBERS, {"inputs": [[1e39, 1]]}),
        (NUMBERS, {"inputs": [[3.4028236e38, 1]]}),
        (NUMBERS, {"inputs": [[16777217, 1]]}),
        (THREE, {"inputs": {**COLUMNS, "signal": [2**31]}}),
        (THREE, {"inputs": {**COLUMNS, "signal": [1.5]}}),
    ],
)
def test_what_the_signature_does_not_say_is_refused(specs, document):
    with pytest.raises(protocol.RequestError):
        read(specs, **document)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[]",
        b'{"inputs": ["\xff"]}',
        b'{"inputs": ' + b"[" * 100_000,
        b'{"inputs": ' + b"9" * 5000 + b"}",
        b'{"inputs": ' + b"[" * 60 + b"]" * 60 + b"}",
        b'{"inputs": ["a"], "inputs": ["b"]}',
        b'{"signature_name": 3, "inputs": ["a"]}',
    ],
)
def test_what_is_no_request_is_refused(body):
    with pytest.raises(protocol.RequestError):
        document = json_tensors.parse(body)
        json_tensors.signature_of(document)
        json_tensors.read_inputs(document, TEXTS)


def test_the_default_signature_needs_no_name():
    assert json_tensors.signature_of({}) == "serving_default"
    assert json_tensors.signature_of({"signature_name": "score"}) == "score"


@pytest.mark.parametrize(
    "outputs, by_rows, wanted",
    [
        ({"y": [[0.1], [2]]}, True, '{"predictions": [[0.1], [2.0]]}'),
        ({"y": [[0.1], [2]]}, False, '{"outputs": [[0.1], [2.0]]}'),
        ({"y": 0.3}, False, '{"outputs": 0.3}'),
        (
            {"a": [1.5, np.nan], "b": [b"x", b"\xff"]},
            True,
            '{"predictions": [{"a": 1.5, "b": "x"}, '
            '{"a": NaN, "b": {"b64": "/w=="}}]}',
        ),
        (
            {"a": [-np.inf], "map_bytes": [b"x"]},
            False,
            '{"outputs": {"a": [-Infinity], "map_bytes": [{"b64": "eA=="}]}}',
        ),
        ({"y": np.zeros([0, 2])}, True, '{"predictions": []}'),
    ],
)
def test_an_answer_is_as_the_request_was(outputs, by_rows, wanted):
    arrays = {
        name: np.array(
            value, object if isinstance(value[0], bytes) else np.float32
        )
        if isinstance(value, list)
        else np.asarray(value, np.float32)
        for name, value in outputs.items()
    }
    assert json_tensors.write_outputs(arrays, by_rows).decode() == wanted


def test_floats_come_back_bit_for_bit():
    array = np.random.default_rng(0).normal(size=1000).astype(np.float32)
    body = json_tensors.write_outputs({"y": array}, False)
    assert np.array_equal(np.float32(json.loads(body)["outputs"]), array)


@pytest.mark.parametrize("other", [np.zeros([3]), np.zeros([])])
def test_rows_of_other_lengths_are_refused(other):
    outputs = {"a": np.zeros([2]), "b": other}
    with pytest.raises(protocol.RequestError):
        json_tensors.write_outputs(outputs, True)
