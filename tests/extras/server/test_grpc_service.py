"""TensorFlow Serving's gRPC services, asked by their own stubs."""

import threading

import numpy as np
import pytest

from tbnets.errors import InputError
from tbnets.extras.server import models as server_models
from tbnets.extras.server.models import Models
from tbnets.serving import protocol
from tests.extras.server.tiny_models import write_version

grpc = pytest.importorskip("grpc")
pytest.importorskip("tensorflow_serving")

from tbnets.extras.server.grpc_service import GrpcServer  # noqa: E402

ONES = np.ones([3, 2], np.float32)


@pytest.fixture(scope="module")
def told():
    return []


@pytest.fixture(scope="module")
def models(tmp_path_factory, told):
    folder = tmp_path_factory.mktemp("versions")
    write_version(folder, 2)
    labels = {"tiny": {"stable": 2}}
    models = Models({"tiny": folder}, labels=labels, tell=told.append)
    models.start()
    yield models
    models.close()


@pytest.fixture(scope="module")
def channel(models, told):
    server = GrpcServer(models, tell=told.append)
    with grpc.insecure_channel(f"127.0.0.1:{server.port}") as channel:
        yield channel
    server.close()


@pytest.fixture(scope="module")
def predictions(channel):
    stubs = protocol.api("prediction_service_pb2_grpc")
    return stubs.PredictionServiceStub(channel)


@pytest.fixture(scope="module")
def states(channel):
    return protocol.api("model_service_pb2_grpc").ModelServiceStub(channel)


def request(signature="times", model="tiny", **inputs):
    """Returns a `PredictRequest`."""
    made = protocol.api("predict_pb2").PredictRequest()
    made.model_spec.name = model
    made.model_spec.signature_name = signature
    for name, array in (inputs or {"numbers": ONES}).items():
        made.inputs[name].CopyFrom(protocol.to_proto(array))
    return made


def refused(method, asked, **more):
    """Returns (name of the code, message) of what a method refuses."""
    with pytest.raises(grpc.RpcError) as caught:
        method(asked, **more)
    return caught.value.code().name, caught.value.details()


def test_predictions_are_those_of_the_model(predictions):
    answer = predictions.Predict(request(""))
    spec = answer.model_spec
    assert (spec.name, spec.version.value) == ("tiny", 2)
    assert spec.signature_name == "serving_default"
    found = {n: protocol.to_array(n, x) for n, x in answer.outputs.items()}
    np.testing.assert_array_equal(found["products"], 2 * ONES)
    np.testing.assert_array_equal(found["sums"], [4, 4, 4])
    asked = request()
    asked.output_filter.append("sums")
    asked.model_spec.version_label = "stable"
    assert list(predictions.Predict(asked).outputs) == ["sums"]


@pytest.mark.parametrize(
    ("asked", "code", "message"),
    [
        (request(model="x"), "NOT_FOUND", "serve model x. There are: tiny."),
        (request("x"), "FAILED_PRECONDITION", '"x" not found'),
        (request(x=ONES), "INVALID_ARGUMENT", "Missing but required"),
        (request(numbers=ONES[0]), "INVALID_ARGUMENT", "of shape (None, 2)"),
        (
            request(numbers=-ONES),
            "INVALID_ARGUMENT",
            "be positive: [-1 -1]",
        ),
        (request("x" * 20_000), "FAILED_PRECONDITION", '"xxx'),
    ],
)
def test_what_is_refused(predictions, told, asked, code, message):
    found = refused(predictions.Predict, asked)
    assert found[0] == code and message in found[1]
    assert code in told[-1] and len(told[-1]) < 320


def test_a_request_without_a_model(predictions):
    made = protocol.api("predict_pb2").PredictRequest()
    found = refused(predictions.Predict, made)
    assert found == ("INVALID_ARGUMENT", "Missing ModelSpec")


def test_too_large_a_request_is_refused(predictions, channel):
    large = np.zeros([protocol.MOST_BYTES // 8 + 1, 2], np.float32)
    code, message = refused(predictions.Predict, request(numbers=large))
    assert code == "RESOURCE_EXHAUSTED" and "larger than max" in message
    assert predictions.Predict(request()).outputs


def test_metadata_are_the_signatures(predictions):
    messages = protocol.api("get_model_metadata_pb2")
    asked = messages.GetModelMetadataRequest(metadata_field=["signature_def"])
    asked.model_spec.name = "tiny"
    answer = predictions.GetModelMetadata(asked)
    found = messages.SignatureDefMap()
    answer.metadata["signature_def"].Unpack(found)
    assert found.signature_def["times"].inputs["numbers"].dtype == 1
    assert answer.model_spec.version.value == 2
    asked.metadata_field[:] = ["x"]
    code, message = refused(predictions.GetModelMetadata, asked)
    assert code == "INVALID_ARGUMENT" and "must be signature_def" in message


def test_states_are_told(states):
    asked = protocol.api("get_model_status_pb2").GetModelStatusRequest()
    asked.model_spec.name = "tiny"
    [one] = states.GetModelStatus(asked).model_version_status
    assert (one.version, one.state) == (2, one.AVAILABLE)
    assert (one.status.error_code, one.status.error_message) == (0, "")
    asked.model_spec.version.value = 7
    assert refused(states.GetModelStatus, asked)[0] == "NOT_FOUND"
    asked.model_spec.version_label = "stable"
    assert refused(states.GetModelStatus, asked)[0] == "INVALID_ARGUMENT"


def test_methods_of_examples_are_not_there(predictions):
    made = protocol.api("classification_pb2").ClassificationRequest()
    code, message = refused(predictions.Classify, made)
    assert code == "UNIMPLEMENTED" and "Ask Predict" in message


def test_a_deadline_ends_the_waiting(predictions, models):
    with models.using("tiny") as version:
        slots = [version._slots.acquire(blocking=False) for _ in range(99)]
        found = refused(predictions.Predict, request(), timeout=0.05)
        assert found[0] == "DEADLINE_EXCEEDED"
        for _ in range(sum(slots)):
            version._slots.release()
    assert predictions.Predict(request()).outputs


def test_who_comes_when_all_are_busy_is_sent_away(
    predictions, models, monkeypatch
):
    monkeypatch.setattr(models, "_requests", threading.BoundedSemaphore(1))
    with models.using("tiny"):
        code, message = refused(predictions.Predict, request())
    assert code == "UNAVAILABLE" and "takes no more" in message
    assert predictions.Predict(request()).outputs


def test_failures_are_told_a_few_times_a_minute(
    predictions, models, monkeypatch
):
    lines = []
    failures = server_models._Failures(lines.append)
    for _ in range(50):
        failures.tell("\x1b[2Jno")
    assert lines == ["failed: \ufffd[2Jno"] * server_models.MOST_FAILURES
    failures._since -= 61
    failures.tell("again")
    assert lines[-2:] == ["30 more requests failed", "failed: again"]


def test_no_client_sees_a_traceback(predictions, models, told, monkeypatch):
    monkeypatch.setattr(models, "using", lambda *_: 1 / 0)
    found = refused(predictions.Predict, request())
    assert found == ("INTERNAL", "The server has failed at this.")
    assert "ZeroDivisionError" in told[-1]


def test_a_port_that_is_taken_is_told(models, channel):
    server = GrpcServer(models)
    told = rf"port={server.port}: [^.]* 127.0.0.1:{server.port}\. Name another"
    with pytest.raises(InputError, match=told):
        GrpcServer(models, port=server.port)
    server.close()
