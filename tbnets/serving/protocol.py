"""TensorFlow Serving's messages: tensors, errors and warm-up requests.

The `serving` extra installs the messages and stubs, which are imported on first
use.
"""

import math
import pathlib
import re

import numpy as np
import tensorflow as tf
from google.protobuf.message import DecodeError

from tbnets.errors import UserError, import_extra
from tbnets.files import CheckedFile
from tbnets.serving.export import inputs_of
from tbnets.serving.inputs import IMAGE_BYTES, TreeReader, is_trees
from tbnets.text.trees import read_tree
from tbnets.text.vocabulary import Vocabulary

MOST_BYTES = 32 * 2**20
"""Maximum size in bytes of a request, and of each of its tensors."""
_MOST_AXES = 8
HTTP_STATUS = {"INVALID_ARGUMENT": 400, "NOT_FOUND": 404, "INTERNAL": 500}
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


# Warm-up requests. The first call of a graph is slow. Before TensorFlow Serving
# serves a version to clients, it therefore runs the requests in `WARMUP_FILE`,
# which contains TFRecords of `PredictionLog`. It does not serve a version if a
# warm-up request fails, so each request is run once before it is written.

WARMUP_FILE = "assets.extra/tf_serving_warmup_requests"
WARM_UP_SIZES = (1, 8, 32)
"""Batch sizes of the warm-up requests for each signature."""
WARM_UP_BYTES = 4 << 20
"""Maximum size of an input in bytes. Requests with wide rows have fewer
rows."""
_TEXTS = (
    "a dog in the snow",
    "two children are playing with a red ball on the beach",
    "people",
)
_TREES = (
    "(S (NP (DT a) (NN dog)) (PP (IN in) (NP (DT the) (NN snow))))",
    "(NP (NNS people))",
)
_WIDTH, _HEIGHT = 96, 64


def add_warm_up_requests(folder):
    """Adds warm-up requests for all signatures to a SavedModel."""
    write_warm_up_requests(folder, tf.saved_model.load(str(folder)).signatures)


def write_warm_up_requests(folder, signatures):
    """Runs warm-up requests for the given signatures, then writes them."""
    records = []
    for name, signature in signatures.items():
        for size in WARM_UP_SIZES:
            log = api("prediction_log_pb2").PredictionLog()
            request = log.predict_log.request
            request.model_spec.signature_name = name
            inputs = _warm_up_inputs(signature, size)
            for key, array in inputs.items():
                request.inputs[key].CopyFrom(to_proto(array))
            signature(**{key: tf.constant(x) for key, x in inputs.items()})
            records.append(log.SerializeToString())
    with tf.io.TFRecordWriter(str(pathlib.Path(folder, WARMUP_FILE))) as file:
        for record in records:
            file.write(record)


def read_warm_up_requests(folder):
    """Returns the warm-up `PredictRequest`s of a SavedModel."""
    path = pathlib.Path(folder, WARMUP_FILE)
    if not path.is_file():
        return []
    file, expected = CheckedFile(path), "TFRecords of PredictionLog"
    advice = "Export the model again, or remove the file."
    log = api("prediction_log_pb2").PredictionLog
    try:
        records = tf.data.TFRecordDataset(str(path)).as_numpy_iterator()
        entries = [log.FromString(record) for record in records]
    except (tf.errors.OpError, DecodeError) as error:
        file.refuse(expected, " ".join(str(error).split()), advice=advice)
    kinds = {entry.WhichOneof("log_type") for entry in entries}
    if not kinds <= {"predict_log"}:
        file.refuse(f"{expected}, all predict_log", kinds, advice=advice)
    return [entry.predict_log.request for entry in entries]


def _warm_up_inputs(signature, size):
    specs = inputs_of(signature)
    sides = [spec.shape[1:].as_list() for spec in specs.values()]
    widest = max(np.prod([n or 1 for n in dims]) for dims in sides)
    size = int(min(size, max(1, WARM_UP_BYTES // (4 * widest))))
    return {name: example_rows(spec, size) for name, spec in specs.items()}


def example_rows(spec, size):
    """Returns rows of examples for an input of a signature."""
    shape = [size if n is None else n for n in spec.shape]
    if spec.name == IMAGE_BYTES:
        return np.full(shape, _photo(), object)
    if spec.dtype == tf.string:
        return np.resize(np.array(_TEXTS, object), shape)
    if is_trees(spec):
        reader = TreeReader(Vocabulary(("", "[UNK]")))
        rows = reader.read([read_tree(text) for text in _TREES])
        return np.resize(rows, (size, *rows.shape[1:]))
    if spec.name == "boxes":
        return np.tile(np.float32([0, 0, _WIDTH, _HEIGHT]), (size, 1))
    if spec.name == "k":
        return np.full(shape, 10, spec.dtype.as_numpy_dtype)
    waves = np.cos(np.arange(np.prod(shape, dtype=int))).reshape(shape)
    return waves.astype(spec.dtype.as_numpy_dtype)


def _photo():
    x, y = np.meshgrid(np.arange(_WIDTH), np.arange(_HEIGHT))
    pixels = np.stack([x * 2, y * 3, (x * y) % 256], axis=-1)
    return tf.io.encode_jpeg(pixels.astype(np.uint8)).numpy()
