"""Tests of a model on a server, asked as one that is loaded."""

import threading

import numpy as np
import pytest
from werkzeug.serving import WSGIRequestHandler, make_server

from tbnets.errors import InputError, UnreachableError
from tbnets.extras.server import client
from tbnets.extras.server.client import Client
from tbnets.extras.server.grpc_service import GrpcServer
from tbnets.extras.server.models import Models
from tbnets.extras.server.stand_in import RestService
from tbnets.serving.protocol import RequestError
from tests import tiny_localizer
from tests.extras.server.tiny_models import write_version
from tests.refusals import refused

BOXES = [*tiny_localizer.BOXES.values()]
SCHEMES = ["http", "grpc"]


class Silent(WSGIRequestHandler):
    def log(self, *_):
        pass


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("served")
    tiny_localizer.write_photo(folder / "photo.png")
    tiny_localizer.write_model(folder / "colours" / "1")
    write_version(folder / "numbers", 3)
    return folder


@pytest.fixture(scope="module")
def models(folder):
    models = Models(
        {name: folder / name for name in ("colours", "numbers")},
        tell=lambda line: None,
    )
    models.start()
    yield models
    models.close()


@pytest.fixture(scope="module")
def servers(models):
    """Scheme -> address of a server of both models."""
    pytest.importorskip("tensorflow_serving")
    rest = make_server(
        *("127.0.0.1", 0, RestService(models)),
        threaded=True,
        request_handler=Silent,
    )
    thread = threading.Thread(target=rest.serve_forever, args=(0.01,))
    thread.start()
    grpc = GrpcServer(models)
    ports = {"http": rest.server_port, "grpc": grpc.port}
    yield {one: f"{one}://127.0.0.1:{port}" for one, port in ports.items()}
    grpc.close()
    rest.shutdown()
    thread.join()
    rest.server_close()


@pytest.fixture(params=SCHEMES)
def server(request, servers):
    return servers[request.param]


def ask_all(model, photo):
    """Returns what a model answers to questions of each kind."""
    strict = {"image_bytes": photo, "phrases": ["red"], "boxes": BOXES}
    return [
        model.embed_phrases(["red", "blue and red"]),
        model.embed_phrases([]),
        model.embed_regions(np.eye(3)),
        model.similarity(["red"], [[200, 0, 0], [0, 0, 9]]),
        model.compare(np.eye(3), np.eye(3)),
        model.localize(["red", "blue"], photo, BOXES),
        model.find(["red"], photo, boxes=BOXES)[0][0][0],
        model.call("localize_strict", **strict)["similarities"],
    ]


@pytest.fixture(scope="module")
def answers(models, folder):
    """Returns what the loaded model answers."""
    with models.using("colours") as version:
        return ask_all(version.served, folder / "photo.png")


def test_it_answers_as_the_model_at_hand(server, folder, models, answers):
    photo, same = folder / "photo.png", folder / "colours"
    with (
        models.using("colours") as version,
        Client(server, "colours", folder=same, timeout=300) as there,
    ):
        here = version.served
        assert there.signatures.keys() == here.signatures.keys()
        for name in here.signatures:
            assert there.inputs(name) == here.inputs(name)
        assert there.embedding_dim == 3 and there.takes_photos
        assert "red" in there.vocabulary.words
        for found, wanted in zip(ask_all(there, photo), answers, strict=True):
            assert found.shape == wanted.shape and found.dtype == wanted.dtype
            np.testing.assert_allclose(found, wanted, atol=1e-6)
        with pytest.raises(InputError, match="18 bytes"):
            there.localize(["red"], b"no photo, no photo", BOXES)


def test_many_rows_are_asked_in_batches(server, monkeypatch):
    rows = np.arange(10.0).reshape(5, 2)
    asked = []
    for kind in (client.GrpcChannel, client.RestChannel):
        monkeypatch.setattr(
            *(kind, "predict"),
            lambda *given, ask=kind.predict, **more: (
                asked.append(given) or ask(*given, **more)
            ),
        )
    with Client(server, "numbers", batch_size=2) as model:
        found = model.call("times", numbers=rows)
        assert [len(inputs["numbers"]) for *_, inputs, _ in asked] == [2, 2, 1]
        np.testing.assert_array_equal(found["products"], 3 * rows)
        np.testing.assert_array_equal(found["sums"], 3 * rows.sum(1))
        found = model.call("pairs", first=[1, 2, 3], second=[4])["sums"]
        np.testing.assert_array_equal(found, [[5], [6], [7]])


