"""Tests of a server with both protocols: swapped versions, ports, the end."""

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
import tensorflow as tf

from tbnets.cli.serve import serving
from tbnets.errors import InputError
from tbnets.extras.server import models as models_module
from tbnets.extras.server.models import Models, Version
from tbnets.serving import protocol
from tbnets.serving.protocol import WARMUP_FILE, RequestError
from tests.refusals import refused

grpc = pytest.importorskip("grpc")
pytest.importorskip("tensorflow_serving")

ONES = np.ones([1, 2], np.float32)


@pytest.fixture
def folder(versions, tmp_path):
    shutil.copytree(versions / "1", tmp_path / "tiny" / "1")
    return tmp_path / "tiny"


def models_of(folder, lines=None, poll_seconds=0.02):
    tell = [].append if lines is None else lines.append
    return Models({"tiny": folder}, poll_seconds=poll_seconds, tell=tell)


def by_rest(port):
    """Calls `times` with ones over REST; returns the first product."""
    url = f"http://127.0.0.1:{port}/v1/models/tiny:predict"
    body = json.dumps({"instances": ONES.tolist()}).encode()
    with urllib.request.urlopen(url, body, timeout=30) as answer:
        return json.load(answer)["predictions"][0]["products"][0]


def request_of(array=ONES, signature="times", **spec):
    request = protocol.api("predict_pb2").PredictRequest()
    request.model_spec.name = spec.get("name", "tiny")
    request.model_spec.signature_name = signature
    if "version" in spec:
        request.model_spec.version.value = spec["version"]
    request.inputs["numbers"].CopyFrom(protocol.to_proto(array))
    return request


def by_grpc(channel, **spec):
    """Calls `times` over gRPC; returns the first product."""
    stubs = protocol.api("prediction_service_pb2_grpc")
    stub = stubs.PredictionServiceStub(channel)
    answer = stub.Predict(request_of(**spec), timeout=30)
    product = protocol.to_array("products", answer.outputs["products"])[0, 0]
    assert answer.model_spec.version.value == product
    return product


def wait_for(line, lines):
    end = time.monotonic() + 120
    while not any(line in x for x in lines):
        assert time.monotonic() < end, lines
        time.sleep(0.01)


def test_a_new_version_under_load_loses_no_request(versions, folder):
    lines, products, ended = [], [], threading.Event()

    def client(ask, where):
        while not ended.is_set():
            products.append(ask(where))

    with (
        serving(models_of(folder, lines)) as (port, rest_port),
        grpc.insecure_channel(f"127.0.0.1:{port}") as channel,
        ThreadPoolExecutor(8) as pool,
    ):
        clients = [pool.submit(client, by_rest, rest_port) for _ in range(4)]
        clients += [pool.submit(client, by_grpc, channel) for _ in range(4)]
        try:
            (folder / "3").mkdir()
            (folder / "3" / "saved_model.pb").write_bytes(b"broken")
            wait_for("version 3 does not load, version 1 serves", lines)
            shutil.rmtree(folder / "3")
            shutil.copytree(versions / "2", folder / ".2")
            (folder / ".2").rename(folder / "2")
            wait_for("version 2 serves", lines)
            count = len(products)
            while len(products) < count + 30 and not any(
                x.done() for x in clients
            ):
                time.sleep(0.01)
        finally:
            ended.set()
        for one in clients:
            one.result()  # Raises the error of a request that failed.
    assert set(products) == {1, 2} and set(products[-20:]) == {2}


@pytest.mark.parametrize("sign", [1, -1])
def test_a_version_must_answer_its_warm_up_requests(versions, tmp_path, sign):
    path = shutil.copytree(versions / "1", tmp_path / "1")
    log = protocol.api("prediction_log_pb2").PredictionLog()
    log.predict_log.request.CopyFrom(request_of(sign * ONES))
    with tf.io.TFRecordWriter(str(path / WARMUP_FILE)) as file:
        file.write(log.SerializeToString())
    if sign == 1:
        assert Version(1, path).number == 1
        return
    with pytest.raises(RequestError, match="`numbers`"):
        Version(1, path)


@pytest.fixture(scope="module")
def channel(versions):
    """Returns a channel to a server of version 2."""
    with (
        serving(models_of(versions)) as (port, _),
        grpc.insecure_channel(f"127.0.0.1:{port}") as channel,
    ):
        yield channel


@pytest.mark.parametrize(
    "spec, code",
    [
        ({"name": "../../etc"}, "NOT_FOUND"),
        ({"version": 7}, "NOT_FOUND"),
        ({"signature": "fly"}, "INVALID_ARGUMENT"),
        ({"array": -ONES}, "INVALID_ARGUMENT"),
        ({"array": ONES[0]}, "INVALID_ARGUMENT"),
        ({"array": ONES.astype(np.int32)}, "INVALID_ARGUMENT"),
        ({"array": np.ones([4097, 2], "f")}, "INVALID_ARGUMENT"),
        ({"array": np.ones([2**24], "f")}, "RESOURCE_EXHAUSTED"),
    ],
)
def test_grpc_rejects_malformed_requests_and_lives(channel, spec, code):
    with pytest.raises(grpc.RpcError) as raised:
        by_grpc(channel, **spec)
    assert raised.value.code().name == code
    assert by_grpc(channel, version=2) == 2


def test_ports_are_opened_before_models_are_loaded(folder, monkeypatch):
    monkeypatch.setattr(models_module, "load_saved_model", None)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        for name, ports in (
            ("rest_api_port", {"rest_port": port}),
            ("port", {"port": port}),
        ):
            with refused(name), serving(models_of(folder), **ports):
                pass


def test_a_folder_without_a_model_is_rejected(tmp_path):
    with pytest.raises((InputError, FileNotFoundError), match="saved_model"):
        models_of(tmp_path).start()
