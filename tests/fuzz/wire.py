"""Ways to ask a model: its graph as a C++ server does, gRPC and REST."""

import json
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from tbnets.extras.server import json_tensors
from tbnets.serving import protocol, zoo

PATIENCE = 20
"""Seconds after which a request counts as one that the server hangs in."""
PREDICT = "/tensorflow.serving.PredictionService/Predict"


class Reply(NamedTuple):
    """What comes back.

    Args:
        code: a canonical code; of REST the status of an error.
        told: the error.
        outputs: name -> array, or JSON; None of an error.
    """

    code: str
    told: str = ""
    outputs: object = None


class Session:
    """A model in a session: no Python looks at a request before its graph.

    Args:
        model: its name.
    """

    def __init__(self, model):
        self.model = model
        self._session = tf.compat.v1.Session(graph=tf.Graph())
        with self._session.graph.as_default():
            graph = tf.compat.v1.saved_model.load(
                self._session, ["serve"], str(zoo.folder() / model / "1")
            )
        self._signatures = graph.signature_def
        self._callables = {}

    def ask(self, signature, inputs):
        """Returns the `Reply` of a signature to name -> array."""
        key = (signature, *sorted(inputs))
        outputs = self._signatures[signature].outputs
        try:
            if key not in self._callables:  # Making one optimises the graph.
                self._callables[key] = self._callable(*key)
            answers = self._callables[key](*map(inputs.get, key[1:]))
        except (tf.errors.OpError, ValueError):
            return Reply("INVALID_ARGUMENT", "refused by the graph")
        return Reply(
            "OK", "", dict(zip(sorted(outputs), map(np.asarray, answers)))
        )

    def _callable(self, signature, *inputs):
        """Returns a function that takes values of some inputs as they are."""
        from tensorflow.core.protobuf import config_pb2

        known = self._signatures[signature]
        feeds = [
            known.inputs[key].name if key in known.inputs else f"{key}:0"
            for key in inputs
        ]
        fetches = [value.name for _, value in sorted(known.outputs.items())]
        return self._session._make_callable_from_options(
            config_pb2.CallableOptions(feed=feeds, fetch=fetches)
        )


class Server:
    """A model of a server, asked by messages.

    Args:
        way: a `grpc.Channel`, or a `werkzeug.test.Client`.
        model: its name.
    """

    def __init__(self, way, model):
        self.way, self.model = way, model

    def ask(self, signature, inputs):
        """Returns the `Reply` of a signature to name -> array."""
        return self.send(self.content(signature, inputs))


class Grpc(Server):
    """A model asked by gRPC."""

    def content(self, signature, inputs):
        """Returns the bytes of a request of name -> array."""
        request = protocol.api("predict_pb2").PredictRequest()
        request.model_spec.name = self.model
        request.model_spec.signature_name = signature
        for name, array in inputs.items():
            request.inputs[name].CopyFrom(protocol.to_proto(array))
        return request.SerializeToString()

    def send(self, content, method=PREDICT):
        """Sends bytes; returns the `Reply`."""
        import grpc

        try:
            answer = self.way.unary_unary(method)(content, PATIENCE)
        except grpc.RpcError as error:
            return Reply(error.code().name, error.details())
        answer = protocol.api("predict_pb2").PredictResponse.FromString(answer)
        outputs = {
            name: protocol.to_array(name, one)
            for name, one in answer.outputs.items()
        }
        return Reply("OK", "", outputs)


class Rest(Server):
    """A model asked by REST."""

    def content(self, signature, inputs):
        """Returns the JSON of a request of name -> array."""
        columns = {
            name: json_tensors.nested_lists(
                name, array.real > 0 if array.dtype.kind == "c" else array
            )
            for name, array in inputs.items()
        }
        document = {"signature_name": signature, "inputs": columns}
        return json.dumps(document).encode()

    def send(self, body, place="", method="POST"):
        """Sends a body to a place below `/v1/models/`; returns the `Reply`."""
        path = f"/v1/models/{place or f'{self.model}:predict'}"
        answer = self.way.open(path, method=method, data=body)
        outputs = json.loads(answer.data)
        if answer.status_code == 200:
            return Reply("OK", "", outputs)
        return Reply(str(answer.status_code), outputs["error"])
