"""Calls a model on a server through the same methods as a loaded model."""

import base64
import functools
import http.client
import json
import random
import time
import urllib.parse

import grpc
import numpy as np
import requests
import tensorflow as tf
from google.protobuf import json_format
from tensorflow.core.protobuf import meta_graph_pb2

from tbnets.checks import Path, checked_number, short_repr
from tbnets.errors import InputError, UnreachableError
from tbnets.extras.server import json_tensors
from tbnets.serving import export, saved_files, zoo
from tbnets.serving.confidence import load_confidence
from tbnets.serving.protocol import (
    HTTP_STATUS,
    RequestError,
    api,
    as_dict,
    to_numpy,
    to_proto,
)
from tbnets.serving.served import Served

# Channels for gRPC and REST have the same three methods. A channel sends a
# request once, and raises a `RequestError` if it fails. `Client` retries, and
# converts the error to a message for the user.

PORTS = {"grpc": 8500, "http": 8501, "https": 443}
"""Maps the scheme of an address to its default port."""
OTHER_PROTOCOL = "OTHER_PROTOCOL"
"""Code of a `RequestError` if the server uses a different protocol."""
_CODES = {status: code for code, status in reversed(HTTP_STATUS.items())}
_OPTIONS = [
    ("grpc.max_receive_message_length", -1),
    ("grpc.max_send_message_length", -1),
    # Until a channel reconnects, all its requests fail.
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1000),
]


def open_channel(server, model, version=None):
    """Returns a channel to a server, without sending a request.

    `server` is `grpc://HOST:PORT`, which needs the `serving` extra,
    `http://HOST:PORT` or `https://HOST:PORT`. `version` is None for the newest.
    Raises ValueError if the address is invalid.
    """
    try:
        parts = urllib.parse.urlsplit(server)
        usual = PORTS[parts.scheme]
        port = usual if parts.port is None else parts.port
        is_address = parts.hostname and not parts.path.strip("/")
    except (ValueError, KeyError):
        is_address = False
    if not is_address:
        raise InputError(
            "server",
            "be grpc://HOST:PORT or http://HOST:PORT",
            f"server={server}",
            "TensorFlow Serving has gRPC on port 8500 and REST on 8501.",
        )
    host = parts.netloc.removesuffix(f":{parts.port}").removesuffix(":")
    if parts.scheme == "grpc":
        return GrpcChannel(f"{host}:{port}", model, version)
    return RestChannel(f"{parts.scheme}://{host}:{port}", model, version)


class GrpcChannel:
    """Calls a model on the server at `HOST:PORT` over gRPC."""

    def __init__(self, address, model, version):
        self._channel = grpc.insecure_channel(address, _OPTIONS)
        predictions = api("prediction_service_pb2_grpc")
        models = api("model_service_pb2_grpc")
        self._predictions = predictions.PredictionServiceStub(self._channel)
        self._models = models.ModelServiceStub(self._channel)
        self._spec = api("model_pb2").ModelSpec(name=model)
        if version is not None:
            self._spec.version.value = version

    def close(self):
        """Closes the connection."""
        self._channel.close()

    def signatures(self, timeout):
        """Returns the `SignatureDef`s of the model, by name."""
        messages = api("get_model_metadata_pb2")
        request = messages.GetModelMetadataRequest(
            model_spec=self._spec, metadata_field=["signature_def"]
        )
        answer = _by_grpc(self._predictions.GetModelMetadata, request, timeout)
        definitions = messages.SignatureDefMap()
        answer.metadata["signature_def"].Unpack(definitions)
        return dict(definitions.signature_def)

    def states(self, timeout):
        """Returns the states of all versions as JSON values."""
        messages = api("get_model_status_pb2")
        request = messages.GetModelStatusRequest(model_spec=self._spec)
        answer = _by_grpc(self._models.GetModelStatus, request, timeout)
        return list(map(as_dict, answer.model_version_status))

    def predict(self, signature, inputs, outputs, timeout):
        """Calls a signature and returns the output arrays, by name.

        Strings in `inputs` are bytes. `outputs` maps names to `tf.TensorSpec`s.
        `timeout` is in seconds.
        """
        request = api("predict_pb2").PredictRequest(model_spec=self._spec)
        request.model_spec.signature_name = signature
        for name, array in inputs.items():
            request.inputs[name].CopyFrom(to_proto(array))
        answer = _by_grpc(self._predictions.Predict, request, timeout)
        return {name: tf.make_ndarray(answer.outputs[name]) for name in outputs}


