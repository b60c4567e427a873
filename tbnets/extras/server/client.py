"""Calls a model on a server through the same methods as a loaded model."""

import pathlib
import urllib.parse

import numpy as np
import requests
import tensorflow as tf
from google.protobuf import json_format
from tensorflow.core.protobuf import meta_graph_pb2

from tbnets.checks import Path
from tbnets.errors import InputError, UnreachableError
from tbnets.extras.server.rest import to_json
from tbnets.serving import export, saved_files, zoo
from tbnets.serving.inputs import IMAGE_BYTES
from tbnets.serving.protocol import to_numpy
from tbnets.serving.served import Served

_MOST_ROWS = 32
"""Maximum number of rows in a request."""
_MOST_BYTES = 2**24
"""Maximum size in bytes of a request with more than one row."""


class Client(Served):
    """A model on a server with TensorFlow Serving's REST API.

    It has the methods of `Served`. The server's newest version responds.

    Args:
        server: `http://HOST:PORT` or `https://HOST:PORT`.
        model: name of the model on the server.
        folder: folder of the SavedModel, from which the vocabulary and the
            settings for proposing boxes are read; None for the zoo model named
            `model`, if there is one.
        timeout: maximum time in seconds to wait for a response.

    Raises:
        ConnectionError: the server does not respond.
        ValueError: the server has no such model, or rejects a request.

    Example:
        model = tbnets.Client("http://localhost:8501", "flickr8k_photos")
        model.search(["a dog in the snow"], "photos")
    """

    def __init__(
        self,
        server: str,
        model: str,
        *,
        folder: Path | None = None,
        timeout: float = 30,
    ) -> None:
        self.url = f"{server}/v1/models/{urllib.parse.quote(model, '')}"
        self.timeout = timeout
        answer = ask(f"{self.url}/metadata", timeout)
        definitions = answer["metadata"]["signature_def"]["signature_def"]
        signatures = {
            name: _Signature(self, name, definition)
            for name, definition in definitions.items()
            if not name.startswith("__")
        }
        folder = pathlib.Path(folder or zoo.folder() / model)
        metadata, vocabulary = {}, None
        if folder.is_dir():
            folder = saved_files.newest_version(folder)
            metadata = saved_files.read_metadata(folder)
            vocabulary = saved_files.read_vocabulary(folder)
        super().__init__("", signatures, metadata, vocabulary)
        self.path = f"{server}/{model}"


def ask(url, timeout, document=None):
    """Returns the JSON object that a server sends.

    `document` is the JSON body of a POST, or None for a GET.
    """
    send = requests.post if document else requests.get
    try:
        answer = send(url, json=document, timeout=timeout)
        content = answer.json()
        error = None if answer.ok else content["error"]
    except (requests.RequestException, LookupError, TypeError) as failure:
        message = f"{url} must be on a running server. Received: {failure}"
        raise UnreachableError(message) from failure
    if answer.ok:
        return content
    raise InputError(f"{url} rejects the request: {error[:400]}")


class _Signature:
    """A signature of a model on a server, called like a concrete function.

    Inputs are split into several requests if the rows are independent.
    """

    def __init__(self, client, name, definition):
        self._client, self._name = client, name
        message = meta_graph_pb2.SignatureDef()
        json_format.ParseDict(definition, message, ignore_unknown_fields=True)
        self.structured_input_signature = (), _specs(message.inputs)
        self.structured_outputs = _specs(message.outputs)
        self._is_by_rows = export.is_batchable(export.describe_signature(self))

    def __call__(self, **inputs):
        """Returns the output tensors, by name."""
        arrays = {name: to_numpy(tensor) for name, tensor in inputs.items()}
        if not self._is_by_rows:
            return self._ask(arrays)
        [(name, rows)] = arrays.items()
        sizes = [len(x) if isinstance(x, bytes) else x.nbytes for x in rows]
        step = max(1, min(_MOST_ROWS, _MOST_BYTES // max(1, *sizes, 1)))
        starts = range(0, max(1, len(rows)), step)
        parts = [self._ask({name: rows[at : at + step]}) for at in starts]
        return {n: tf.concat([x[n] for x in parts], 0) for n in parts[0]}

    def _ask(self, arrays):
        inputs = {n: to_json(x, n == IMAGE_BYTES) for n, x in arrays.items()}
        document = {"signature_name": self._name, "inputs": inputs}
        url = f"{self._client.url}:predict"
        values = ask(url, self._client.timeout, document)["outputs"]
        outputs = self.structured_outputs
        values = dict.fromkeys(outputs, values) if len(outputs) < 2 else values
        return {n: _tensor(values[n], spec) for n, spec in outputs.items()}


def _tensor(value, spec):
    array = np.array(value, spec.dtype.as_numpy_dtype)
    if not array.size:  # JSON has no shape of an empty array.
        array = array.reshape([size or 0 for size in spec.shape])
    return tf.constant(array, spec.dtype)


def _specs(definitions):
    return {
        name: tf.TensorSpec(
            tf.TensorShape(info.tensor_shape), tf.as_dtype(info.dtype), name
        )
        for name, info in sorted(definitions.items())
    }
