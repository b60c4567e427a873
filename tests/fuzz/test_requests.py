"""Malformed requests to the graphs of models, and to a server.

Each is rejected with a reason or answered with finite numbers, and the next
good request is answered as before, bit for bit.
"""

import functools
import json
from typing import NamedTuple

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given
from werkzeug.test import Client

from tbnets.extras.server.models import Models
from tbnets.extras.server.rest import rest_app, to_json
from tbnets.serving import protocol, zoo
from tests.fuzz import requests
from tests.fuzz.damage import damaged
from tests.fuzz.long import IS_LONG
from tests.fuzz.reader import limited

MODELS = ("scenes_localization", "scenes_embedding", "scenes_hm_lstm")
if not IS_LONG:
    MODELS = MODELS[:1]
TEXT = "embed_phrases"  # A signature of the first model.
MEMORY = 2**30
PATIENCE = 20


class Reply(NamedTuple):
    """A response: whether it is an error, and its outputs or its message."""

    is_error: bool
    outputs: object


class Session:
    """Calls a graph like a C++ server, without checks in Python."""

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
        """Returns the `Reply` of a signature to a dict of arrays."""
        key = (signature, *sorted(inputs))
        outputs = self._signatures[signature].outputs
        try:
            if key not in self._callables:  # Making one optimises the graph.
                self._callables[key] = self._callable(*key)
            answers = self._callables[key](*map(inputs.get, key[1:]))
        except (tf.errors.OpError, ValueError):
            return Reply(True, "rejected by the graph")
        return Reply(False, dict(zip(sorted(outputs), map(np.array, answers))))

    def _callable(self, signature, *inputs):
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


class Rest:
    """Calls a model over REST. `app` is the WSGI application."""

    def __init__(self, app, model):
        self.model, self._client = model, Client(app)

    def content(self, signature, inputs):
        """Returns the JSON body of a request."""
        columns = {
            name: to_json(array.real, name == "image_bytes")
            for name, array in inputs.items()
        }
        document = {"signature_name": signature, "inputs": columns}
        return json.dumps(document).encode()

    def send(self, body):
        """Sends a body; returns the `Reply`."""
        answer = self._client.post(
            f"/v1/models/{self.model}:predict", data=body
        )
        assert answer.status_code in (200, 400, 413), answer.json
        key = "outputs" if answer.status_code == 200 else "error"
        return Reply(key == "error", answer.json[key])

    def ask(self, signature, inputs):
        """Returns the `Reply` of a signature to a dict of arrays."""
        return self.send(self.content(signature, inputs))


@pytest.fixture(scope="module")
def served():
    """Returns `Models` of the zoo."""
    folders = {name: zoo.folder() / name for name in MODELS}
    models = Models(folders, tell=lambda line: None)
    models.start()
    yield models
    models.close()


@pytest.fixture(scope="module", params=["session", "REST"])
def ways(request, served):
    """Returns a dict: model -> object that calls the model."""
    if request.param == "session":
        return {name: Session(name) for name in MODELS}
    app = rest_app(served)
    return {name: Rest(app, name) for name in MODELS}


def check(way, signature, send, wanted=""):
    """Sends a malformed request, and then a good request.

    `send` returns the `Reply` to the malformed request. `wanted` is "refused",
    "answered", or "" if both may be right.
    """
    before = good_reply(way, signature)
    with limited(PATIENCE, MEMORY):
        reply = send()
    again = way.ask(signature, requests.good(way.model, signature))
    np.testing.assert_equal(again.outputs, before.outputs)
    if not reply.is_error:
        assert wanted != "refused", reply
        is_named = isinstance(reply.outputs, dict)
        for value in reply.outputs.values() if is_named else [reply.outputs]:
            array = np.asarray(value)
            assert array.dtype.kind != "f" or np.isfinite(array).all()
        return
    assert wanted != "answered", reply
    internals = ("Traceback", 'File "', "{{node")
    assert not any(word in reply.outputs for word in internals), reply


@functools.cache
def good_reply(way, signature):
    reply = way.ask(signature, requests.good(way.model, signature))
    assert not reply.is_error, reply
    return reply


@pytest.mark.parametrize("model", MODELS)
def test_malformed_tensors_do_not_harm_the_next_request(ways, model):
    way = ways[model]

    @given(requests.malformed(model))
    def is_harmless(malformed):
        signature, changed, inputs = malformed
        wanted = ""  # A graph may accept more than a server.
        if isinstance(way, Rest):
            wanted = requests.wanted(model, signature, changed, inputs)
        check(way, signature, lambda: way.ask(signature, inputs), wanted)

    is_harmless()


def test_damaged_json_does_not_harm_the_next_request(served):
    way = Rest(rest_app(served), MODELS[0])
    content = way.content(TEXT, requests.good(MODELS[0], TEXT))

    @given(damaged(content))
    def is_harmless(content):
        wanted = "" if _is_json(content) else "refused"
        check(way, TEXT, lambda: way.send(content), wanted)

    is_harmless()


def _is_json(content):
    try:
        json.loads(content)
    except (ValueError, RecursionError):
        return False
    return True


def test_damaged_protobuf_tensors_are_rejected_or_valid():
    pytest.importorskip("tensorflow_serving")
    from google.protobuf.message import DecodeError
    from tensorflow.core.framework.tensor_pb2 import TensorProto

    rows = np.arange(6, dtype=np.float32).reshape(2, 3)
    for array in (rows, np.array([b"a dog", b"", b"\xff"], object)):

        @given(damaged(protocol.to_proto(array).SerializeToString()))
        def is_harmless(content):
            with limited(PATIENCE, MEMORY):
                try:
                    proto = TensorProto.FromString(content)
                    value = protocol.to_array("x", proto)
                except (DecodeError, protocol.RequestError):
                    return
            assert value.nbytes <= protocol.MOST_BYTES

        is_harmless()
