"""Messages and JSON documents that are no request to a certain model."""

import json

from google.protobuf import text_format
from google.protobuf.message import DecodeError

from tbnets.serving import protocol

MODEL = "scenes_localization"
TEXT, NUMBERS = "embed_phrases", "embed_regions"
"""Signatures of the model, each of one input."""
HUGE = b"a" * (protocol.MOST_BYTES + 1)


def message(
    sides=(2,),
    values='string_val: ["a", "b"]',
    dtype="DT_STRING",
    input="phrases",
    name=MODEL,
    signature=TEXT,
    more_shape="",
    more_spec="",
    more="",
):
    """Returns the bytes of a request, which is good if nothing is given."""
    shape = " ".join(f"dim {{size: {side}}}" for side in sides) + more_shape
    text = f"""
        model_spec {{
          name: "{name}" signature_name: "{signature}" {more_spec}
        }}
        inputs {{
          key: "{input}"
          value {{dtype: {dtype} tensor_shape {{{shape}}} {values}}}
        }}
        {more}
    """
    request = protocol.api("predict_pb2").PredictRequest()
    return text_format.Parse(text, request).SerializeToString()


_FLOATS = {
    "input": "region_features",
    "dtype": "DT_FLOAT",
    "signature": NUMBERS,
}
MESSAGES = {
    "content cut short": {
        **_FLOATS,
        "sides": (1, 157),
        "values": 'tensor_content: "abcde"',
    },
    "values of a huge shape": {**_FLOATS, "sides": (2**40,), "values": ""},
    "no values": {**_FLOATS, "sides": (2, 157), "values": ""},
    "a side below 0": {"sides": (-1,)},
    "sides whose product overflows": {"sides": (2**62, 2**62)},
    "a huge side beside none": {"sides": (0, 2**62)},
    "300 sides": {"sides": [1] * 300},
    "an unknown rank": {"more_shape": "unknown_rank: true"},
    "more strings than there are": {"sides": (3,)},
    "packed strings cut short": {"values": r'tensor_content: "\001\005abc"'},
    "packed strings without end": {
        "sides": (2**20,),
        "values": r'tensor_content: "\377\377\377\377\377\377\377\377\377"',
    },
    "no type": {"dtype": "DT_INVALID"},
    "a type that is none": {"dtype": "999"},
    "a resource": {"dtype": "DT_RESOURCE"},
    "a variant": {"dtype": "DT_VARIANT"},
    "an unknown model": {"name": "nobody"},
    "no model": {"name": ""},
    "a path for a model": {"name": "../../etc"},
    "an unknown version": {"more_spec": "version {value: 99}"},
    "a version below 0": {"more_spec": "version {value: -1}"},
    "an unknown label": {"more_spec": 'version_label: "nobody"'},
    "an unknown signature": {"signature": "fly"},
    "an unknown output": {"more": 'output_filter: "nobody"'},
    "an output twice": {"more": 'output_filter: ["embeddings", "embeddings"]'},
}
"""What is wrong -> arguments of `message`."""
_HEAD = b'{"signature_name": "embed_phrases", "inputs": '
DOCUMENTS = {
    "a list": b"[1]",
    "lists in lists": _HEAD + b"[" * 60 + b"]" * 60 + b"}",
    "half a character": _HEAD + b'["\\ud800"]}',
    "a huge string": _HEAD + b'["' + HUGE + b'"]}',
    "two million values": _HEAD + b"[" + b"0," * 2_000_000 + b"0]}",
    "NaN": _HEAD + b"[NaN]}",
    "null": _HEAD + b"[null]}",
    "uneven lists": _HEAD + b'[["a"], ["a", "b"]]}',
    "a list among strings": _HEAD + b'["a", ["b"]]}',
    "base64 that is none": _HEAD + b'[{"b64": "!!!"}]}',
    "base64 of a number": _HEAD + b'[{"b64": 1}]}',
    "base64 and more": _HEAD + b'[{"b64": "YQ==", "x": 1}]}',
    "another name": _HEAD + b'{"nobody": ["a"]}}',
    "rows and columns": _HEAD + b'["a"], "instances": ["a"]}',
    "neither": b"{}",
    "no rows": b'{"instances": []}',
    "a signature that is no string": b'{"signature_name": 3, "inputs": []}',
    "an unknown signature": b'{"signature_name": "fly", "inputs": []}',
}
"""What is wrong -> the body of a request by REST."""
PLACES = [
    ("DELETE", f"{MODEL}:predict"),
    ("POST", "nobody:predict"),
    ("POST", f"{MODEL}:fly"),
    ("POST", f"{MODEL}:classify"),
    ("POST", f"{MODEL}/versions/99:predict"),
    ("POST", f"{MODEL}/versions/{'9' * 5000}:predict"),
    ("POST", f"{MODEL}/labels/nobody:predict"),
    ("POST", "..%2f..%2fetc:predict"),
]
"""Methods and ends of paths that are not to be asked."""


def is_json(content):
    """Returns whether bytes are JSON that Python reads."""
    try:
        json.loads(content)
    except (ValueError, RecursionError):
        return False
    return True


def is_message(content):
    """Returns whether bytes are any `PredictRequest`."""
    try:
        protocol.api("predict_pb2").PredictRequest.FromString(content)
    except DecodeError:
        return False
    return True
