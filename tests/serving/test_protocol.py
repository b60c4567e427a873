"""Tests of tensors on the wire of gRPC, and of what is refused."""

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.core.framework import tensor_pb2

from tbnets.serving import protocol

FLOAT = tf.float32.as_datatype_enum
STRING = tf.string.as_datatype_enum


def proto(dtype, shape, **fields):
    message = tensor_pb2.TensorProto(dtype=dtype, **fields)
    for size in shape:
        message.tensor_shape.dim.add(size=size)
    return message


@pytest.mark.parametrize(
    "array",
    [
        np.array([[0.1, -2, 3e38]], np.float32),
        np.zeros([0, 4], np.float32),
        np.array(3, np.int32),
        np.array([b"a dog", b"", b"\xff\x00"], object),
        np.array(b"one", object),
        np.array([True, False]),
    ],
)
def test_arrays_are_converted_to_messages_and_back(array):
    message = protocol.to_proto(array)
    again = tensor_pb2.TensorProto.FromString(message.SerializeToString())
    back = protocol.to_array("x", again)
    assert (back.dtype, back.shape) == (array.dtype, array.shape)
    assert back.tobytes() == array.tobytes() or back.tolist() == array.tolist()


@pytest.mark.parametrize(
    "message, wanted",
    [
        (proto(FLOAT, [2, 1], float_val=[1, 2]), [[1], [2]]),
        (proto(FLOAT, [3], float_val=[7]), [7, 7, 7]),
        (proto(FLOAT, [], float_val=[7]), 7),
        (proto(FLOAT, [0, 5]), []),
    ],
)
def test_values_may_be_in_fields_or_packed(message, wanted):
    assert protocol.to_array("x", message).tolist() == wanted


@pytest.mark.parametrize(
    "message",
    [
        proto(FLOAT, [2], tensor_content=b"1234567"),
        proto(FLOAT, [2], float_val=[1, 2, 3]),
        proto(FLOAT, [2**40], float_val=[1]),
        proto(FLOAT, [2**62, 2**62, 0]),
        proto(FLOAT, [-1], float_val=[1]),
        proto(FLOAT, [1] * 300, float_val=[1]),
        proto(STRING, [2], string_val=[b"a"]),
        proto(STRING, [2], tensor_content=b"\1\2abc"),
        proto(FLOAT, [2], tensor_content=b"1"),
        proto(999, [1]),
        tensor_pb2.TensorProto(
            dtype=FLOAT, tensor_shape={"unknown_rank": True}
        ),
    ],
)
def test_malformed_tensors_are_rejected(message):
    with pytest.raises(protocol.RequestError, match="`x`") as refused:
        protocol.to_array("x", message)
    assert refused.value.code == "INVALID_ARGUMENT"


def test_errors_of_graphs_have_no_source_location():
    @tf.function
    def call(x):
        tf.debugging.assert_less(x, 1, "`x` must be small.")
        return x

    with pytest.raises(tf.errors.InvalidArgumentError) as raised:
        call(tf.constant(2))
    refused = protocol.refusal(raised.value)
    assert refused.code == "INVALID_ARGUMENT"
    assert "`x` must be small." in str(refused)
    assert not any(word in str(refused) for word in ("File", "node", "\n"))