def _by_grpc(method, request, timeout):
    try:
        return method(request, timeout=timeout)
    except grpc.RpcError as error:
        code, words = error.code().name, error.details() or ""
        if code == "UNAVAILABLE" and "HTTP/2" in words:
            code = OTHER_PROTOCOL
        raise RequestError(code, words) from error


class RestChannel:
    """Calls a model on the server at `http://HOST:PORT` over REST."""

    def __init__(self, address, model, version):
        self._url = f"{address}/v1/models/{urllib.parse.quote(model, '')}"
        if version is not None:
            self._url += f"/versions/{version}"
        self._connections = requests.Session()

    def close(self):
        """Closes the connections."""
        self._connections.close()

    def signatures(self, timeout):
        """Returns the `SignatureDef`s of the model, by name."""
        metadata = self._ask("get", "/metadata", timeout, "metadata")
        metadata = metadata["signature_def"]["signature_def"]
        return {
            name: json_format.ParseDict(
                d, meta_graph_pb2.SignatureDef(), ignore_unknown_fields=True
            )
            for name, d in metadata.items()
        }

    def states(self, timeout):
        """Returns the states of all versions as JSON values."""
        return self._ask("get", "", timeout, "model_version_status")

    def predict(self, signature, inputs, outputs, timeout):
        """Calls a signature, like `GrpcChannel.predict`."""
        columns = {n: _to_json(n, x) for n, x in inputs.items()}
        question = {"signature_name": signature, "inputs": columns}
        body = json.dumps(question).encode()
        values = self._ask("post", ":predict", timeout, "outputs", body)
        values = dict.fromkeys(outputs, values) if len(outputs) == 1 else values
        return {k: _of_json(values[k], spec) for k, spec in outputs.items()}

    def _ask(self, method, path, timeout, key, body=None):
        try:
            answer = self._connections.request(
                method, self._url + path, data=body, timeout=timeout
            )
        except requests.Timeout as error:
            raise RequestError("DEADLINE_EXCEEDED", str(error)) from error
        except requests.RequestException as error:
            reason = error.args[0] if error.args else error
            details = getattr(reason, "args", ())
            if details and isinstance(details[-1], http.client.BadStatusLine):
                raise RequestError(OTHER_PROTOCOL, "not HTTP") from error
            why = str(getattr(reason, "reason", reason)).rpartition(": ")[2]
            raise RequestError("UNAVAILABLE", why) from error
        try:
            # TensorFlow Serving may send strings that are not valid UTF-8.
            text = answer.content.decode("utf-8", "surrogateescape")
            content = json.loads(text)
            part = content[key] if answer.ok else content["error"]
        except (LookupError, TypeError, ValueError) as error:
            raise RequestError(
                OTHER_PROTOCOL, "an unknown HTTP response"
            ) from error
        if answer.ok:
            return part
        raise RequestError(_CODES.get(answer.status_code, "UNKNOWN"), str(part))


def _to_json(name, array):
    if array.ndim > 1 and not array.size:
        raise InputError(
            name,
            "have a row, because empty JSON has no shape",
            f"shape={array.shape}",
            "Use gRPC, or skip the request.",
        )
    return json_tensors.nested_lists(name, array)


def _of_json(value, spec):
    if spec.dtype == tf.string:
        value = np.frompyfunc(_to_bytes, 1, 1)(np.array(value, object))
    array = np.array(value, spec.dtype.as_numpy_dtype)
    if array.size or array.ndim == spec.shape.rank:
        return array
    return array.reshape([size or 0 for size in spec.shape])


