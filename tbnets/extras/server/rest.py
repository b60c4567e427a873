"""Serves models with a part of TensorFlow Serving's REST API.

::

    POST /v1/models/NAME[/versions/NUMBER]:predict
    GET  /v1/models/NAME[/versions/NUMBER]            status
    GET  /v1/models/NAME[/versions/NUMBER]/metadata   signatures
    GET  /v1/models                                   names, only this server

In the row format, a request has the key `instances`, and its response
`predictions`. In the column format, the keys are `inputs` and `outputs`. An
error is `{"error": ...}`, with TensorFlow Serving's HTTP status.
"""

import base64
import json
import re

import numpy as np
import tensorflow as tf
from google.protobuf import json_format
from werkzeug.wrappers import Response

from tbnets.errors import InputError
from tbnets.extras.loopback import HOST, LocalApp, in_json
from tbnets.files import parse_json
from tbnets.serving.protocol import MOST_BYTES, RequestError, invalid
from tbnets.serving.saved_files import read_graphs

MOST_VALUES = 2**20
"""Maximum number of values in a request, estimated from the number of commas.
Each value becomes a Python object."""
_PATH = re.compile(
    r"/v1/models/([^/:]+)(?:/versions/([0-9]{1,18}))?(:predict|/metadata)?"
)
_KINDS = {tf.float32: "iuf", tf.int32: "iu", tf.int64: "iu", tf.bool: "b"}
"""Maps the dtype of an input to the kinds of NumPy arrays that it accepts."""


def rest_app(models, host=HOST):
    """Returns a WSGI application that serves `Models`.

    `host` is the address that the server listens on.
    """

    def answer(request):
        match = _PATH.fullmatch(request.path)
        if match is None and request.path == "/v1/models":
            return in_json({"models": models.names()})
        name, number, action = match.groups() if match else (None,) * 3
        method = "POST" if action == ":predict" else "GET"
        if match is None or request.method != method:
            message = f"{request.method} {request.path[:200]} does not exist."
            raise RequestError("NOT_FOUND", message)
        version = models.get(name, number and int(number))
        if action == ":predict":
            body = predict(version, request.get_data(cache=False))
            return Response(body, content_type="application/json")
        number = str(version.number)
        if action == "/metadata":
            spec = {"name": name, "signature_name": "", "version": number}
            metadata = {"signature_def": {"signature_def": _described(version)}}
            return in_json({"model_spec": spec, "metadata": metadata})
        status = {"error_code": "OK", "error_message": ""}
        state = {"version": number, "state": "AVAILABLE", "status": status}
        return in_json({"model_version_status": [state]})

    return LocalApp(answer, host, MOST_BYTES)


def predict(version, body):
    """Calls a `Version` with the body of a request. Returns the response."""
    if body.count(b",") > MOST_VALUES:
        raise invalid(f"Send at most {MOST_VALUES} values, or use gRPC.")
    try:
        document = parse_json(body)
    except ValueError as error:
        raise invalid(f"The body must be JSON: {str(error)[:200]}") from error
    if not isinstance(document, dict):
        raise invalid('The body must be an object, {"inputs": ...}.')
    signature = document.get("signature_name", "")
    if not isinstance(signature, str):
        raise invalid("`signature_name` must be a string.")
    specs = version.function(signature).structured_input_signature[1]
    inputs = read_inputs(document, specs)
    outputs = version.predict(signature, inputs)
    values = {name: to_json(array) for name, array in outputs.items()}
    only = next(iter(values.values())) if len(values) == 1 else None
    if "inputs" in document:
        answer = {"outputs": values if only is None else only}
    else:
        if len({array.shape[:1] or None for array in outputs.values()}) > 1:
            raise invalid("Send `inputs`: the outputs differ in their rows.")
        rows = [dict(zip(values, row)) for row in zip(*values.values())]
        answer = {"predictions": rows if only is None else only}
    return json.dumps(answer).encode()


def read_inputs(document, specs):
    """Returns the input arrays of a request, with strings as bytes.

    `specs` maps each input to its `tf.TensorSpec`. A single input needs no
    name. Raises RequestError if the inputs do not match `specs`.
    """
    keys = [key for key in ("instances", "inputs") if key in document]
    if len(keys) != 1:
        raise invalid("The body must have either `instances` or `inputs`.")
    [key] = keys
    value = document[key]
    # Columns are handled as a single row with all values.
    rows = value if key == "instances" else [value]
    if not isinstance(rows, list) or not rows:
        raise invalid("`instances` must be a list of at least one row.")
    names = [row.keys() for row in rows if _is_named(row)]
    if not names and len(specs) == 1:
        columns = dict.fromkeys(specs, rows)
    elif len(names) == len(rows) and all(row == specs.keys() for row in names):
        columns = {name: [row[name] for row in rows] for name in specs}
    else:
        raise invalid(f"`{key}` must have exactly the inputs {sorted(specs)}.")
    return {
        name: _array(name, column if key == "instances" else column[0], specs)
        for name, column in columns.items()
    }


def _is_named(value):
    return isinstance(value, dict) and value.keys() != {"b64"}


def _array(name, value, specs):
    kind = specs[name].dtype
    try:
        if kind == tf.string:
            array = np.array(value, object)
            return np.array(np.frompyfunc(_content, 1, 1)(array), object)
        array = np.array(value)
        typed = array.astype(kind.as_numpy_dtype)
    except (ValueError, TypeError, LookupError, OverflowError) as error:
        raise invalid(f"`{name}` is invalid: {str(error)[:200]}") from error
    is_kept = kind == tf.float32 or (typed == array).all()
    if array.size and (array.dtype.kind not in _KINDS[kind] or not is_kept):
        raise invalid(f"`{name}` must have values of {kind.name}.")
    return typed


def _content(value):
    if isinstance(value, str):
        return value.encode("utf-8")
    if not isinstance(value["b64"], str) or len(value) > 1:
        raise InputError("expected a string or {'b64': string}.")
    return base64.b64decode(value["b64"], validate=True)


def to_json(array, is_binary=False):
    """Returns an array as nested lists.

    Strings are text if they are UTF-8 and not `is_binary`, and otherwise base64
    in an object.
    """
    if array.dtype.kind not in "OSU":
        return array.tolist()
    write = _base64 if is_binary else _text
    return np.array(np.frompyfunc(write, 1, 1)(array), object).tolist()


def _text(content):
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError:
        return _base64(content)


def _base64(content):
    return {"b64": base64.b64encode(content).decode("ascii")}


def _described(version):
    [graph, *_] = read_graphs(version.served.path)
    return {
        name: json_format.MessageToDict(d, preserving_proto_field_name=True)
        for name, d in graph.signature_def.items()
    }
