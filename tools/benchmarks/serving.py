"""Times server requests over gRPC and REST, and direct calls."""

import contextlib
import functools
import http.client
import itertools
import json
import multiprocessing
import time
from concurrent import futures

import grpc
import numpy as np
import tensorflow as tf

from benchmarks import timing
from tbnets.extras.server.batching import Batching
from tbnets.extras.server.models import Models
from tbnets.extras.server.stand_in import StandIn
from tbnets.serving import protocol, zoo

MODEL = "scenes_embedding"
CAPTION = "a small red ball left of a big blue cube"
SIZES, CLIENTS = (1, 8, 32), (1, 8)
TURNS = 5  # Turns of direct calls, gRPC and REST.
STEPS = 5
"""Number of times that the server's memory is printed."""
_HOST = "127.0.0.1"


def run(options):
    """Prints requests per second and latencies, then the server's memory."""
    requests = options.repeats or 500
    model = zoo.open_model(zoo.folder() / MODEL)
    forward = model.signatures["embed_text"]
    print(f"{MODEL}, embed_text: what, rows, clients, requests/s, p50, p99 ms")
    with server() as (pid, port, rest_port):
        by_grpc, by_rest = _grpc(port), functools.partial(_rest, rest_port)
        for size, clients in itertools.product(SIZES, CLIENTS):
            rows = [CAPTION] * size
            ready = tf.constant(rows)
            asks = {
                "bare": functools.partial(forward, captions=ready),
                "gRPC": functools.partial(by_grpc, rows),
                "REST": functools.partial(by_rest, rows),
            }
            _print_rows(size, clients, asks, requests)
        for step in range(STEPS):
            call = functools.partial(by_grpc, [CAPTION])
            _latencies(call, 40 * requests // STEPS, CLIENTS[-1])
            done = 40 * requests * (step + 1) // STEPS
            memory = timing.mebibytes("VmRSS", pid)
            print(f"{done} more requests: {memory:.0f} MiB")


@contextlib.contextmanager
def server():
    """Starts a server; yields its process id and its gRPC and REST ports."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_serve, args=(theirs,), daemon=True)
    process.start()
    theirs.close()
    try:
        yield process.pid, *ours.recv()
    finally:
        process.kill()
        process.join()


def _serve(connection):
    folders = {MODEL: zoo.folder() / MODEL}
    models = Models(folders, batching=Batching(), tell=lambda line: None)
    with StandIn(models, port=0, rest_port=0) as stand_in:
        connection.send((stand_in.port, stand_in.rest_port))
        connection.recv()  # Waits until the process is killed.


def _grpc(port):
    stubs = protocol.api("prediction_service_pb2_grpc")
    stub = stubs.PredictionServiceStub(grpc.insecure_channel(f"{_HOST}:{port}"))

    def ask(rows):
        request = protocol.api("predict_pb2").PredictRequest()
        request.model_spec.name = MODEL
        request.inputs["captions"].CopyFrom(protocol.to_proto(np.array(rows)))
        answer = stub.Predict(request, 60).outputs["embeddings"]
        return protocol.to_array("embeddings", answer)

    return ask


def _rest(port, rows):
    link = http.client.HTTPConnection(_HOST, port, 60)
    with contextlib.closing(link):
        body = json.dumps({"instances": rows})
        link.request("POST", f"/v1/models/{MODEL}:predict", body)
        return json.loads(link.getresponse().read())["predictions"]


def _print_rows(size, clients, asks, requests):
    counts = [len(part) for part in np.array_split(range(requests), TURNS)]
    latencies, seconds = {name: [] for name in asks}, dict.fromkeys(asks, 0)
    for ask in asks.values():
        _latencies(ask, 2 * clients, clients)
    for count in filter(None, counts):
        for name, ask in asks.items():
            start = time.perf_counter()
            elapsed = _latencies(ask, count, clients)
            seconds[name] += time.perf_counter() - start
            latencies[name] += elapsed
    for name in asks:
        rate = len(latencies[name]) / seconds[name]
        p50, p99 = 1e3 * np.percentile(latencies[name], [50, 99])
        print(
            f"{name:4}  {size:4} {clients:3} {rate:8.1f} {p50:7.1f} {p99:7.1f}"
        )


def _latencies(call, requests, clients):
    def timed_call(_):
        start = time.perf_counter()
        call()
        return time.perf_counter() - start

    with futures.ThreadPoolExecutor(clients) as pool:
        return list(pool.map(timed_call, range(requests)))