def _to_bytes(value):
    if isinstance(value, dict):
        return base64.b64decode(value["b64"])
    return value.encode("utf-8", "surrogateescape")


BATCH_SIZE = 32
"""Maximum number of rows in a request to a server that uses this package's
settings."""
MOST_BYTES = 2**24
"""Maximum size in bytes of a request with more than one row."""
PAUSE = 0.2
"""Seconds before the first retry. Each pause is twice as long as the previous
one."""
_AWAY = ("UNAVAILABLE", OTHER_PROTOCOL, "DEADLINE_EXCEEDED")


class Client(Served):
    """A model on a server, with the methods of `Served`.

    Args:
        server: `grpc://HOST:PORT`, which needs the `serving` extra, or
            `http://HOST:PORT`.
        model: name of the model on the server.
        version: number of the version; None for the newest at each request.
        folder: folder of the SavedModel, from which the vocabulary and the
            settings for proposing boxes are read; None for the zoo model named
            `model`, if there is one.
        timeout: maximum time in seconds to wait for a result, including
            retries.
        retries: number of retries if the server is unavailable.
        batch_size: maximum number of rows in a request. Larger inputs are split
            into several requests.

    Raises:
        ConnectionError: the server does not respond.
        ValueError: the server has no such model, or an argument is invalid.

    Example:
        with tbnets.Client("grpc://localhost:8500", "flickr8k_photos") as model:
            model.search(["a dog in the snow"], "photos")
    """

    def __init__(
        self,
        server: str,
        model: str,
        version: int | None = None,
        *,
        folder: Path | None = None,
        timeout: float = 30,
        retries: int = 3,
        batch_size: int = BATCH_SIZE,
    ) -> None:
        self.server, self.model = server, model
        self.timeout = checked_number("timeout", timeout, 0, above=True)
        self.retries = checked_number("retries", retries, 0, whole=True)
        self.batch_size = checked_number(
            "batch_size", batch_size, 1, whole=True
        )
        self._channel = open_channel(server, model, version)
        definitions = self._patiently(self._channel.signatures)
        ask = functools.partial(self._patiently, self._channel.predict)
        signatures = {
            name: Signature(functools.partial(ask, name), d, batch_size)
            for name, d in definitions.items()
            if not name.startswith("__")
        }
        if folder is None and model in zoo.names():
            folder = zoo.folder() / model
        metadata, vocabulary = {}, None
        if folder is not None:
            folder = saved_files.newest_version(folder)
            metadata = saved_files.read_metadata(folder)
            vocabulary = saved_files.read_vocabulary(folder)
        super().__init__("", signatures, metadata, vocabulary)
        if folder is not None:
            self.confidence = load_confidence(folder, self.embedding_dim)
        self.path = f"{server}/{model}"

    __repr__ = short_repr("server", "model", "embedding_dim")

    def __enter__(self) -> "Client":
        return self

    def __exit__(self, *_) -> None:
        self.close()

    def close(self) -> None:
        """Closes the connection."""
        self._channel.close()

    @classmethod
    def at(cls, address: str) -> "Client":
        """Returns a client for SERVER/MODEL or SERVER/MODEL/VERSION.

        Example:
            Client.at("http://localhost:8501/flickr8k_photos")
        """
        server, _, path = address.partition("://")
        host, _, path = path.partition("/")
        model, _, version = path.strip("/").partition("/")
        if not model or not (version or "0").isdecimal():
            raise InputError(
                "model",
                "be SERVER/MODEL or SERVER/MODEL/VERSION",
                f"model={address}",
                "Write for example http://localhost:8501/flickr8k_photos.",
            )
        number = int(version) if version else None
        return cls(f"{server}://{host}", model, number)

    def states(self) -> list[dict]:
        """Returns the states of the versions on the server.

        Returns:
            list of dicts with "version", "state" (START, LOADING, AVAILABLE,
            UNLOADING or END) and "status", which describes an error.
        """
        return self._patiently(self._channel.states)

    def _patiently(self, question, *arguments):
        until = time.monotonic() + self.timeout
        for attempt in range(self.retries + 1):
            seconds = until - time.monotonic()
            try:
                return question(*arguments, timeout=seconds)
            except RequestError as failure:
                pause = PAUSE * 2**attempt * random.uniform(0.5, 1)
                is_last = attempt == self.retries or pause >= seconds
                if failure.code != "UNAVAILABLE" or is_last:
                    raise self._error(failure) from failure
                time.sleep(pause)

    def _error(self, failure):
        words = str(failure).rpartition("last error: ")[2].split("[[{{")[0]
        words = " ".join(words.split())[:400].rstrip(".")
        at = f"Received: server={self.server}"
        messages = {
            "UNAVAILABLE": (
                f"`server` must be a running server. {at}, which "
                f"is not available ({words}). Start it (python "
                "tools/serve.py), or correct the address."
            ),
            OTHER_PROTOCOL: "`server` must begin with http:// for REST, or "
            f"grpc:// for gRPC. {at}, which uses another protocol ({words}). "
            "By default TensorFlow Serving has gRPC on port 8500 and REST on "
            "8501.",
            "DEADLINE_EXCEEDED": "`timeout` must be long enough for a "
            f"response. Received: timeout={self.timeout:g} seconds, batch_size="
            f"{self.batch_size}, and {self.server} did not respond. Increase "
            "the timeout, or reduce the batch size.",
            "NOT_FOUND": (
                "`model` must be a served model. Received: "
                f"model={self.model} at {self.server} ({words}). "
                "Name another model."
            ),
        }
        default = (
            f"{self.model} at {self.server} failed: {words} ({failure.code}). "
            "Change the request, or see the server's log."
        )
        kind = UnreachableError if failure.code in _AWAY else InputError
        return kind(messages.get(failure.code, default))


