"""Serves models with TensorFlow Serving's gRPC and REST APIs, in this process.

::

    with StandIn(Models({"own": "runs/own"}), port=0, rest_port=0) as server:
        print(server.port, server.rest_port)

`StandIn` is for trials and tests. Use TensorFlow Serving in production.
"""

import re

from werkzeug.wrappers import Response

from tbnets.extras.loopback import (
    GRACE,
    HOST,
    in_json,
    respond,
    server_of,
)
from tbnets.extras.server import json_tensors
from tbnets.extras.server.grpc_service import GrpcServer
from tbnets.serving.protocol import MOST_BYTES, as_dict, invalid

# TensorFlow Serving's REST API as a WSGI application::
#
#     POST /v1/models/NAME[/versions/NUMBER|/labels/LABEL]:predict
#     GET  /v1/models/NAME[/versions/NUMBER]
#     GET  /v1/models/NAME[/versions/NUMBER|/labels/LABEL]/metadata
#
# Responses are JSON. An error is `{"error": ...}`, with TensorFlow Serving's
# HTTP status.

_MODEL = r"(?i)/v1/models/([^/:]+)(?:/versions/([0-9]+)|/labels/([^/:]+))?"
_POST = re.compile(_MODEL + ":(classify|regress|predict)")
_GET = re.compile(_MODEL + "(/metadata)?")
_MOST_VERSION = 2**63 - 1


class RestService:
    """A WSGI application that serves models.

    Args:
        models: `Models`.
        tell: function that prints the tracebacks of unexpected errors.
    """

    def __init__(self, models, tell=print):
        self._models = models
        self._tell = tell

    def __call__(self, environ, start_response):
        """Handles a WSGI request."""
        response = respond(environ, self._answer, self._tell, MOST_BYTES)
        return response(environ, start_response)

    def _answer(self, request):
        method, path = request.method, request.path
        if method == "POST" and (match := _POST.fullmatch(path)):
            return self._called(*match.groups(), request)
        if method == "GET" and (match := _GET.fullmatch(path)):
            *which, metadata = match.groups()
            return (self._metadata if metadata else self._status)(*which)
        raise invalid(f"Malformed request: {method} {path[:200]}")

    def _called(self, model, version, label, method, request):
        if method.lower() != "predict":
            raise invalid(
                f"The method must be predict. Received: {method}. Signatures "
                "here take tensors, not examples."
            )
        with self._models.using(model, _number(version), label or "") as served:
            document = json_tensors.parse(request.get_data(cache=False))
            signature = json_tensors.signature_of(document)
            specs = served.inputs(signature)
            inputs, by_rows = json_tensors.read_inputs(document, specs)
            del document  # The document is larger than the arrays.
            outputs = served.predict(signature, inputs)
        body = json_tensors.write_outputs(outputs, by_rows)
        return Response(body, content_type="application/json")

    def _status(self, model, version, label):
        states = []
        for state in self._models.status(model, _number(version), label):
            status = {"error_code": state.code, "error_message": state.message}
            entry = {"version": str(state.version), "state": state.state}
            states.append({**entry, "status": status})
        return in_json({"model_version_status": states})

    def _metadata(self, model, version, label):
        version = _number(version)
        number, signatures = self._models.metadata(model, version, label or "")
        spec = {"name": model, "signature_name": "", "version": str(number)}
        written = {name: as_dict(d) for name, d in signatures.items()}
        metadata = {"signature_def": {"signature_def": written}}
        return in_json({"model_spec": spec, "metadata": metadata})


def _number(version):
    if version is None:
        return None
    if len(version) > 19 or int(version) > _MOST_VERSION:
        raise invalid(f"Failed to convert version: {version[:30]} to numeric.")
    return int(version)


class StandIn:
    """A context manager that serves models.

    Port 0 stands for any free port, and None disables gRPC or REST. The
    attributes `port` and `rest_port` are the actual ports.

    Args:
        models: `Models`, not started.
        host: address to listen on.
        port: gRPC port.
        rest_port: REST port.
        tell: function that prints the tracebacks of unexpected errors.
    """

    def __init__(
        self, models, host=HOST, port=None, rest_port=None, tell=print
    ):
        self.models = models
        self.port, self.rest_port = port, rest_port
        self._grpc = self._rest = None
        models.start()
        try:
            if rest_port is not None:
                app = RestService(models, tell)
                self._rest = server_of(app, host, rest_port, "rest_api_port")
                self._rest.start()
                self.rest_port = self._rest.port
            if port is not None:
                self._grpc = GrpcServer(models, host, port, tell)
                self.port = self._grpc.port
        except BaseException:
            self.close()
            raise

    def close(self, grace=GRACE):
        """Stops when all requests are finished, or after `grace` seconds."""
        stopped = self._grpc and self._grpc.close(grace)
        if self._rest:
            self._rest.end(grace)
        if stopped:
            stopped.wait()
        self.models.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()
