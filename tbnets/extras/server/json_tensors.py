"""Converts the JSON of TensorFlow Serving's REST API to and from arrays.

In the row format, a request has the key `instances`, and its response
`predictions`. In the column format, the keys are `inputs` and `outputs`. The
rules follow TensorFlow Serving's `json_tensor.cc`, but invalid UTF-8 is
rejected, and so are unknown input names in the column format.
"""

import base64
import binascii
import json
import math

import numpy as np
import tensorflow as tf

from tbnets.files import parse_json
from tbnets.serving.protocol import MOST_SIDES, invalid

MOST_VALUES = 2**20
"""Maximum number of values in a request, estimated from the number of commas.
Each value becomes a Python object."""
_B64 = "b64"
_ROWS, _COLUMNS = "instances", "inputs"
_TOO_LARGE = {int: 2**24, float: 2.0**128 - 2.0**103}
"""Limits for float32, which represents smaller integers exactly and rounds
smaller floats to finite values."""
_TYPES = {
    tf.string: {str, dict},
    tf.float32: {float, int},
    tf.int32: {int},
    tf.int64: {int},
    tf.bool: {bool},
}


def parse(body):
    """Returns the JSON object in the body of a request."""
    if body.count(b",") > MOST_VALUES:
        raise invalid(
            f"The body must have at most {MOST_VALUES} values. Received: more. "
            "Send fewer rows at once, or use gRPC."
        )
    try:
        document = parse_json(body.decode("utf-8"))
    except ValueError as error:
        raise invalid(
            f"The body must be JSON in UTF-8. Received: {str(error)[:200]}. "
            "Send the output of a JSON writer."
        ) from error
    if not isinstance(document, dict):
        raise invalid(
            "The body must be a JSON object. Received: "
            f'{_kind(document)}. Send {{"inputs": ...}}.'
        )
    return document


def signature_of(document):
    """Returns the name of the signature in a request."""
    name = document.get("signature_name", "")
    if not isinstance(name, str):
        raise invalid(
            "`signature_name` must be a string. Received: "
            f"{_kind(name)}. Send the name of a signature, or none."
        )
    return name or "serving_default"


def read_inputs(document, specs):
    """Returns the inputs of a request. `document` is a result of `parse`.

    `specs` maps each input to its `tf.TensorSpec`. Returns (arrays, by_rows): a
    dict of arrays, with strings as bytes, and whether the request is in the row
    format. Raises RequestError if the inputs do not match `specs`.
    """
    keys = [key for key in (_ROWS, _COLUMNS) if key in document]
    if len(keys) != 1:
        raise invalid(
            f"The body must have `{_ROWS}` or `{_COLUMNS}`. Received: "
            f"{' and '.join(keys) or 'neither'}. Send one of them."
        )
    by_rows, value = keys == [_ROWS], document[keys[0]]
    if by_rows and not (isinstance(value, list) and value):
        raise invalid(
            f"`{_ROWS}` must be a list of at least one row. Received: "
            f"{'an empty list' if value == [] else _kind(value)}. Send "
            f"`{_COLUMNS}` for zero rows."
        )
    # Columns are handled as a single row with all values.
    columns = _columns(keys[0], value if by_rows else [value], specs)
    arrays = {
        name: _array(name, rows if by_rows else rows[0], specs[name].dtype)
        for name, rows in columns.items()
    }
    return arrays, by_rows


def write_outputs(outputs, by_rows):
    """Returns the body of a response as bytes.

    `by_rows` is whether the request was in the row format.
    """
    values = {name: nested_lists(name, x) for name, x in outputs.items()}
    only = len(values) == 1 and next(iter(values))
    if not by_rows:
        answer = {"outputs": values[only] if only else values}
    else:
        lengths = {array.shape[:1] for array in outputs.values()}
        if len(lengths) > 1 or () in lengths:
            raise invalid(
                f"`{_ROWS}` must be used only if all outputs have equally "
                f"many rows. Received: outputs of {sorted(lengths)}. Send "
                f"`{_COLUMNS}`."
            )
        rows = [dict(zip(values, row)) for row in zip(*values.values())]
        answer = {"predictions": values[only] if only else rows}
    return json.dumps(answer).encode()


