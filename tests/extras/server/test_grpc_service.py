"""TensorFlow Serving's gRPC services, asked by their own stubs."""

import threading

import numpy as np
import pytest

from tbnets.errors import InputError
from tbnets.serving import protocol

grpc = pytest.importorskip("grpc")
pytest.importorskip("tensorflow_serving")

from tbnets.extras.server.grpc_service import GrpcServer  # noqa: E402

ONES = np.ones([3, 2], np.float32)


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
    """Returns the name of the code by which a method refuses."""
    with pytest.raises(grpc.RpcError) as caught:
        method(asked, **more)
    assert caught.value.details()
    return caught.value.code().name


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
    ("asked", "code"),
    [
        (request(model="x"), "NOT_FOUND"),
        (request("x"), "FAILED_PRECONDITION"),
        (request(numbers=-ONES), "INVALID_ARGUMENT"),
        (request("x" * 20_000), "FAILED_PRECONDITION"),
    ],
)
def test_what_is_refused(predictions, told, asked, code):
    assert refused(predictions.Predict, asked) == code
    assert code in told[-1] and len(told[-1]) < 320


def test_a_request_that_is_none_or_too_large(predictions):
    made = protocol.api("predict_pb2").PredictRequest()
    assert refused(predictions.Predict, made) == "INVALID_ARGUMENT"
    large = np.zeros([protocol.MOST_BYTES // 8 + 1, 2], np.float32)
    code = refused(predictions.Predict, request(numbers=large))
    assert code == "RESOURCE_EXHAUSTED"
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
    assert refused(predictions.GetModelMetadata, asked) == "INVALID_ARGUMENT"


def test_states_are_told(states):
    asked = protocol.api("get_model_status_pb2").GetModelStatusRequest()
    asked.model_spec.name = "tiny"
    [one] = states.GetModelStatus(asked).model_version_status
    assert (one.version, one.state) == (2, one.AVAILABLE)
    assert (one.status.error_code, one.status.error_message) == (0, "")
    asked.model_spec.version.value = 7
    assert refused(states.GetModelStatus, asked) == "NOT_FOUND"
    asked.model_spec.version_label = "stable"
    assert refused(states.GetModelStatus, asked) == "INVALID_ARGUMENT"


def test_methods_of_examples_are_not_there(predictions):
    made = protocol.api("classification_pb2").ClassificationRequest()
    assert refused(predictions.Classify, made) == "UNIMPLEMENTED"


def test_a_deadline_ends_the_waiting(predictions, models):
    with models.using("tiny") as version:
        slots = [version._slots.acquire(blocking=False) for _ in range(99)]
        code = refused(predictions.Predict, request(), timeout=0.05)
        assert code == "DEADLINE_EXCEEDED"
        for _ in range(sum(slots)):
            version._slots.release()
    assert predictions.Predict(request()).outputs


def test_who_comes_when_all_are_busy_is_sent_away(
    predictions, models, monkeypatch
):
    monkeypatch.setattr(models, "_requests", threading.BoundedSemaphore(1))
    with models.using("tiny"):
        code = refused(predictions.Predict, request())
    assert code == "UNAVAILABLE"
    assert predictions.Predict(request()).outputs


def test_no_client_sees_a_traceback(predictions, models, told, monkeypatch):
    monkeypatch.setattr(models, "using", lambda *_: 1 / 0)
    with pytest.raises(grpc.RpcError) as caught:
        predictions.Predict(request())
    assert caught.value.code().name == "INTERNAL"
    assert "ZeroDivisionError" not in caught.value.details()
    assert "ZeroDivisionError" in told[-1]


def test_a_port_that_is_taken_is_refused(models, channel):
    server = GrpcServer(models)
    with pytest.raises(InputError, match=f"{server.port}"):
        GrpcServer(models, port=server.port)
    server.close()