def test_parts_are_of_rows_and_bytes():
    def sizes(rows, *limits):
        return [len(one) for one in client.parts_of(np.array(rows), *limits)]

    assert sizes(np.zeros([5, 2]), 2) == [2, 2, 1]
    assert sizes([], 2) == []
    rows = np.array([b"four", b"", b"sixsix", b"x", b"12345678", b"x"], object)
    assert sizes(rows, 9, 5) == [2, 1, 1, 1, 1]


def test_a_version_is_asked_by_its_number(server):
    for version, times in ((None, 3), (3, 3)):
        model = Client(server, "numbers", version)
        assert model.call("times", numbers=[[1, 1]])["sums"] == [2 * times]
    assert Client.at(f"{server}/numbers/3").path == f"{server}/numbers"
    states = [(one["version"], one["state"]) for one in model.states()]
    assert states == [("3", "AVAILABLE")]
    for ask in (
        lambda: Client(server, "numbers", 7),
        lambda: Client.at(f"{server}/numbers/0"),
    ):
        with refused("model"):
            ask()
    with refused("model"):
        Client(server, "none")


def test_what_a_server_refuses_is_told_at_once(server, monkeypatch):
    monkeypatch.setattr(client.time, "sleep", None)
    model = Client(server, "numbers")
    with pytest.raises(InputError):
        model.call("times", numbers=[[-1, 1]])


@pytest.mark.parametrize("scheme", SCHEMES)
def test_another_server_is_told_by_what_it_is_not(servers, scheme):
    port = servers[scheme].rpartition(":")[2]
    [other] = {*SCHEMES} - {scheme}
    with refused("server", kind=UnreachableError):
        Client(f"{other}://127.0.0.1:{port}", "numbers")
    with pytest.raises(UnreachableError):
        Client(f"{scheme}://127.0.0.1:1", "numbers", retries=0)


@pytest.mark.parametrize(
    "server",
    [
        *("localhost:8500", "ftp://x", "ftp://x:8501", "://x:1"),
        *("http://", "http://x:y", "grpc://x/m"),
    ],
)
def test_what_is_no_address_is_refused(server):
    with refused("server"):
        Client(server, "numbers")


def test_the_usual_ports_need_not_be_named(monkeypatch):
    opened = []
    for name in ("GrpcChannel", "RestChannel"):
        monkeypatch.setattr(client, name, lambda at, *_: opened.append(at))
    for server in ("grpc://a", "http://a/", "https://a", "grpc://[::1]:7"):
        client.open_channel(server, "numbers")
    assert opened == ["a:8500", "http://a:8501", "https://a:443", "[::1]:7"]
    client.open_channel("http://a:0", "numbers")
    assert opened[-1] == "http://a:0"


class Failing:
    """A channel that fails some times, then has no signatures."""

    predict = None

    def __init__(self, *codes):
        self.codes, self.waited = [*codes], []

    def signatures(self, timeout):
        self.waited.append(timeout)
        if self.codes:
            raise RequestError(self.codes.pop(0), "it says so")
        return {}


@pytest.mark.parametrize(
    "codes, timeout, asked, error",
    [
        (["UNAVAILABLE"] * 3, 30, 4, None),
        (["UNAVAILABLE"] * 4, 30, 4, UnreachableError),
        (["UNAVAILABLE"] * 4, 0.35, 2, UnreachableError),
        (["UNAVAILABLE", "DEADLINE_EXCEEDED"], 30, 2, UnreachableError),
        (["INTERNAL"], 30, 1, InputError),
    ],
)
def test_only_what_is_not_available_is_asked_again(
    monkeypatch, codes, timeout, asked, error
):
    channel, now = Failing(*codes), [0.0]

    def sleep(seconds):
        now[0] += seconds

    monkeypatch.setattr(client, "open_channel", lambda *_: channel)
    monkeypatch.setattr(client.time, "sleep", sleep)
    monkeypatch.setattr(client.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(client.random, "uniform", lambda low, high: high)
    if error:
        with pytest.raises(error):
            Client("http://a", "numbers", timeout=timeout)
    else:
        assert Client("http://a", "numbers", timeout=timeout).signatures == {}
    # After 0.2, 0.4 and 0.8 seconds, within the one time that all have.
    waited = [timeout - one for one in (0, 0.2, 0.6, 1.4)]
    assert channel.waited == pytest.approx(waited[:asked])
