"""Sends malformed requests to a server, and judges what came of them."""

import collections
import contextlib
import http.client
import multiprocessing
import pathlib
import time
from concurrent import futures

import numpy as np

from tbnets.extras.server.models import Batching, Models
from tbnets.serving import saved_files, zoo
from tests.fuzz import requests, wire_kinds
from tests.fuzz.wire import PATIENCE, Wire

MODELS = ("scenes_embedding", "scenes_localization", "scenes_hm_lstm")
_GOOD_CODES = {
    *("INVALID_ARGUMENT", "NOT_FOUND", "FAILED_PRECONDITION"),
    *("RESOURCE_EXHAUSTED", "UNIMPLEMENTED", "400", "404", "413"),
}
"""What a client may be told; others are exceptions that nobody expected."""
_NO_MESSAGE = ("INTERNAL", "Exception deserializing request!")
"""What gRPC tells by itself."""
CLIENTS = 8
PHOTOS = (
    *("scenes_embedding", "embed_image_strict"),
    np.array([b"none"], object),
)
_context = multiprocessing.get_context("spawn")


def run(count, seed):
    """Sends requests to a server of zoo models; prints faults and a table.

    Args:
        count: of malformed requests, over all kinds there are.
        seed: of what is drawn.

    Returns:
        The number of faults.
    """
    ours, theirs = _context.Pipe()
    process = _context.Process(target=_serve, args=(theirs,), daemon=True)
    process.start()
    theirs.close()
    try:
        return _ask(process, *ours.recv(), count, seed)
    finally:
        process.kill()
        process.join()


def _serve(connection):
    """Serves models of the zoo in a process of its own, until it is killed."""
    from tbnets.extras.server.stand_in import StandIn

    with StandIn(models_of(MODELS), port=0, rest_port=0) as server:
        connection.send((server.port, server.rest_port))
        connection.recv()  # Never: it is killed.


def _ask(process, grpc_port, rest_port, count, seed):
    import grpc

    def rest(method, path, body):
        link = http.client.HTTPConnection("127.0.0.1", rest_port, PATIENCE)
        with contextlib.closing(link):
            link.request(method, path, body)
            answer = link.getresponse()
            return answer.status, answer.read()

    unlimited = [("grpc.max_receive_message_length", -1)]
    channel = grpc.insecure_channel(f"127.0.0.1:{grpc_port}", unlimited)
    judge = Judge(Wire(channel, rest, specs_of(MODELS)))
    kinds = wire_kinds.kinds_of(judge.wire)
    faults, began = 0, _memory(process.pid)
    for number in range(count):
        kind = kinds[number % len(kinds)]
        generator = np.random.default_rng([seed, number])
        if fault := judge.fault(kind, generator):
            faults += 1
            print(f"{kind.wire} {kind.model} {kind.signature}: {kind.what}: ")
            print(f"    {fault}")
        if not process.is_alive():
            print(f"the server has ended: exit code {process.exitcode}")
            return faults + 1
    print(judge.table())
    rounds = count // CLIENTS
    apart = neighbours(judge.wire, *PHOTOS, rounds)
    print(
        f"{rounds} times {CLIENTS} photos of {CLIENTS} clients at once, of "
        f"which one is none: {apart} times it did not fail alone"
    )
    print(
        f"slowest answer to a malformed request {judge.slowest:.2f} s, to a "
        f"good one after it {judge.slowest_good:.2f} s; memory of the server "
        f"{began['VmRSS']} MB at first, {_memory(process.pid)['VmRSS']} MB at "
        f"last, {_memory(process.pid)['VmHWM']} MB at most"
    )
    return faults + apart


def models_of(names):
    """Returns `Models` of the zoo, not started, whose requests are batched."""
    folders = {name: zoo.folder() / name for name in names}
    return Models(folders, batching=Batching(), tell=lambda line: None)


