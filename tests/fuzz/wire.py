"""A server asked by gRPC and REST, also with what is no request.

After each the same good request is sent and must be answered as before, bit
for bit. `wire_kinds` has what is wrong with them.
"""

import json
from typing import NamedTuple

import grpc
import numpy as np

from tbnets.extras.server import json_tensors
from tbnets.serving import protocol
from tests.fuzz import requests

PATIENCE = 20
"""Seconds after which a request counts as one that the server hangs in."""
PREDICT = "/tensorflow.serving.PredictionService/Predict"
_HUGE = 100_000_000


class Reply(NamedTuple):
    """What a server answers.

    Args:
        code: a canonical code; of REST the status.
        told: the error.
        outputs: name -> array, or JSON; None of an error.
    """

    code: str
    told: str
    outputs: object = None


class Wire:
    """Both ways to a server.

    Args:
        channel: of gRPC.
        rest: function of method, path, body -> (status, body).
        specs: model -> signature -> list of `requests.Input`.
        huge: bytes of the largest string that is sent.
    """

    def __init__(self, channel, rest, specs, huge=_HUGE):
        self.channel, self.rest, self.specs = channel, rest, specs
        self.huge = huge

    def good(self, model, signature):
        """Returns the good inputs of a signature."""
        specs = self.specs[model][signature]
        return {spec.name: requests.example(spec) for spec in specs}

    def message(self, model, signature, inputs):
        """Returns the `PredictRequest` of some inputs."""
        request = protocol.api("predict_pb2").PredictRequest()
        request.model_spec.name = model
        request.model_spec.signature_name = signature
        for name, array in inputs.items():
            request.inputs[name].CopyFrom(protocol.to_proto(array))
        return request

    def by_grpc(self, content, method=PREDICT):
        """Sends a message, or bytes that are none; returns the `Reply`."""
        if not isinstance(content, bytes):
            content = content.SerializeToString()
        try:
            answer = self.channel.unary_unary(method)(content, PATIENCE)
        except grpc.RpcError as error:
            return Reply(error.code().name, error.details())
        answer = protocol.api("predict_pb2").PredictResponse.FromString(answer)
        outputs = {
            name: protocol.to_array(name, one)
            for name, one in answer.outputs.items()
        }
        return Reply("OK", "", outputs)

    def by_rest(self, method, path, body):
        """Sends a body, or an object as JSON; returns the `Reply`."""
        if not isinstance(body, bytes):
            body = json.dumps(body).encode()
        status, answer = self.rest(method, path, body)
        answer = json.loads(answer)
        if status == 200:
            return Reply("OK", "", answer)
        return Reply(status, answer["error"])

    def ask(self, wire, model, signature, inputs):
        """Asks a signature; returns the `Reply`."""
        inputs = {
            name: np.array(one, object if isinstance(one, bytes) else None)
            for name, one in inputs.items()
        }
        if wire == "gRPC":
            return self.by_grpc(self.message(model, signature, inputs))
        return self.by_rest("POST", *_rest_of(model, signature, inputs))


def _rest_of(model, signature, inputs):
    """Returns path and document of a request."""
    columns = {
        name: json_tensors.nested_lists(name, _json_like(array))
        for name, array in inputs.items()
    }
    document = {"signature_name": signature, "inputs": columns}
    return f"/v1/models/{model}:predict", document


def _json_like(array):
    return array.real > 0 if array.dtype.kind == "c" else array
