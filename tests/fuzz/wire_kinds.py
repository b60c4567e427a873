"""What can be wrong with a request that comes over the wire.

What is wrong with a tensor is of `tests.fuzz.requests`; here it is sent by
gRPC and by REST, and so is what no tensor is: messages cut short, shapes of
terabytes, JSON without end.
"""

from typing import NamedTuple

import numpy as np

from tests.fuzz import requests

_REFUSED = {
    *("missing", "surplus", "of another rank", "of another type", "NaN"),
    *("infinite", "of another width", "inverted", "of a negative number"),
}
_NO_PHOTO = {"of random bytes", "of no bytes", "a GIF", "a huge PNG"}
_ANY_TEXT = {"of random bytes", "of one long word", "without words", "many"}


class Kind(NamedTuple):
    """A kind of malformed request.

    Args:
        wire: "gRPC" or "REST".
        model: which is asked.
        signature: of it.
        what: is wrong.
        wanted: "refused", "answered", or "" where both may be right.
        send: function of `Wire` and a generator -> `Reply`.
    """

    wire: str
    model: str
    signature: str
    what: str
    wanted: str
    send: object


def kinds_of(wire):
    """Returns all `Kind`s that there are for the models of a `Wire`."""
    kinds = [
        Kind(by, model, signature, f"{spec.name} {what}", *rest)
        for model, signatures in wire.specs.items()
        for signature, specs in signatures.items()
        for spec in specs
        for what in requests.ways_of(spec)
        for by in ("gRPC", "REST")
        for rest in [_of_tensor(by, model, signature, spec, what)]
    ]
    model, text, texts, numbers = _plain(wire.specs)
    for what, change in GRPC.items():
        signature = numbers if what in _OF_NUMBERS else text
        send = _changed(model, signature, change)
        kinds.append(Kind("gRPC", model, signature, what, "refused", send))
    for what, change in REST.items():
        send = _sent(model, text, texts, change)
        kinds.append(Kind("REST", model, text, what, "refused", send))
    return kinds


def one_of_each(kinds):
    """Returns those that no other one of the same wire and wrong precedes."""
    return list({(one.wire, one.what): one for one in kinds[::-1]}.values())


def _of_tensor(by, model, signature, spec, what):
    """Returns (what is wanted, what sends) of a wrong tensor."""

    def send(wire, generator):
        good = wire.good(model, signature)
        inputs = requests.broken(good, spec, what, generator)
        return wire.ask(by, model, signature, inputs)

    is_kept = "embed_image", "localize"
    wanted = ""
    if what in _REFUSED:
        # JSON has numbers of one type only.
        is_same = by == "REST" and what == "of another type"
        wanted = "" if is_same and spec.dtype.kind in "fi" else "refused"
    elif spec.name == "image_bytes" and what in _NO_PHOTO:
        wanted = "answered" if signature in is_kept else "refused"
    elif spec.dtype == np.object_ and what in _ANY_TEXT:
        wanted = "answered"
    return wanted, send


def _plain(specs):
    """Returns a model, its signature of texts, their name, one of numbers."""
    for model, signatures in specs.items():
        of = {
            tuple(spec.dtype.kind for spec in one): name
            for name, one in signatures.items()
        }
        if ("O",) in of and ("f",) in of:
            return model, of["O",], signatures[of["O",]][0].name, of["f",]
    raise LookupError("no model has a signature of texts and one of numbers")


def _changed(model, signature, change):
    """Returns what sends a message that `change` has put its hand on."""

    def send(wire, generator):
        request = wire.message(model, signature, wire.good(model, signature))
        changed = change(wire, request, *request.inputs.values())
        return wire.by_grpc(*(changed or [request]))

    return send


def _set(**fields):
    """Returns a change of the tensor's fields, or of its shape."""

    def change(wire, request, tensor):
        for name, value in fields.items():
            if name == "sides":
                del tensor.tensor_shape.dim[:]
                for size in value:
                    tensor.tensor_shape.dim.add(size=size)
            elif isinstance(value, list):
                tensor.ClearField(name)
                getattr(tensor, name).extend(value)
            else:
                setattr(tensor, name, value)

    return change


def _spec(**fields):
    """Returns a change of which model is asked."""

    def change(wire, request, tensor):
        for name, value in fields.items():
            if name == "version":
                request.model_spec.version.value = value
            else:
                setattr(request.model_spec, name, value)

    return change


def _filter(*names):
    return lambda wire, request, tensor: request.output_filter.extend(names)


def _method(name):
    def change(wire, request, tensor):
        return request, f"/tensorflow.serving.PredictionService/{name}"

    return change


def _unknown_rank(wire, request, tensor):
    tensor.tensor_shape.unknown_rank = True


def _huge(wire, request, tensor):
    tensor.string_val[0] = b"a" * wire.huge


def _cut(wire, request, tensor):
    tensor.tensor_content = tensor.tensor_content[:-3]