def as_b64(content):
    """Returns bytes as a JSON object with a base64 string."""
    return {_B64: base64.b64encode(content).decode("ascii")}


def _is_b64(value):
    return isinstance(value, dict) and list(value) == [_B64]


def _is_named(value):
    return isinstance(value, dict) and not _is_b64(value)


def _columns(key, rows, specs):
    expected = ", ".join(sorted(specs))
    if not any(map(_is_named, rows)):
        if len(specs) != 1:
            raise invalid(
                f"`{key}` must name the inputs {expected}. Received: values "
                "without names. Send objects."
            )
        return dict.fromkeys(specs, rows)
    for number, row in enumerate(rows):
        if not _is_named(row) or row.keys() != specs.keys():
            received = _kind(row)
            if isinstance(row, dict):
                received = ", ".join(sorted(row))[:200] or "none"
            which = f"Row {number} of `{key}`" if key == _ROWS else f"`{key}`"
            raise invalid(
                f"{which} must have the inputs {expected}. Received: "
                f"{received}. Send exactly these inputs."
            )
    return {name: [row[name] for row in rows] for name in specs}


def _array(name, value, kind):
    array = np.array(value, object)
    if array.ndim > MOST_SIDES:  # TensorFlow aborts above 32 axes.
        raise invalid(
            f"`{name}` must be nested lists of the signature's shape. "
            f"Received: {array.ndim} levels. Send at most {MOST_SIDES}."
        )
    leaves = array.ravel().tolist()
    if any(type(leaf) is list for leaf in leaves):
        raise invalid(
            f"`{name}` must be nested lists of equal lengths and depths. "
            "Received: unequal lists. Pad the shorter lists, or send one row "
            "per request."
        )
    leaves = _typed(name, leaves, kind)
    return np.array(leaves, kind.as_numpy_dtype).reshape(array.shape)


def _typed(name, leaves, kind):
    wrong = {*map(type, leaves)} - _TYPES.get(kind, set())
    if wrong:
        [bad, *_] = [leaf for leaf in leaves if type(leaf) in wrong]
        raise _other_values(name, kind, _kind(bad))
    if kind == tf.string:
        return [_content(name, leaf) for leaf in leaves]
    bounds = _TOO_LARGE if kind == tf.float32 else {int: kind.max + 1}
    for leaf in leaves:
        if bounds.get(type(leaf), math.inf) <= abs(leaf) < math.inf:
            raise _other_values(name, kind, "a number that is too large")
    return leaves


def _other_values(name, kind, received):
    return invalid(
        f"`{name}` must have values of {kind.name}. Received: {received}. Send "
        "the type of the signature."
    )


def _content(name, value):
    try:
        if isinstance(value, str):
            return value.encode("utf-8")
        if not _is_b64(value) or not isinstance(value[_B64], str):
            raise _other_values(name, tf.string, "an object other than b64")
        return base64.b64decode(value[_B64], validate=True)
    except (binascii.Error, ValueError) as error:
        raise _other_values(name, tf.string, str(error)[:200]) from error


def nested_lists(name, array):
    """Returns an array as nested lists for JSON.

    Strings are encoded as base64 if they are not UTF-8 or if the tensor's name
    ends in `_bytes`.
    """
    flat = np.asarray(array).ravel().tolist()
    if array.dtype.kind == "f":  # Shortest decimal form of float32.
        flat = [*map(float, map(str, array.ravel()))]
    if array.dtype.kind in "OSU":
        as_bytes = name.endswith("_bytes")
        flat = [as_b64(value) if as_bytes else _text(value) for value in flat]
    return np.array(flat, object).reshape(array.shape).tolist()


def _text(content):
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError:
        return as_b64(content)


def _kind(value):
    names = {dict: "an object", list: "a list", str: "a string"}
    names |= {bool: "a boolean", type(None): "null"}
    return names.get(type(value), "a number")
