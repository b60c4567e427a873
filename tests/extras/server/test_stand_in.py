"""The stand-in: both protocols at once, new versions under load, its end."""

import json
import shutil
import socket
import threading
import time
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from tbnets.extras.server.batching import Batching
from tbnets.extras.server.models import Models
from tbnets.extras.server.stand_in import StandIn
from tbnets.serving import protocol
from tests.refusals import refused

grpc = pytest.importorskip("grpc")
pytest.importorskip("tensorflow_serving")

ROWS = np.ones([1, 2], np.float32)


@pytest.fixture
def folder(versions, tmp_path):
    shutil.copytree(versions / "1", tmp_path / "tiny" / "1")
    return tmp_path / "tiny"


def open_stand_in(folder, told, **more):
    models = Models(
        {"tiny": folder}, poll_seconds=0.02, tell=told.append, **more
    )
    return StandIn(models, port=0, rest_port=0, tell=told.append)


def by_rest(server):
    """Asks `times` of a row of ones; returns the first number."""
    url = f"http://127.0.0.1:{server.rest_port}/v1/models/tiny:predict"
    body = json.dumps({"instances": ROWS.tolist()}).encode()
    with urllib.request.urlopen(url, body, timeout=30) as answer:
        return json.load(answer)["predictions"][0]["products"][0]


def by_grpc(server, channel):
    """Asks the same."""
    stubs = protocol.api("prediction_service_pb2_grpc")
    request = protocol.api("predict_pb2").PredictRequest()
    request.model_spec.name = "tiny"
    request.inputs["numbers"].CopyFrom(protocol.to_proto(ROWS))
    stub = stubs.PredictionServiceStub(channel)
    answer = stub.Predict(request, timeout=30)
    found = protocol.to_array("products", answer.outputs["products"])[0, 0]
    assert answer.model_spec.version.value == found
    return found


def put(source, target):
    """Puts a version where a server looks, at once."""
    hidden = target.with_name(f".{target.name}")
    shutil.copytree(source, hidden)
    hidden.rename(target)


def test_versions_swap_under_load_without_a_failed_request(versions, folder):
    batching = Batching(max_batch_size=4)
    told, found, ended = [], [], threading.Event()

    def client(ask, *more):
        while not ended.is_set():
            found.append(ask(server, *more))

    def wait(line):
        end = time.monotonic() + 30
        while not any(line in one for one in told):
            assert time.monotonic() < end, told
            time.sleep(0.01)

    with (
        open_stand_in(folder, told, batching=batching) as server,
        grpc.insecure_channel(f"127.0.0.1:{server.port}") as channel,
        ThreadPoolExecutor(8) as pool,
    ):
        clients = [pool.submit(client, by_rest) for _ in range(4)]
        clients += [pool.submit(client, by_grpc, channel) for _ in range(4)]
        try:
            (folder / "3").mkdir()
            (folder / "3" / "saved_model.pb").write_bytes(b"broken")
            wait("version 3 does not load")
            shutil.rmtree(folder / "3")
            put(versions / "2", folder / "2")
            wait("version 1 has ended")
            shown = len(found)
            while len(found) < shown + 30 and not any(
                one.done() for one in clients
            ):
                time.sleep(0.01)
        finally:
            ended.set()
        for one in clients:
            one.result()  # A request that failed is raised here.
    assert set(found) == {1, 2} and set(found[-20:]) == {2}
    assert not [line for line in told if line.startswith("failed")]


def test_what_is_in_work_is_answered_before_the_end(folder):
    server = open_stand_in(folder, [])
    with server.models.using("tiny") as version:
        slots = version._slots
    held = [slots.acquire(blocking=False) for _ in range(99)]
    with ThreadPoolExecutor(2) as pool:
        channel = grpc.insecure_channel(f"127.0.0.1:{server.port}")
        asked = [
            pool.submit(by_rest, server),
            pool.submit(by_grpc, server, channel),
        ]
        while server.models._requests._value > 62:
            time.sleep(0.01)
        closing = threading.Thread(target=server.close)
        closing.start()
        time.sleep(0.05)
        for _ in range(sum(held)):
            slots.release()
        assert [one.result() for one in asked] == [1, 1]
        closing.join()
        channel.close()
    with pytest.raises(urllib.error.URLError):
        by_rest(server)


def test_rest_sends_away_who_comes_when_all_are_busy(folder, monkeypatch):
    with open_stand_in(folder, []) as server:
        none = threading.BoundedSemaphore(1)
        none.acquire()
        monkeypatch.setattr(server.models, "_requests", none)
        with pytest.raises(urllib.error.HTTPError) as caught:
            by_rest(server)
        with caught.value as answer:
            assert answer.code == 503 and json.load(answer)["error"]
        monkeypatch.undo()
        assert by_rest(server) == 1


def test_an_address_that_is_none_is_answered_without_a_traceback(folder, capfd):
    with open_stand_in(folder, []) as server:
        address = "127.0.0.1", server.rest_port
        with socket.create_connection(address, timeout=30) as opened:
            opened.sendall(b"GET http://[x/ HTTP/1.0\r\n\r\n")
            answer = opened.makefile("rb").read()
    assert b" 400 " in answer.splitlines()[0]
    assert b"<" not in answer
    assert not capfd.readouterr().err


def test_a_model_that_does_not_load_opens_no_port(tmp_path):
    with refused("model"):
        open_stand_in(tmp_path, [])
