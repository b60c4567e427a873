"""Asks the stand-in while a broken and a new version of its model appear."""

import json
import pathlib
import shutil
import tempfile
import time
import urllib.request
from concurrent.futures import ThreadPoolExecutor

import grpc
import numpy as np

from tbnets.extras.server.models import Models
from tbnets.extras.server.stand_in import StandIn
from tbnets.serving import protocol

CLIENTS = 8
"""Half of them by gRPC, half by REST."""
_CAPTION = "a brown dog runs through the snow"


def run(path, num_requests):
    """Prints how many requests failed, and how long they took.

    After a third of the requests a version appears that is broken, after
    another one a copy of the first.

    Args:
        path: folder of a SavedModel that has `embed_text`.
        num_requests: of all clients together.
    """
    told = []
    with tempfile.TemporaryDirectory() as place:
        folder = pathlib.Path(place, "model")
        shutil.copytree(path, folder / "1")
        models = Models({"model": folder}, tell=told.append)
        with (
            StandIn(models, port=0, rest_port=0) as server,
            grpc.insecure_channel(f"127.0.0.1:{server.port}") as channel,
            ThreadPoolExecutor(CLIENTS) as pool,
        ):
            asks = [_by_grpc(channel), _by_rest(server.rest_port)]

            def ask(number):
                if number == num_requests // 3:
                    _put(path, folder, 2, is_broken=True)
                if number == 2 * num_requests // 3:
                    _put(path, folder, 3)
                return _timed(asks[number % 2])

            found = list(pool.map(ask, range(num_requests)))
    for protocol_name, rows in (("gRPC", found[::2]), ("REST", found[1::2])):
        milliseconds = [1e3 * seconds for _, seconds in rows]
        failed = [error for error, _ in rows if error]
        p50, p99, most = np.percentile(milliseconds, [50, 99, 100])
        print(
            f"{protocol_name}  {len(rows)} requests, {len(failed)} failed, ms "
            f"p50 {p50:.1f} p99 {p99:.1f} most {most:.1f}"
        )
        print(*sorted(set(failed)), sep="\n", end="")
    print(*(line[:78] for line in told), sep="\n")


def _put(path, folder, number, is_broken=False):
    """Puts a version where the server looks, at once."""
    hidden = folder / f".{number}"
    shutil.copytree(path, hidden)
    if is_broken:
        (hidden / "saved_model.pb").write_bytes(b"broken")
    hidden.rename(folder / str(number))


def _timed(ask):
    """Returns ("" or the error, seconds)."""
    start = time.perf_counter()
    try:
        ask()
    except Exception as error:  # Whatever it is, the request failed.
        return f"{type(error).__name__}: {error}", time.perf_counter() - start
    return "", time.perf_counter() - start


def _by_grpc(channel):
    stubs = protocol.api("prediction_service_pb2_grpc")
    request = protocol.api("predict_pb2").PredictRequest()
    request.model_spec.name = "model"
    request.model_spec.signature_name = "embed_text"
    captions = protocol.to_proto(np.array([_CAPTION]))
    request.inputs["captions"].CopyFrom(captions)
    predict = stubs.PredictionServiceStub(channel).Predict
    return lambda: predict(request, timeout=60)


def _by_rest(port):
    url = f"http://127.0.0.1:{port}/v1/models/model:predict"
    asked = {"signature_name": "embed_text", "inputs": {"captions": [_CAPTION]}}
    body = json.dumps(asked).encode()

    def ask():
        with urllib.request.urlopen(url, body, timeout=60) as answer:
            json.load(answer)

    return ask
