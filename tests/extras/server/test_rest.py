"""Tests of the REST API, without a socket."""

import json

import numpy as np
import pytest
from werkzeug.test import Client

from tbnets.extras.server import rest

PREDICT = "/v1/models/tiny:predict"


@pytest.fixture
def ask(models):
    """Returns a function: method, path, body -> (status, answer)."""
    client = Client(rest.rest_app(models))

    def ask(method, path, body=None, **headers):
        data = body if isinstance(body, bytes) else json.dumps(body)
        answer = client.open(path, method=method, data=data, headers=headers)
        assert answer.content_type == "application/json"
        return answer.status_code, answer.json

    return ask


def test_rows_are_answered_by_rows(ask):
    body = {"instances": [[1, 2], [0.5, 0]]}
    first, second = ask("POST", PREDICT, body)[1]["predictions"]
    assert first == {"products": [2, 4], "sums": 6}
    assert second == {"products": [1, 0], "sums": 1}
    assert ask("POST", "/v1/models/tiny/versions/2:predict", body)[0] == 200
    body = {"instances": [{"numbers": [1, 2]}]}
    assert ask("POST", PREDICT, body)[1]["predictions"] == [first]


def test_columns_are_answered_by_columns(ask):
    inputs = {"first": [1, 2], "second": [0.5]}
    body = {"signature_name": "pairs", "inputs": inputs}
    assert ask("POST", PREDICT, body) == (200, {"outputs": [[1.5], [2.5]]})


def test_strings_are_text_or_base64(ask):
    captions = ["bär", {"b64": "/wA="}]
    inputs = {"captions": captions, "ids": [1, 2]}
    body = {"signature_name": "texts", "inputs": inputs}
    assert ask("POST", PREDICT, body) == (200, {"outputs": inputs})
    rows = [{"captions": x, "ids": 1} for x in captions]
    body = {"signature_name": "texts", "instances": rows}
    assert ask("POST", PREDICT, body) == (200, {"predictions": rows})
    body = {"signature_name": "texts", "inputs": {"captions": [], "ids": []}}
    assert ask("POST", PREDICT, body)[1]["outputs"]["captions"] == []


def test_floats_return_with_the_same_bits(ask):
    rows = np.random.default_rng(0).random([50, 2], np.float32)
    _, answer = ask("POST", PREDICT, {"inputs": rows.tolist()})
    products = np.float32(answer["outputs"]["products"])
    np.testing.assert_array_equal(products, 2 * rows)


def test_status_and_signatures_of_a_model(ask):
    assert ask("GET", "/v1/models")[1] == {"models": ["tiny"]}
    status = ask("GET", "/v1/models/tiny")[1]["model_version_status"]
    assert [(x["version"], x["state"]) for x in status] == [("2", "AVAILABLE")]
    metadata = ask("GET", "/v1/models/tiny/metadata")[1]["metadata"]
    signatures = metadata["signature_def"]["signature_def"]
    numbers = signatures["times"]["inputs"]["numbers"]
    assert numbers["dtype"] == "DT_FLOAT"
    assert numbers["tensor_shape"]["dim"] == [{"size": "-1"}, {"size": "2"}]


PAIRS = {"first": [1] * 4096, "second": [1] * 65}
MALFORMED = [
    b"",
    b"{",
    b"[]",
    b"{}",
    b'{"inputs": "\xff"}',
    b'{"inputs": [], "inputs": []}',
    b'{"inputs": ' + b"[" * 100_000,
    b'{"inputs": ' + b"[" * 60 + b"]" * 60 + b"}",
    b'{"inputs": ' + b"9" * 5000 + b"}",
    b'{"inputs": [' + b"0," * 2_000_000 + b"0]}",
    {"signature_name": 3, "inputs": [[1, 2]]},
    {"signature_name": "fly", "inputs": [[1, 2]]},
    {"inputs": [[1, 2]], "instances": [[1, 2]]},
    {"instances": []},
    {"instances": "a"},
    {"instances": [[1, 2], {"numbers": [1, 2]}]},
    {"inputs": {"numbers": [[1, 2]], "x": 1}},
    {"inputs": [[1, 2, 3]]},
    {"inputs": [[1, 2], [1]]},
    {"inputs": [[-1, 2]]},
    {"inputs": [["1", 2]]},
    {"inputs": [[True, False]]},
    {"inputs": [[None, 1]]},
    {"inputs": [[1, 2]] * 4097},
    {"signature_name": "pairs", "inputs": PAIRS},
    *(
        {"signature_name": "texts", "inputs": {"captions": x, "ids": [1]}}
        for x in ([1], [None], ["\ud800"], [["a"]], ["a", ["b"]], [{"b64": 1}])
    ),
    *(
        {"signature_name": "texts", "inputs": {"captions": ["a"], "ids": x}}
        for x in ([1.5], [2**31], [2**70], ["1"])
    ),
    {
        "signature_name": "texts",
        "inputs": {"captions": [{"b64": "!!!!"}], "ids": [1]},
    },
]


@pytest.mark.parametrize("body", MALFORMED, ids=lambda x: str(x)[:50])
def test_malformed_requests_get_400_and_the_server_lives(ask, body):
    status, answer = ask("POST", PREDICT, body)
    assert status == 400 and answer.keys() == {"error"}
    assert ask("POST", PREDICT, {"instances": [[1, 2]]})[0] == 200


@pytest.mark.parametrize(
    "method, path",
    [
        ("POST", "/v1/models/huge:predict"),
        ("POST", "/v1/models/tiny/versions/9:predict"),
        ("POST", f"/v1/models/tiny/versions/{'9' * 9999}:predict"),
        ("POST", "/v1/models/tiny:classify"),
        ("PUT", PREDICT),
        ("GET", PREDICT),
        ("GET", "/v1/models/tiny/versions/1"),
        ("GET", "/v1/models/huge/metadata"),
        ("GET", "/"),
    ],
)
def test_unknown_paths_get_404(ask, method, path):
    status, answer = ask(method, path, {"instances": [[1, 2]]})
    assert status == 404 and answer.keys() == {"error"}


@pytest.mark.parametrize(
    "header", [{"Host": "evil.example"}, {"Origin": "http://evil.example"}]
)
def test_requests_from_other_pages_get_403(ask, header):
    body = {"instances": [[1, 2]]}
    assert ask("POST", PREDICT, body, **header)[0] == 403


def test_large_requests_get_413(models, monkeypatch):
    monkeypatch.setattr(rest, "MOST_BYTES", 20)
    client = Client(rest.rest_app(models))
    assert client.post(PREDICT, data=b" " * 21).status_code == 413


def test_no_client_gets_a_traceback(models, monkeypatch, capfd):
    monkeypatch.setattr(models, "get", lambda *_: 1 / 0)
    answer = Client(rest.rest_app(models)).get("/v1/models/tiny")
    assert answer.status_code == 500
    assert "ZeroDivisionError" not in answer.text
    assert "ZeroDivisionError" in capfd.readouterr().err
