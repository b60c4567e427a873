"""Converts tensors and errors to and from TensorFlow Serving's messages.

The `serving` extra installs the messages and stubs, which are imported on first
use.
"""

import math
import re

import numpy as np
import tensorflow as tf
from google.protobuf import json_format

from tbnets.errors import UserError, import_extra

MOST_BYTES = 32 * 2**20
"""Maximum size in bytes of a request, and of each of its tensors."""
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
"""Maps each canonical code, sorted by number, to TensorFlow Serving's HTTP
status."""
_FIELDS = {
    tf.float32: "float_val",
    tf.float64: "double_val",
    tf.int32: "int_val",
    tf.int64: "int64_val",
    tf.bool: "bool_val",
    tf.string: "string_val",
}


class RequestError(UserError):
    """Raised when a gRPC or REST request is rejected.

    `code` is the name of a `grpc.StatusCode` (a key of `HTTP_STATUS`) or, in a
    client, `client.OTHER_PROTOCOL`.
    """

    def __init__(self, code, message):
        super().__init__(message)
        self.code = code


def invalid(message):
    """Returns the `RequestError` for an invalid input."""
    return RequestError("INVALID_ARGUMENT", message)


def api(module):
    """Returns a module of tensorflow-serving-api, such as `predict_pb2`."""
    return import_extra("serving", f"tensorflow_serving.apis.{module}")


def refusal(error):
    """Converts a `tf.errors.OpError` to a `RequestError`.

    Keeps only the op's own message, without the location in the graph.
    """
    message = error.message.split("\n\t [[")[0].rstrip().rpartition("\n")[2]
    message = re.sub(r" \[Op:\S*\].*|\{\{function_node \S*\}\} ?", "", message)
    message = re.sub(r"assertion failed: \[(.*?)\] \[(.*)\]", r"\1 \2", message)
    return RequestError(list(HTTP_STATUS)[error.error_code], message.strip())


def as_dict(message):
    """Returns a protobuf message as a JSON dict with the proto field names."""
    return json_format.MessageToDict(message, preserving_proto_field_name=True)


def to_numpy(tensor):
    """Converts a tensor to a NumPy array, even if it is a scalar string."""
    value = tensor.numpy()
    return np.array(value, object) if isinstance(value, bytes) else value


def to_proto(array):
    """Converts an array to a `TensorProto`. Strings may be bytes or str."""
    is_text = array.dtype.kind in "OSU"
    kind = tf.string if is_text else tf.as_dtype(array.dtype)
    return tf.make_tensor_proto(array, kind, array.shape)


def to_array(name, proto):
    """Converts an untrusted `TensorProto` to an array, with strings as bytes.

    The values are in `tensor_content` or in the field for their dtype. The
    field may hold a single value, which is then repeated for all elements.
    """
    kinds = {kind.as_datatype_enum: kind for kind in _FIELDS}
    if proto.dtype not in kinds:
        known = ", ".join(kind.name for kind in _FIELDS)
        raise invalid(
            f"`{name}` must have one of the types {known}. Received: "
            f"dtype={proto.dtype}. Send the type of the signature."
        )
    kind = kinds[proto.dtype]
    size = _size_of(name, proto.tensor_shape, kind)
    values = len(getattr(proto, _FIELDS[kind]))
    content = len(proto.tensor_content)
    if kind == tf.string and content and not values:
        return _packed_strings(name, proto, size)
    expected, received, unit = size, values, "values"
    if content:
        expected, received, unit = size * kind.size, content, "bytes"
    is_one_for_all = values == 1 and size > 1 and kind != tf.string
    if received != expected and not (is_one_for_all and not content):
        raise invalid(
            f"`{name}` must have {expected} {unit} for its shape. Received: "
            f"{received}. Send {unit} for the whole shape."
        )
    return tf.make_ndarray(proto)


def _size_of(name, shape, kind):
    # Checks the size before memory is allocated: a `TensorProto` of a few bytes
    # can declare terabytes.
    sides = [dim.size for dim in shape.dim]
    good = not shape.unknown_rank and min(sides, default=0) >= 0
    most = math.prod(max(1, size) for size in (kind.size, *sides))
    if not good or len(sides) > MOST_SIDES or most > MOST_BYTES:
        raise invalid(
            f"`{name}` must have a known shape of at most {MOST_SIDES} axes "
            f"and {MOST_BYTES} bytes. Received: shape={sides[:20]} of "
            f"{kind.name}. Send fewer values at once."
        )
    return math.prod(sides)


def _packed_strings(name, proto, size):
    try:
        if size > len(proto.tensor_content):  # Each length takes a byte.
            raise tf.errors.InvalidArgumentError(None, None, "too few bytes")
        value = tf.io.parse_tensor(proto.SerializeToString(), tf.string)
    except tf.errors.InvalidArgumentError as error:
        raise invalid(
            f"`{name}` must have {size} strings for its shape. Received: an "
            f"invalid `tensor_content` ({error.message}). Send `string_val`."
        ) from error
    return np.asarray(value.numpy(), object)