_OF_NUMBERS = {"content cut short", "values of a huge shape", "no values"}
GRPC = {
    "content cut short": _cut,
    "values of a huge shape": _set(sides=[2**40], tensor_content=b""),
    "no values": _set(tensor_content=b""),
    "a side below 0": _set(sides=[-1]),
    "sides whose product overflows": _set(sides=[2**62, 2**62]),
    "a huge side beside none": _set(sides=[0, 2**62]),
    "300 sides": _set(sides=[1] * 300),
    "an unknown rank": _unknown_rank,
    "more strings than there are": _set(sides=[3]),
    "packed strings cut short": _set(
        string_val=[], sides=[2], tensor_content=b"\1\5abc"
    ),
    "packed strings without end": _set(
        string_val=[], sides=[2**20], tensor_content=b"\xff" * 9
    ),
    "no type": _set(dtype=0),
    "a type that is none": _set(dtype=999),
    "a resource": _set(dtype=20),
    "a variant": _set(dtype=21),
    "an unknown model": _spec(name="nobody"),
    "no model": _spec(name=""),
    "a path for a model": _spec(name="../../etc"),
    "an unknown version": _spec(version=99),
    "a version below 0": _spec(version=-1),
    "an unknown label": _spec(version_label="nobody"),
    "an unknown signature": _spec(signature_name="fly"),
    "an unknown output": _filter("nobody"),
    "an output twice": _filter("embeddings", "embeddings"),
    "a huge string": _huge,
    "bytes that are no message": lambda *_: [b"\xff" * 100],
    "a message cut short": lambda wire, request, tensor: [
        request.SerializeToString()[:-3]
    ],
    "an empty message": lambda *_: [b""],
    "an unknown method": _method("Fly"),
    "another method": _method("Classify"),
}


def _sent(model, signature, name, change):
    """Returns what sends a body, or path and body, that are wrong."""

    def send(wire, generator):
        path = f"/v1/models/{model}:predict"
        head = f'{{"signature_name": "{signature}", "inputs": '.encode()
        changed = change(wire, head, path)
        if isinstance(changed, bytes):
            changed = "POST", path, changed
        return wire.by_rest(*changed)

    return send


def _inputs(tail):
    """Returns a change that ends the document otherwise."""
    return lambda wire, head, path: head + tail


def _to(method="POST", **ends):
    """Returns a change of method or path."""

    def change(wire, head, path):
        for old, new in ends.items():
            path = path.replace({"verb": ":predict"}.get(old, old), new)
        return method, path, head + b'["a"]}'

    return change


REST = {
    "no body": lambda *_: b"",
    "a list": lambda *_: b"[1]",
    "JSON cut short": _inputs(b'["a"'),
    "JSON that is too deep": _inputs(b"[" * 100_000),
    "lists in lists": _inputs(b"[" * 60 + b"]" * 60 + b"}"),
    "bytes that are no text": _inputs(b'["\xff\xfe"]}'),
    "half a character": _inputs(b'["\\ud800"]}'),
    "a huge string": lambda wire, head, _: (
        head + b'["' + b"a" * wire.huge + b'"]}'
    ),
    "a number without end": _inputs(b"9" * 5000 + b"}"),
    "two million values": _inputs(b"[" + b"0," * 2_000_000 + b"0]}"),
    "NaN": _inputs(b"[NaN]}"),
    "null": _inputs(b"[null]}"),
    "uneven lists": _inputs(b'[["a"], ["a", "b"]]}'),
    "a list among strings": _inputs(b'["a", ["b"]]}'),
    "base64 that is none": _inputs(b'[{"b64": "!!!"}]}'),
    "base64 of a number": _inputs(b'[{"b64": 1}]}'),
    "base64 and more": _inputs(b'[{"b64": "YQ==", "x": 1}]}'),
    "another name": _inputs(b'{"nobody": ["a"]}}'),
    "rows and columns": _inputs(b'["a"], "instances": ["a"]}'),
    "neither": lambda *_: b"{}",
    "no rows": lambda *_: b'{"instances": []}',
    "a signature that is no string": lambda *_: (
        b'{"signature_name": 3, "inputs": []}'
    ),
    "an unknown signature": lambda *_: (
        b'{"signature_name": "fly", "inputs": []}'
    ),
    "an unknown method": _to("DELETE"),
    "an unknown path": _to(models="nobody"),
    "an unknown verb": _to(verb=":fly"),
    "another verb": _to(verb=":classify"),
    "an unknown version": _to(verb="/versions/99:predict"),
    "a version without end": _to(verb=f"/versions/{'9' * 5000}:predict"),
    "an unknown label": _to(verb="/labels/nobody:predict"),
    "a path that goes up": lambda wire, head, path: (
        "POST",
        "/v1/models/..%2f..%2fetc:predict",
        head + b'["a"]}',
    ),
}
