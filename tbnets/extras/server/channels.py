"""Two ways to a server, gRPC and REST, with the same three questions.

A channel asks once, and raises a `RequestError` where there is no answer; what
is asked again, and what a user is told, is `client`'s to say.
"""

import base64
import http.client
import json
import urllib.parse

import grpc
import numpy as np
import requests
import tensorflow as tf
from google.protobuf import json_format
from tensorflow.core.protobuf import meta_graph_pb2

from tbnets.errors import InputError
from tbnets.extras.server import json_tensors
from tbnets.serving.protocol import (
    HTTP_STATUS,
    RequestError,
    api,
    as_dict,
    to_proto,
)

PORTS = {"grpc": 8500, "http": 8501, "https": 443}
"""Scheme of an address -> the port that is meant where it names none."""
OTHER_PROTOCOL = "OTHER_PROTOCOL"
"""Code of a `RequestError`: something answers by another protocol."""
_CODES = {status: code for code, status in reversed(HTTP_STATUS.items())}
_OPTIONS = [
    ("grpc.max_receive_message_length", -1),
    ("grpc.max_send_message_length", -1),
    # Until a channel tries again itself it fails whatever is asked.
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1000),
]


def open_channel(server, model, version=None):
    """Returns a channel; nothing is sent yet.

    Args:
        server: `grpc://HOST:PORT`, `http://HOST:PORT` or `https://HOST:PORT`.
        model: name of the model.
        version: its number; None for the newest.

    Raises:
        ValueError: the address is none.
        ImportError: gRPC is asked for, and the extra `serving` is missing.
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
            "`server` must be grpc://HOST:PORT or http://HOST:PORT. Received: "
            f"server={server}. TensorFlow Serving has gRPC at port 8500 and "
            "REST at 8501."
        )
    host = parts.netloc.removesuffix(f":{parts.port}").removesuffix(":")
    if parts.scheme == "grpc":
        return GrpcChannel(f"{host}:{port}", model, version)
    return RestChannel(f"{parts.scheme}://{host}:{port}", model, version)


class GrpcChannel:
    """A model of a server, asked by gRPC.

    Args:
        address: `HOST:PORT`.
        model: see `open_channel`.
        version: see `open_channel`.
    """

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
        """Ends the connection."""
        self._channel.close()

    def signatures(self, timeout):
        """Returns what the model can be asked: name -> `SignatureDef`."""
        messages = api("get_model_metadata_pb2")
        request = messages.GetModelMetadataRequest(
            model_spec=self._spec, metadata_field=["signature_def"]
        )
        answer = _by_grpc(self._predictions.GetModelMetadata, request, timeout)
        found = messages.SignatureDefMap()
        answer.metadata["signature_def"].Unpack(found)
        return dict(found.signature_def)

    def states(self, timeout):
        """Returns the state of each version, as JSON of the protocol has it."""
        messages = api("get_model_status_pb2")
        request = messages.GetModelStatusRequest(model_spec=self._spec)
        answer = _by_grpc(self._models.GetModelStatus, request, timeout)
        return list(map(as_dict, answer.model_version_status))

    def predict(self, signature, inputs, outputs, timeout):
        """Asks a signature.

        Args:
            signature: its name.
            inputs: name -> array, of strings as bytes.
            outputs: name -> `tf.TensorSpec` of what is answered.
            timeout: seconds.

        Returns:
            dict, name of an output -> array.
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
    """A model of a server, asked by REST.

    Args:
        address: `http://HOST:PORT`.
        model: see `open_channel`.
        version: see `open_channel`.
    """

    def __init__(self, address, model, version):
        self._url = f"{address}/v1/models/{urllib.parse.quote(model, '')}"
        if version is not None:
            self._url += f"/versions/{version}"
        self._connections = requests.Session()

    def close(self):
        """Ends the connections."""
        self._connections.close()

    def signatures(self, timeout):
        """Returns what `GrpcChannel.signatures` does."""
        found = self._ask("get", "/metadata", timeout, "metadata")
        found = found["signature_def"]["signature_def"]
        return {
            name: json_format.ParseDict(
                one, meta_graph_pb2.SignatureDef(), ignore_unknown_fields=True
            )
            for name, one in found.items()
        }

    def states(self, timeout):
        """Returns what `GrpcChannel.states` does."""
        return self._ask("get", "", timeout, "model_version_status")

    def predict(self, signature, inputs, outputs, timeout):
        """Asks a signature; see `GrpcChannel.predict`."""
        columns = {name: _to_json(name, one) for name, one in inputs.items()}
        question = {"signature_name": signature, "inputs": columns}
        body = json.dumps(question).encode()
        found = self._ask("post", ":predict", timeout, "outputs", body)
        found = dict.fromkeys(outputs, found) if len(outputs) == 1 else found
        return {k: _of_json(found[k], spec) for k, spec in outputs.items()}

    def _ask(self, method, path, timeout, wanted, body=None):
        """Returns the part of an answer that is wanted."""
        try:
            answer = self._connections.request(
                method, self._url + path, data=body, timeout=timeout
            )
        except requests.Timeout as error:
            raise RequestError("DEADLINE_EXCEEDED", str(error)) from error
        except requests.RequestException as error:
            reason = error.args[0] if error.args else error
            told = getattr(reason, "args", ())
            if told and isinstance(told[-1], http.client.BadStatusLine):
                raise RequestError(OTHER_PROTOCOL, "no HTTP") from error
            why = str(getattr(reason, "reason", reason)).rpartition(": ")[2]
            raise RequestError("UNAVAILABLE", why) from error
        try:
            # Strings of TensorFlow Serving are bytes, and may be no text.
            text = answer.content.decode("utf-8", "surrogateescape")
            found = json.loads(text)
            part = found[wanted] if answer.ok else found["error"]
        except (LookupError, TypeError, ValueError) as error:
            raise RequestError(
                OTHER_PROTOCOL, "HTTP of another kind"
            ) from error
        if answer.ok:
            return part
        raise RequestError(_CODES.get(answer.status_code, "UNKNOWN"), str(part))


def _to_json(name, array):
    """Returns an array as REST takes it."""
    if array.ndim > 1 and not array.size:
        raise InputError(
            f"`{name}` must have a row: JSON tells no shape without. Received: "
            f"shape={array.shape}. Ask by gRPC, or leave the question out."
        )
    return json_tensors.listed(name, array)


def _of_json(value, spec):
    """Returns the array that REST answers with."""
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
