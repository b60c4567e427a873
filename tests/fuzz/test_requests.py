"""Malformed requests of many kinds to a model, and to a server of it.

Each is refused with a reason or answered by finite numbers, and the next good
request is answered as before, bit for bit.
"""

import functools
from concurrent import futures

import numpy as np
import pytest
from hypothesis import event, given
from werkzeug.test import Client

from tbnets.extras.server.batching import Batching
from tbnets.extras.server.models import Models
from tbnets.extras.server.stand_in import RestService
from tbnets.serving import zoo
from tbnets.serving.protocol import MOST_BYTES
from tests.fuzz import messages, requests
from tests.fuzz.damage import damaged
from tests.fuzz.long import IS_LONG
from tests.fuzz.reader import limited

MODELS = ("scenes_localization", "scenes_embedding", "scenes_hm_lstm")
if not IS_LONG:
    MODELS = MODELS[:1]
MEMORY = 2**30
PATIENCE = 20
CODES = {
    *("INVALID_ARGUMENT", "NOT_FOUND", "FAILED_PRECONDITION"),
    *("RESOURCE_EXHAUSTED", "UNIMPLEMENTED", "400", "404", "413"),
}
"""What a client may be told; others are exceptions that nobody expected."""
OF_GRPC = ("INTERNAL", "Exception deserializing request!")
CLIENTS = 8


@pytest.fixture(scope="module")
def ways():
    """Returns (name of a way, model) -> what asks the model in that way.

    A server of this process has the models, and batches requests.
    """
    grpc = pytest.importorskip("grpc")
    pytest.importorskip("tensorflow_serving")
    from tbnets.extras.server.grpc_service import GrpcServer
    from tests.fuzz import wire

    folders = {name: zoo.folder() / name for name in MODELS}
    models = Models(folders, batching=Batching(), tell=lambda line: None)
    models.start()
    server = GrpcServer(models)
    client = Client(RestService(models))
    with grpc.insecure_channel(f"127.0.0.1:{server.port}") as channel:
        ways = {}
        for name in MODELS:
            ways["session", name] = wire.Session(name)
            ways["gRPC", name] = wire.Grpc(channel, name)
            ways["REST", name] = wire.Rest(client, name)
        yield ways
    server.close()
    models.close()


def check(way, signature, send, wanted=""):
    """Sends what is malformed, and then a good request.

    Args:
        way: what asks the model.
        signature: which has a good request.
        send: function -> `wire.Reply` to what is malformed.
        wanted: "refused", "answered", or "" where both may be right.
    """
    before = good_reply(way, signature)
    with limited(PATIENCE, MEMORY):
        reply = send()
    again = way.ask(signature, requests.good(way.model, signature))
    np.testing.assert_equal(again.outputs, before.outputs)
    if reply.code == "OK":
        assert wanted != "refused", reply
        for array in reply.outputs.values():
            is_float = isinstance(array, np.ndarray) and array.dtype.kind == "f"
            assert not is_float or np.isfinite(array).all()
        return
    assert wanted != "answered", reply
    assert reply.code in CODES or reply[:2] == OF_GRPC, reply
    assert reply.told
    of_ours = ("Traceback", 'File "', "{{node")
    assert not any(word in reply.told for word in of_ours), reply


@functools.cache
def good_reply(way, signature):
    reply = way.ask(signature, requests.good(way.model, signature))
    assert reply.code == "OK", reply
    return reply


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("name", ["session", "gRPC", "REST"])
def test_no_malformed_tensor_harms_the_next_request(ways, name, model):
    way = ways[name, model]

    @given(requests.malformed(model))
    def harms_none(malformed):
        signature, changed, inputs = malformed
        wanted = ""  # A graph may take more than a server does.
        if name != "session":
            wanted = requests.wanted(
                model, signature, changed, inputs, name == "REST"
            )
        event(wanted)
        check(way, signature, lambda: way.ask(signature, inputs), wanted)

    harms_none()


@pytest.mark.parametrize("what", messages.MESSAGES)
def test_a_wrong_message_is_refused(ways, what):
    way = ways["gRPC", MODELS[0]]
    content = messages.message(**messages.MESSAGES[what])
    check(way, messages.TEXT, lambda: way.send(content), "refused")


@pytest.mark.parametrize(
    "method, surplus", [("Fly", 0), ("Classify", 0), ("Predict", MOST_BYTES)]
)
def test_another_method_or_a_huge_message_is_refused(ways, method, surplus):
    way, content = ways["gRPC", MODELS[0]], messages.message()
    path = f"/tensorflow.serving.PredictionService/{method}"
    content += b"a" * surplus
    check(way, messages.TEXT, lambda: way.send(content, path), "refused")


@pytest.mark.parametrize("what", messages.DOCUMENTS)
def test_a_wrong_document_is_refused(ways, what):
    way, document = ways["REST", MODELS[0]], messages.DOCUMENTS[what]
    check(way, messages.TEXT, lambda: way.send(document), "refused")


@pytest.mark.parametrize("method, place", messages.PLACES)
def test_a_wrong_place_is_refused(ways, method, place):
    way = ways["REST", MODELS[0]]
    inputs = requests.good(MODELS[0], messages.TEXT)
    body = way.content(messages.TEXT, inputs)
    check(way, messages.TEXT, lambda: way.send(body, place, method), "refused")


@pytest.mark.parametrize(
    "name, is_readable",
    [("gRPC", messages.is_message), ("REST", messages.is_json)],
)
def test_no_damaged_message_harms_the_next_request(ways, name, is_readable):
    way = ways[name, MODELS[0]]
    content = way.content(
        messages.TEXT, requests.good(MODELS[0], messages.TEXT)
    )

    @given(damaged(content))
    def harms_none(content):
        wanted = "" if is_readable(content) else "refused"
        check(way, messages.TEXT, lambda: way.send(content), wanted)

    harms_none()


def test_a_bad_row_fails_alone_among_those_of_others(ways):
    way, signature = ways["gRPC", MODELS[0]], messages.NUMBERS
    good = requests.good(MODELS[0], signature)
    bad = {name: np.full_like(rows[:1], np.nan) for name, rows in good.items()}
    expected = good_reply(way, signature).outputs["embeddings"]
    asked = [bad, *[good] * (CLIENTS - 1)]
    with futures.ThreadPoolExecutor(CLIENTS) as pool:
        for _ in range(3):
            replies = pool.map(lambda inputs: way.ask(signature, inputs), asked)
            first, *rest = replies
            assert first.code == "INVALID_ARGUMENT"
            for reply in rest:
                found = reply.outputs["embeddings"]
                np.testing.assert_allclose(found, expected, atol=1e-5)
