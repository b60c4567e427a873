"""Malformed requests of many kinds to a server, by gRPC and REST."""

import numpy as np
import pytest
from werkzeug.test import Client

from tbnets.extras.server.stand_in import RestService
from tests.fuzz import wire_kinds, wire_run

MODELS = ("scenes_localization",)


@pytest.fixture(scope="module")
def wire():
    """A `Wire` to a server of this process; REST without a socket."""
    grpc = pytest.importorskip("grpc")
    pytest.importorskip("tensorflow_serving")
    from tbnets.extras.server.grpc_service import GrpcServer
    from tests.fuzz.wire import Wire

    models = wire_run.models_of(MODELS)
    models.start()
    server = GrpcServer(models)
    client = Client(RestService(models))

    def rest(method, path, body):
        answer = client.open(path, method=method, data=body)
        return answer.status_code, answer.data

    with grpc.insecure_channel(f"127.0.0.1:{server.port}") as channel:
        yield Wire(channel, rest, wire_run.specs_of(MODELS), 2**25 + 1)
    server.close()
    models.close()


def test_no_malformed_request_harms_the_next_one(wire):
    judge = wire_run.Judge(wire)
    # Of all, which tools/fuzz.py sends, a third, and none of many rows.
    kinds = wire_kinds.one_of_each(wire_kinds.kinds_of(wire))
    kinds = [kind for kind in kinds if not kind.what.endswith("many")][::3]
    assert len(kinds) > 50
    faults = [
        (*kind[:4], fault)
        for number, kind in enumerate(kinds)
        if (fault := judge.fault(kind, np.random.default_rng([0, number])))
    ]
    assert not faults
    assert judge.table().count("| REST |") > 20


def test_a_bad_row_fails_alone_among_those_of_others(wire):
    [spec] = wire.specs[MODELS[0]]["embed_regions"]
    bad = np.full([1, spec.shape[1]], np.nan, np.float32)
    assert wire_run.neighbours(wire, MODELS[0], "embed_regions", bad, 3) == 0
