"""Serves models with TensorFlow Serving's gRPC method Predict."""

import os
import traceback
from concurrent import futures

from tbnets.errors import InputError
from tbnets.extras.loopback import HOST, in_url
from tbnets.serving import protocol
from tbnets.serving.protocol import RequestError

_THREADS = 16
_MOST_LETTERS = 1000
"""Maximum length of an error message. More than about 8 KB would not reach the
client."""


def grpc_server(host=HOST, port=0):
    """Opens a port, and returns a gRPC server that does not serve yet.

    Port 0 stands for any free port. Raises ImportError if the `serving` extra
    is missing.
    """
    # Otherwise gRPC prints errors with positions in its source.
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    protocol.api("prediction_service_pb2_grpc")
    import grpc

    server = grpc.server(
        futures.ThreadPoolExecutor(_THREADS, "grpc"),
        options=[
            ("grpc.max_receive_message_length", protocol.MOST_BYTES),
            ("grpc.max_send_message_length", -1),
            ("grpc.so_reuseport", 0),
        ],
        # gRPC rejects more requests at once.
        maximum_concurrent_rpcs=4 * _THREADS,
    )
    try:
        return server, server.add_insecure_port(f"{in_url(host)}:{port}")
    except RuntimeError as error:
        raise InputError("port", f"be a free port of {host}", port) from error


def start_grpc(server, models):
    """Starts to serve `Models`."""
    stubs = protocol.api("prediction_service_pb2_grpc")

    class Service(stubs.PredictionServiceServicer):
        def Predict(self, request, context):
            import grpc

            try:
                return _predict(models, request)
            except RequestError as error:
                code, message = error.code, str(error)
            except Exception:  # Errors must not end the server.
                traceback.print_exc()
                code, message = "INTERNAL", "The server failed."
            context.abort(grpc.StatusCode[code], message[:_MOST_LETTERS])

    stubs.add_PredictionServiceServicer_to_server(Service(), server)
    server.start()


def _predict(models, request):
    spec = request.model_spec
    number = spec.version.value if spec.HasField("version") else None
    version = models.get(spec.name, number)
    inputs = request.inputs.items()
    arrays = {name: protocol.to_array(name, proto) for name, proto in inputs}
    outputs = version.predict(spec.signature_name, arrays)
    answer = protocol.api("predict_pb2").PredictResponse(model_spec=spec)
    answer.model_spec.version.value = version.number
    for name, array in outputs.items():
        answer.outputs[name].CopyFrom(protocol.to_proto(array))
    return answer
