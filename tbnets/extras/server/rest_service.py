"""TensorFlow Serving's REST API as a WSGI application.

::

    POST /v1/models/NAME[/versions/NUMBER|/labels/LABEL]:predict
    GET  /v1/models/NAME[/versions/NUMBER]
    GET  /v1/models/NAME[/versions/NUMBER|/labels/LABEL]/metadata

It answers with JSON, an error with `{"error": ...}` and the status that
TensorFlow Serving gives it.
"""

import json
import re
import traceback

from werkzeug.exceptions import ClientDisconnected, RequestEntityTooLarge
from werkzeug.wrappers import Request, Response

from tbnets.extras.server import json_tensors
from tbnets.serving.protocol import (
    HTTP_STATUS,
    MOST_BYTES,
    RequestError,
    as_dict,
    invalid,
)

_MODEL = r"(?i)/v1/models/([^/:]+)(?:/versions/([0-9]+)|/labels/([^/:]+))?"
_POST = re.compile(_MODEL + ":(classify|regress|predict)")
_GET = re.compile(_MODEL + "(/metadata)?")
_MOST_VERSION = 2**63 - 1


class RestService:
    """Answers by the models of a server; called by any WSGI server.

    Args:
        models: `Models`.
        tell: function of a line: the traceback of what must not happen, which
            no client sees.
    """

    def __init__(self, models, tell=print):
        self._models = models
        self._tell = tell

    def __call__(self, environ, start_response):
        """Answers a request, as WSGI has it."""
        request = Request(environ)
        request.max_content_length = MOST_BYTES
        status = 200
        try:
            body = self._answer(request)
        except RequestError as error:
            status, body = HTTP_STATUS[error.code], _error(str(error))
        except RequestEntityTooLarge:
            most = f"A request must have at most {MOST_BYTES} bytes."
            status, body = 413, _error(f"{most} Send less at once.")
        except ClientDisconnected:
            status, body = 400, _error("The request ends too early.")
        except Exception:  # A client must not end the server.
            self._tell(traceback.format_exc())
            status, body = 500, _error("The server has failed at this.")
        response = Response(body, status, content_type="application/json")
        return response(environ, start_response)

    def _answer(self, request):
        """Returns the body of an answer, bytes."""
        method, path = request.method, request.path
        if method == "POST" and (found := _POST.fullmatch(path)):
            return self._called(*found.groups(), request.get_data(cache=False))
        if method == "GET" and (found := _GET.fullmatch(path)):
            *which, metadata = found.groups()
            return (self._metadata if metadata else self._status)(*which)
        raise invalid(f"Malformed request: {method} {path[:200]}")

    def _called(self, model, version, label, method, body):
        if method.lower() != "predict":
            raise invalid(
                f"The method must be predict. Received: {method}. Signatures "
                "here take tensors, no examples."
            )
        with self._models.using(model, _number(version), label or "") as served:
            document = json_tensors.parse(body)
            signature = json_tensors.signature_of(document)
            specs = served.inputs(signature)
            inputs, by_rows = json_tensors.read_inputs(document, specs)
            del document  # It takes more memory than the arrays.
            outputs = served.predict(signature, inputs)
        return json_tensors.write_outputs(outputs, by_rows)

    def _status(self, model, version, label):
        states = []
        for one in self._models.status(model, _number(version), label):
            told = {"error_code": one.code, "error_message": one.message}
            state = {"version": str(one.version), "state": one.state}
            states.append({**state, "status": told})
        return _json({"model_version_status": states})

    def _metadata(self, model, version, label):
        version = _number(version)
        number, signatures = self._models.metadata(model, version, label or "")
        spec = {"name": model, "signature_name": "", "version": str(number)}
        written = {name: as_dict(one) for name, one in signatures.items()}
        metadata = {"signature_def": {"signature_def": written}}
        return _json({"model_spec": spec, "metadata": metadata})


def _number(version):
    """Returns the number of a version; None where none is asked for."""
    if version is None:
        return None
    if len(version) > 19 or int(version) > _MOST_VERSION:
        raise invalid(f"Failed to convert version: {version[:30]} to numeric.")
    return int(version)


def _error(message):
    return _json({"error": message})


def _json(value):
    return json.dumps(value, indent=1).encode()
