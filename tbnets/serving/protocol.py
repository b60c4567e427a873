"""Converts tensors and errors to and from TensorFlow Serving's messages.

The `serving` extra installs the messages and stubs, which are imported on first
use.
"""

import math
import re

import numpy as np
import tensorflow as tf

from tbnets.errors import UserError, import_extra

MOST_BYTES = 32 * 2**20
"""Maximum size in bytes of a request, and of each of its tensors."""
_MOST_AXES = 8
HTTP_STATUS = {
    "INVALID_ARGUMENT": 400,
    "NOT_FOUND": 404,
    "INTERNAL": 500,
}
"""Maps the name of a gRPC status to TensorFlow Serving's HTTP status."""
_FIELDS = {
    tf.float32: "float_val",
    tf.int32: "int_val",
    tf.int64: "int64_val",
    tf.bool: "bool_val",
    tf.string: "string_val",
}


class RequestError(UserError):
    """Raised when a gRPC or REST request is rejected.

    `code` is a key of `HTTP_STATUS`.
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
    is_input = isinstance(error, tf.errors.InvalidArgumentError)
    code = "INVALID_ARGUMENT" if is_input else "INTERNAL"
    return RequestError(code, message.strip())


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

    Sizes are checked before memory is allocated: a `TensorProto` of a few bytes
    can declare terabytes.
    """
    kinds = {kind.as_datatype_enum: kind for kind in _FIELDS}
    kind = kinds.get(proto.dtype)
    sides = [dim.size for dim in proto.tensor_shape.dim]
    is_known = kind and not proto.tensor_shape.unknown_rank
    if not is_known or len(sides) > _MOST_AXES or min(sides, default=0) < 0:
        raise invalid(
            f"`{name}` must be a tensor of at most {_MOST_AXES} axes, of "
            f"{', '.join(kind.name for kind in _FIELDS)}. Received: dtype="
            f"{proto.dtype}, shape={sides[:20]}. Send the signature's input."
        )
    values, unit = len(getattr(proto, _FIELDS[kind])), "values"
    size = math.prod(sides)
    declared = math.prod(max(1, n) for n in (kind.size, *sides))
    is_one_for_all = values == 1 and size > 1 and kind != tf.string
    if proto.tensor_content and kind != tf.string:
        values, unit = len(proto.tensor_content), "bytes"
        size, is_one_for_all = size * kind.size, False
    if declared > MOST_BYTES or (values != size and not is_one_for_all):
        raise invalid(
            f"`{name}` must have the {unit} of its shape, and at most "
            f"{MOST_BYTES} bytes. Received: {values} {unit}, shape={sides}."
        )
    return tf.make_ndarray(proto)
