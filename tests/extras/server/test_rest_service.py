"""Tests of TensorFlow Serving's REST API, without a socket."""

import json

import pytest
from werkzeug.test import Client

from tbnets.extras.server import json_tensors, stand_in
from tbnets.extras.server.stand_in import RestService

PREDICT = "/v1/models/tiny:predict"


@pytest.fixture
def ask(models):
    """Returns a function: method, path, body -> (status, answer)."""
    client = Client(RestService(models))

    def ask(method, path, body=None, **more):
        data = body if isinstance(body, bytes) else json.dumps(body)
        answer = client.open(path, method=method, data=data, **more)
        assert answer.content_type == "application/json"
        return answer.status_code, answer.json

    return ask


@pytest.mark.parametrize(
    "path",
    [
        PREDICT,
        "/v1/models/tiny/versions/2:predict",
        "/v1/models/tiny/labels/stable:predict",
        "/V1/Models/tiny:PREDICT",
    ],
)
def test_rows_are_answered_by_rows(ask, path):
    status, answer = ask("POST", path, {"instances": [[1, 2], [0.5, 0]]})
    assert status == 200
    assert answer == {
        "predictions": [
            {"products": [2, 4], "sums": 6},
            {"products": [1, 0], "sums": 1},
        ]
    }


def test_columns_are_answered_by_columns(ask):
    inputs = {"first": [1, 2], "second": [0.5]}
    body = {"signature_name": "pairs", "inputs": inputs}
    assert ask("POST", PREDICT, body) == (200, {"outputs": [[1.5], [2.5]]})


def test_the_status_of_a_model_is_told(ask):
    of_all = ask("GET", "/v1/models/tiny")
    assert of_all == ask("GET", "/v1/models/tiny/versions/2")
    assert of_all[1]["model_version_status"] == [
        {
            "version": "2",
            "state": "AVAILABLE",
            "status": {"error_code": "OK", "error_message": ""},
        }
    ]


def test_the_metadata_of_a_model_are_its_signatures(ask):
    status, answer = ask("GET", "/v1/models/tiny/labels/stable/metadata")
    assert status == 200 and answer["model_spec"]["version"] == "2"
    signatures = answer["metadata"]["signature_def"]["signature_def"]
    numbers = signatures["times"]["inputs"]["numbers"]
    assert numbers["dtype"] == "DT_FLOAT"
    assert numbers["tensor_shape"]["dim"] == [{"size": "-1"}, {"size": "2"}]


@pytest.mark.parametrize(
    "method, path, status",
    [
        ("POST", "/v1/models/huge:predict", 404),
        ("POST", "/v1/models/tiny/versions/9:predict", 404),
        ("POST", "/v1/models/tiny/labels/x:predict", 400),
        ("POST", f"/v1/models/tiny/versions/{'9' * 19}:predict", 400),
        ("POST", f"/v1/models/tiny/versions/{'9' * 9999}:predict", 400),
        ("POST", "/v1/models/tiny:classify", 400),
        ("POST", "/v1/models/tiny:fly", 400),
        ("POST", "/v1/models/tiny", 400),
        ("PUT", PREDICT, 400),
        ("GET", PREDICT, 400),
        ("GET", "/v1/models", 400),
        ("GET", "/", 400),
        ("GET", "/v1/models/huge", 404),
        ("GET", "/v1/models/tiny/versions/1", 404),
        ("GET", "/v1/models/tiny/labels/stable", 400),
        ("GET", "/v1/models/huge/metadata", 404),
    ],
)
def test_what_is_not_there_is_refused(ask, method, path, status):
    found, answer = ask(method, path, {"instances": [[1, 2]]})
    assert found == status and answer.keys() == {"error"}


@pytest.mark.parametrize(
    "body",
    [
        b"",
        {"instances": [["a", "b"]]},
        {"instances": [[1, 2, 3]]},
        {"instances": [[-1, 2]]},
        {"signature_name": "fly", "inputs": []},
        {"signature_name": "pairs", "instances": [[1, 2]]},
    ],
)
def test_what_is_wrong_with_a_request_is_refused(ask, body):
    status, answer = ask("POST", PREDICT, body)
    assert status == 400 and answer.keys() == {"error"}


def test_too_much_is_refused_unread(ask, monkeypatch):
    monkeypatch.setattr(json_tensors, "MOST_VALUES", 2)
    status, _ = ask("POST", PREDICT, {"instances": [[1, 2], [3, 4]]})
    assert status == 400
    monkeypatch.setattr(stand_in, "MOST_BYTES", 2)
    status, _ = ask("POST", PREDICT, b"{ }")
    assert status == 413


def test_no_client_sees_a_traceback(models, monkeypatch):
    lines = []
    client = Client(RestService(models, lines.append))
    monkeypatch.setattr(models, "using", lambda *_: 1 / 0)
    answer = client.post(PREDICT, json={"instances": [[1, 2]]})
    assert answer.status_code == 500
    assert "ZeroDivisionError" not in answer.text
    assert "ZeroDivisionError" in lines[0]