class Signature:
    """A signature of a model on a server, called like a concrete function.

    Inputs are split into batches of at most `batch_size` rows if the rows are
    independent. `ask` calls a channel's `predict` for this signature, and
    `definition` is a `SignatureDef`.
    """

    def __init__(self, ask, definition, batch_size):
        self._ask, self._batch_size = ask, batch_size
        self.structured_input_signature = (), _specs(definition.inputs)
        self.structured_outputs = _specs(definition.outputs)
        self._is_by_rows = export.is_batchable(export.describe_signature(self))

    def __call__(self, **inputs):
        """Returns the output tensors, by name."""
        arrays = {name: to_numpy(tensor) for name, tensor in inputs.items()}
        outputs = self.structured_outputs
        if not self._is_by_rows:
            results = self._ask(arrays, outputs)
            return {name: tf.constant(x) for name, x in results.items()}
        [(name, rows)] = arrays.items()
        results = [
            self._ask({name: part}, outputs)
            for part in parts_of(rows, self._batch_size)
        ]
        return {
            name: tf.concat([_none(spec), *(x[name] for x in results)], 0)
            for name, spec in outputs.items()
        }


def _specs(definitions):
    return {
        name: tf.TensorSpec(
            tf.TensorShape(info.tensor_shape), tf.as_dtype(info.dtype), name
        )
        for name, info in sorted(definitions.items())
    }


def _none(spec):
    return tf.zeros([size or 0 for size in spec.shape], spec.dtype)


def parts_of(rows, most, most_bytes=MOST_BYTES):
    """Yields batches of an array's rows. Strings in the array must be bytes.

    A batch has at most `most` rows and `most_bytes` bytes, unless it has a
    single row.
    """
    start = size = 0
    for stop, row in enumerate(rows):
        row_bytes = len(row) if isinstance(row, bytes) else row.nbytes
        if stop - start == most or (size and size + row_bytes > most_bytes):
            yield rows[start:stop]
            start, size = stop, 0
        size += row_bytes
    if len(rows):
        yield rows[start:]
