"""Writes and reads warm-up requests for TensorFlow Serving.

The first call of a graph is slow. Before TensorFlow Serving serves a version to
clients, it therefore runs the requests in
`assets.extra/tf_serving_warmup_requests`, which contains TFRecords of
`PredictionLog`. It does not serve a version if a warm-up request fails, so each
request is run once before it is written.
"""

import pathlib

import numpy as np
import tensorflow as tf
from google.protobuf.message import DecodeError

from tbnets.files import CheckedFile
from tbnets.serving import protocol
from tbnets.serving.export import inputs_of
from tbnets.serving.inputs import IMAGE_BYTES
from tbnets.serving.text_readers import TreeReader, is_trees
from tbnets.text.trees import read_tree
from tbnets.text.vocabulary import Vocabulary

WARMUP_FILE = "assets.extra/tf_serving_warmup_requests"
SIZES = (1, 8, 32)
"""Batch sizes of the warm-up requests for each signature."""
MOST_BYTES = 4 << 20
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


def add_requests(folder):
    """Adds warm-up requests for all signatures to a SavedModel."""
    write_requests(folder, tf.saved_model.load(str(folder)).signatures)


def write_requests(folder, signatures):
    """Runs warm-up requests for the given signatures, then writes them."""
    records = []
    for name, signature in signatures.items():
        for size in SIZES:
            log = protocol.api("prediction_log_pb2").PredictionLog()
            request = log.predict_log.request
            request.model_spec.signature_name = name
            inputs = _inputs(signature, size)
            for key, array in inputs.items():
                request.inputs[key].CopyFrom(protocol.to_proto(array))
            signature(**{key: tf.constant(x) for key, x in inputs.items()})
            records.append(log.SerializeToString())
    with tf.io.TFRecordWriter(str(pathlib.Path(folder, WARMUP_FILE))) as file:
        for record in records:
            file.write(record)


def read_requests(folder):
    """Returns the warm-up `PredictRequest`s of a SavedModel."""
    path = pathlib.Path(folder, WARMUP_FILE)
    if not path.is_file():
        return []
    file, expected = CheckedFile(path), "TFRecords of PredictionLog"
    advice = "Export the model again, or remove the file."
    log = protocol.api("prediction_log_pb2").PredictionLog
    try:
        records = tf.data.TFRecordDataset(str(path)).as_numpy_iterator()
        entries = [log.FromString(record) for record in records]
    except (tf.errors.OpError, DecodeError) as error:
        file.refuse(expected, " ".join(str(error).split()), advice=advice)
    kinds = {entry.WhichOneof("log_type") for entry in entries}
    if not kinds <= {"predict_log"}:
        file.refuse(f"{expected}, all predict_log", kinds, advice=advice)
    return [entry.predict_log.request for entry in entries]


def _inputs(signature, size):
    specs = inputs_of(signature)
    sides = [spec.shape[1:].as_list() for spec in specs.values()]
    widest = max(np.prod([n or 1 for n in dims]) for dims in sides)
    size = int(min(size, max(1, MOST_BYTES // (4 * widest))))
    return {name: _rows(spec, size) for name, spec in specs.items()}


def _rows(spec, size):
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
