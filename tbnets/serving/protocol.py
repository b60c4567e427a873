"""The messages of TensorFlow Serving: tensors in and out, and what is refused.

The messages and stubs are those of the package tensorflow-serving-api, which
the extra `serving` brings; it is imported where it is used. TensorFlow itself
brings `TensorProto`.

What a stranger sends is measured before memory is asked for: a `TensorProto`
of a few bytes can speak of terabytes.
"""

import math
import re

import numpy as np
import tensorflow as tf
from google.protobuf import json_format

from tbnets.errors import UserError, import_extra

MOST_BYTES = 32 * 2**20
"""What a request, and each tensor of it, may have."""
MOST_SIDES = 8
HTTP_STATUS = {
    "OK": 200,
    "CANCELLED": 499,
    "UNKNOWN": 500,
    "INVALID_ARGUMENT": 400,
    "DEADLINE_EXCEEDED": 504,
    "NOT_FOUND": 404,
    "ALREADY_EXISTS": 409,
    "PERMISSION_DENIED": 403,
    "RESOURCE_EXHAUSTED": 429,
    "FAILED_PRECONDITION": 400,
    "ABORTED": 409,
    "OUT_OF_RANGE": 400,
    "UNIMPLEMENTED": 501,
    "INTERNAL": 500,
    "UNAVAILABLE": 503,
    "DATA_LOSS": 500,
    "UNAUTHENTICATED": 401,
}
"""Canonical code, in the order of their numbers -> TF Serving's HTTP status."""
_FIELDS = {
    tf.float32: "float_val",
    tf.float64: "double_val",
    tf.int32: "int_val",
    tf.int64: "int64_val",
    tf.bool: "bool_val",
    tf.string: "string_val",
}


class RequestError(UserError):
    """What a request is refused with, by gRPC as by REST.

    Args:
        code: one of `HTTP_STATUS`; gRPC's is `grpc.StatusCode[code]`. At a
            client `channels.OTHER_PROTOCOL` too.
        message: what is wrong with the request, for whoever sent it; or with
            the way to the server.
    """

    def __init__(self, code, message):
        super().__init__(message)
        self.code = code


def invalid(message):
    """Returns the `RequestError` of what is not as it must be."""
    return RequestError("INVALID_ARGUMENT", message)


def api(module):
    """Returns a module of tensorflow-serving-api.

    Args:
        module: its name, for example `predict_pb2`.

    Raises:
        ImportError: the extra `serving` is not installed.
    """
    return import_extra("serving", f"tensorflow_serving.apis.{module}")


def refusal(error):
    """Returns the `RequestError` of what went wrong while a graph ran.

    Args:
        error: a `tf.errors.OpError`. Of its message what the op said is kept;
            where the op stands in the graph is nothing to a client.
    """
    said = error.message.split("\n\t [[")[0].rstrip().rpartition("\n")[2]
    said = re.sub(r" \[Op:\S*\].*|\{\{function_node \S*\}\} ?", "", said)
    said = re.sub(r"assertion failed: \[(.*?)\] \[(.*)\]", r"\1 \2", said)
    return RequestError(list(HTTP_STATUS)[error.error_code], said.strip())


def as_dict(message):
    """Returns a message as JSON has it, its fields called as in the message."""
    return json_format.MessageToDict(message, preserving_proto_field_name=True)


def to_numpy(tensor):
    """Returns the array of a tensor, also of a single string."""
    value = tensor.numpy()
    return np.array(value, object) if isinstance(value, bytes) else value


def to_proto(array):
    """Returns the `TensorProto` of an array; strings are bytes or str."""
    is_text = array.dtype.kind in "OSU"
    kind = tf.string if is_text else tf.as_dtype(array.dtype)
    return tf.make_tensor_proto(array, kind, array.shape)


def to_array(name, proto):
    """Returns the array of a `TensorProto`; strings as objects, bytes.

    Values come as `tensor_content` or in the field of their type, there also
    one number for all.

    Args:
        name: of the input, for messages.
        proto: a `TensorProto`, of anybody.

    Raises:
        RequestError: it is of a type that no signature here takes, its shape
            is none or too large, or its values are not as many.
    """
    kinds = {kind.as_datatype_enum: kind for kind in _FIELDS}
    if proto.dtype not in kinds:
        known = ", ".join(kind.name for kind in _FIELDS)
        raise invalid(
            f"`{name}` must be of a type out of {known}. Received: dtype="
            f"{proto.dtype}. Send the type that the signature says."
        )
    kind = kinds[proto.dtype]
    size = _size_of(name, proto.tensor_shape, kind)
    values = len(getattr(proto, _FIELDS[kind]))
    content = len(proto.tensor_content)
    if kind == tf.string and content and not values:
        return _packed_strings(name, proto, size)
    wanted, given, unit = size, values, "values"
    if content:
        wanted, given, unit = size * kind.size, content, "bytes"
    is_one_for_all = values == 1 and size > 1 and kind != tf.string
    if given != wanted and not (is_one_for_all and not content):
        raise invalid(
            f"`{name}` must have {wanted} {unit}, as its shape says. Received: "
            f"{given}. Send all of them."
        )
    return tf.make_ndarray(proto)


def _size_of(name, shape, kind):
    """Returns how many values a shape holds, if they may be as many."""
    sides = [dim.size for dim in shape.dim]
    good = not shape.unknown_rank and min(sides, default=0) >= 0
    most = math.prod(max(1, size) for size in (kind.size, *sides))
    if not good or len(sides) > MOST_SIDES or most > MOST_BYTES:
        raise invalid(
            f"`{name}` must be of a known shape, at most {MOST_SIDES} sides "
            f"and {MOST_BYTES} bytes. Received: shape={sides[:20]} of "
            f"{kind.name}. Send less at once."
        )
    return math.prod(sides)


def _packed_strings(name, proto, size):
    """Returns strings that come with their lengths before them."""
    try:
        if size > len(proto.tensor_content):  # Each has a length.
            raise tf.errors.InvalidArgumentError(None, None, "too few bytes")
        value = tf.io.parse_tensor(proto.SerializeToString(), tf.string)
    except tf.errors.InvalidArgumentError as error:
        raise invalid(
            f"`{name}` must have {size} strings, as its shape says. Received: "
            f"`tensor_content` of others ({error.message}). Send `string_val`."
        ) from error
    return np.asarray(value.numpy(), object)
