"""Implements TensorFlow Serving's gRPC services.

The methods are Predict and GetModelMetadata of PredictionService, and
GetModelStatus of ModelService.
"""

import os
import traceback
from concurrent import futures

from tbnets.errors import InputError
from tbnets.extras.loopback import GRACE, in_url
from tbnets.extras.server.models import MOST_REQUESTS
from tbnets.serving import export, protocol
from tbnets.serving.protocol import HTTP_STATUS, RequestError, invalid

_SPARE_THREADS = 4
"""Number of threads that reject requests while all other threads are busy."""
_SIGNATURES = "signature_def"
_MOST_LETTERS = 1000
"""Maximum length of an error message. More than about 8 KB would not reach the
client."""


class GrpcServer:
    """Serves `Models` on a port. The constructor starts the server.

    Port 0 stands for any free port; the attribute `port` is the actual port.
    `tell` prints the tracebacks of unexpected errors. Raises ImportError if the
    `serving` extra is missing.
    """

    def __init__(self, served, host="127.0.0.1", port=0, tell=print):
        # Otherwise gRPC prints errors with positions in its source.
        os.environ.setdefault("GRPC_VERBOSITY", "NONE")
        predictions = protocol.api("prediction_service_pb2_grpc")
        states = protocol.api("model_service_pb2_grpc")
        import grpc

        threads = MOST_REQUESTS + _SPARE_THREADS
        server = self._server = grpc.server(
            futures.ThreadPoolExecutor(threads, "grpc"),
            options=[
                ("grpc.max_receive_message_length", protocol.MOST_BYTES),
                ("grpc.max_send_message_length", -1),
                ("grpc.so_reuseport", 0),
            ],
            # Requests beyond this number wait unread.
            maximum_concurrent_rpcs=4 * threads,
        )
        service = _Service(served, tell, grpc.StatusCode)
        predictions.add_PredictionServiceServicer_to_server(service, server)
        states.add_ModelServiceServicer_to_server(service, server)
        try:
            self.port = server.add_insecure_port(f"{in_url(host)}:{port}")
        except RuntimeError as error:
            reason = str(error).partition(";")[0]  # gRPC's details follow.
            raise InputError(
                "port",
                f"be a port that can be opened on {host}",
                f"port={port}: {reason}",
                "Choose another port, or 0 for any free port.",
            ) from error
        server.start()

    def close(self, grace=GRACE):
        """Rejects new requests; cancels running ones after `grace` seconds.

        Returns an event that is set when all requests have ended.
        """
        return self._server.stop(grace)


def _answered(method):
    """Wraps a method of `_Service` so that its errors become gRPC errors."""

    def call(self, request, context):
        try:
            return method(self, request, context)
        except RequestError as error:
            code, message = error.code, str(error)[:_MOST_LETTERS]
        except Exception:  # Errors must not end the server.
            self._tell(traceback.format_exc())
            code, message = "INTERNAL", "The server failed."
        return context.abort(self._codes[code], message)

    return call


class _Service:
    """The methods of both services, named as in their definitions."""

    def __init__(self, served, tell, codes):
        self._models, self._tell, self._codes = served, tell, codes

    @_answered
    def Predict(self, request, context):
        seconds = context.time_remaining()
        if seconds is not None and seconds <= 0:
            raise RequestError("DEADLINE_EXCEEDED", "Deadline Exceeded")
        with self._models.using(*_which(request)) as version:
            inputs = request.inputs.items()
            outputs = version.predict(
                request.model_spec.signature_name,
                {n: protocol.to_array(n, proto) for n, proto in inputs},
                request.output_filter,
                timeout=seconds,
            )
        answer = protocol.api("predict_pb2").PredictResponse()
        answer.model_spec.name = request.model_spec.name
        answer.model_spec.version.value = version.number
        signature = request.model_spec.signature_name or export.DEFAULT
        answer.model_spec.signature_name = signature
        for name, array in outputs.items():
            answer.outputs[name].CopyFrom(protocol.to_proto(array))
        return answer

    @_answered
    def GetModelMetadata(self, request, context):
        fields = list(request.metadata_field)
        if set(fields) != {_SIGNATURES}:
            raise invalid(
                f"`metadata_field` must be {_SIGNATURES}. Received: "
                f"{fields[:9]}. Request only this field."
            )
        number, signatures = self._models.metadata(*_which(request))
        messages = protocol.api("get_model_metadata_pb2")
        answer = messages.GetModelMetadataResponse()
        answer.model_spec.name = request.model_spec.name
        answer.model_spec.version.value = number
        definitions = messages.SignatureDefMap(signature_def=signatures)
        answer.metadata[_SIGNATURES].Pack(definitions)
        return answer

    @_answered
    def GetModelStatus(self, request, context):
        answer = protocol.api("get_model_status_pb2").GetModelStatusResponse()
        for state in self._models.status(*_which(request)):
            entry = answer.model_version_status.add(version=state.version)
            entry.state = entry.State.Value(state.state)
            entry.status.error_code = list(HTTP_STATUS).index(state.code)
            entry.status.error_message = state.message
        return answer

    @_answered
    def Classify(self, request, context):
        raise RequestError(
            "UNIMPLEMENTED",
            "Only Predict, GetModelMetadata and GetModelStatus are "
            "implemented: signatures take tensors, not examples. Call Predict.",
        )

    Regress = MultiInference = HandleReloadConfigRequest = Classify


def _which(request):
    if not request.HasField("model_spec"):
        raise invalid("Missing ModelSpec")
    spec = request.model_spec
    version = spec.version.value if spec.HasField("version") else None
    return spec.name, version, spec.version_label
