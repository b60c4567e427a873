"""Writes warm-up requests and deployment files for TensorFlow Serving.

The deployment files are next to the numbered version folders, where a server
ignores them.
"""

import math
import pathlib
import re
import string

import numpy as np
import tensorflow as tf
from google.protobuf.message import DecodeError

from tbnets.errors import InputError
from tbnets.files import CheckedFile, write_text
from tbnets.serving import protocol, saved_files
from tbnets.serving.export import inputs_of, is_batchable
from tbnets.serving.inputs import IMAGE_BYTES
from tbnets.serving.photo_reader import AT_ONCE
from tbnets.serving.text_readers import TreeReader, is_trees
from tbnets.text.trees import read_tree
from tbnets.text.vocabulary import Vocabulary

# Warm-up requests. The first call of a graph is slow. Before TensorFlow Serving
# serves a version to clients, it therefore runs the requests in
# `assets.extra/tf_serving_warmup_requests`, which contains TFRecords of
# `PredictionLog`. It does not serve a version if a warm-up request fails, so
# each request is run once before it is written.

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


def warm_up(folder):
    """Writes warm-up requests for all signatures of a SavedModel."""
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


IMAGE = "tensorflow/serving:2.20.0"
"""Newest Docker image of TensorFlow Serving, as of 2026-11-26."""
MOST_ROWS = 32
"""Maximum number of rows in a batch. Larger batches do not embed more photos
per second."""
_NAME = re.compile(r"[A-Za-z]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?")
_BYTES_A_PIXEL = 6
_GIB = 2**30
_TEMPLATES = pathlib.Path(__file__).with_name("deployment")


def check_model_name(name):
    """Raises a ValueError if a name is invalid in a URL or a host name."""
    if not _NAME.fullmatch(name):
        raise InputError(
            "output",
            "end in a model name of at most 63 letters, digits and _.-, with a "
            "letter first and a letter or digit last",
            f"output={name}",
            "Choose another name.",
        )


def write_deployment(version, name):
    """Writes deployment files next to the versions of a model.

    `version` is the folder of the SavedModel. Batching is enabled only if all
    signatures support it, because a server batches all signatures or none.
    Returns (paths, unbatched): the written files, and the names of the
    signatures that prevent batching.
    """
    check_model_name(name)
    version = pathlib.Path(version)
    metadata = saved_files.read_metadata(version)
    described = metadata["signatures"]
    unbatched = [n for n, s in described.items() if not is_batchable(s)]
    files = ["models.config"]
    flags = [f"--model_config_file=/models/{name}/models.config"]
    if not unbatched:
        files.append("batching_parameters.txt")
        flags.append("--enable_batching=true")
        place = f"/models/{name}/batching_parameters.txt"
        flags.append(f"--batching_parameters_file={place}")
    files += ["docker-compose.yml", "kubernetes.yaml"]
    request, limit = _gibibytes(version, metadata)
    words = {
        "name": name,
        "host": re.sub("[_.]", "-", name.lower()),
        "image": IMAGE,
        "rows": MOST_ROWS,
        "composed": "\n".join(f"      - {flag}" for flag in flags),
        "arguments": "\n".join(f"            - {flag}" for flag in flags),
        "request": request,
        "limit": limit,
    }
    paths = []
    for file in files:
        template = string.Template((_TEMPLATES / file).read_text("utf-8"))
        paths.append(version.parent / file)
        write_text(paths[-1], template.substitute(words))
    if unbatched:
        (version.parent / "batching_parameters.txt").unlink(missing_ok=True)
    return paths, unbatched


def _gibibytes(version, metadata):
    # The memory suffices to load a new version while the old one is served.
    size = sum((version / name).stat().st_size for name in metadata["sha256"])
    request = math.ceil(0.5 + 2 * size / _GIB)
    pixels = metadata.get("max_pixels") or 0
    return request, request + math.ceil(
        AT_ONCE * _BYTES_A_PIXEL * pixels / _GIB
    )