def neighbours(wire, model, signature, bad, rounds):
    """Lets clients ask at once, of which one sends what must be refused.

    Args:
        wire: `Wire` to a server that batches.
        model: its name.
        signature: which has one input and `embeddings`.
        bad: value of the input.
        rounds: how often.

    Returns:
        The number of rounds in which another one was refused or answered
        otherwise than alone, or the one was not refused.
    """
    good = wire.good(model, signature)
    wanted = wire.ask("gRPC", model, signature, good).outputs["embeddings"]
    asked = [dict.fromkeys(good, bad)]
    asked += [good] * (CLIENTS - 1)
    faults = 0
    with futures.ThreadPoolExecutor(CLIENTS) as pool:
        for _ in range(rounds):
            first, *rest = pool.map(
                lambda one: wire.ask("gRPC", model, signature, one), asked
            )
            faults += first.code != "INVALID_ARGUMENT" or not all(
                one.code == "OK"
                and np.allclose(one.outputs["embeddings"], wanted, atol=1e-5)
                for one in rest
            )
    return faults


def specs_of(models):
    """Returns model -> signature -> list of `requests.Input`, of the zoo."""
    found = {}
    for model in models:
        graphs = saved_files.read_graphs(zoo.folder() / model / "1")
        found[model] = {
            name: requests.inputs_of(one)
            for name, one in graphs[0].signature_def.items()
            if one.inputs and name != "serving_default"
        }
    return found


def _memory(pid):
    """Returns name -> MB, of what the system says of a process."""
    lines = pathlib.Path(f"/proc/{pid}/status").read_text().splitlines()
    words = [line.split() for line in lines if line.startswith("Vm")]
    return {word[0][:-1]: int(word[1]) // 1000 for word in words}


class Judge:
    """Sends requests and says what is wrong with their answers.

    Args:
        wire: `Wire`.

    Attributes:
        slowest: seconds until a malformed request was answered.
        slowest_good: until the good one behind it was.
    """

    def __init__(self, wire):
        self.wire = wire
        self.slowest = self.slowest_good = 0.0
        self._wanted = {}
        self._counts = collections.defaultdict(collections.Counter)

    def fault(self, kind, generator):
        """Sends a malformed request and a good one; returns what is wrong."""
        which = kind[:3]
        if which not in self._wanted:
            self._wanted[which] = self._good(which)
        began = time.perf_counter()
        try:
            reply = kind.send(self.wire, generator)
        except OSError as error:
            return f"no answer: {error!r}"
        ended = time.perf_counter()
        again = self._good(which)
        self.slowest = max(self.slowest, ended - began)
        self.slowest_good = max(self.slowest_good, time.perf_counter() - ended)
        came = "answered" if reply.code == "OK" else "refused"
        self._counts[kind.wire, kind.what][came] += 1
        if not _same(again, self._wanted[which]):
            return f"the next good request differs: {again}"
        return _wrong(reply, kind.wanted)

    def table(self):
        """Returns a Markdown table: a row for each wire and what was wrong."""
        lines = ["| wire | wrong | refused | answered |", "|---|---|---:|---:|"]
        lines += [
            f"| {wire} | {what} | {one['refused']} | {one['answered']} |"
            for (wire, what), one in sorted(self._counts.items())
        ]
        return "\n".join(lines)

    def _good(self, which):
        by, model, signature = which
        inputs = self.wire.good(model, signature)
        reply = self.wire.ask(by, model, signature, inputs)
        if reply.code != "OK":
            raise LookupError(f"a good request is refused: {reply}")
        return reply.outputs


def _same(one, other):
    """Tells whether outputs are equal, bit for bit."""
    if not isinstance(one, dict) or "outputs" in one:
        return one == other
    return one.keys() == other.keys() and all(
        np.array_equal(one[name], other[name]) for name in one
    )


def _wrong(reply, wanted):
    """Returns what is wrong with a `Reply`; None where nothing is."""
    is_answer = reply.code == "OK"
    is_known = str(reply.code) in _GOOD_CODES or reply[:2] == _NO_MESSAGE
    if not is_answer and not is_known:
        return f"{reply.code}: {reply.told}"
    if any(word in reply.told for word in ("Traceback", 'File "', "{{node")):
        return f"tells what is no client's: {reply.told}"
    if wanted and is_answer != (wanted == "answered"):
        return f"must be {wanted}: {reply.code} {reply.told}"
    if not is_answer and not reply.told:
        return "refused without a word"
    return None
