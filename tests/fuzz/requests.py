"""Malformed requests to exported models, sent as a C++ server would.

A model is loaded into a session of a process of its own, with a limit of
memory. A request goes into the session as it is: nothing of Python looks at
its shapes or types before. After each the same good request must be answered
as before, bit for bit.
"""

import collections
import io
import resource
from typing import NamedTuple

import numpy as np
import PIL.Image

from tbnets.serving import zoo
from tests import fresh
from tests.fuzz.mutations import mutate

ADDRESS_SPACE = 6 * 2**30
PATIENCE = 300
"""Seconds without an answer after which a model is taken to hang."""
KINDS = ("refused", "answered", "fault")
LARGEST = 2000


class Input(NamedTuple):
    """What a signature says of an input.

    Args:
        name: as requests give it.
        dtype: NumPy's.
        shape: tuple, None for any size.
    """

    name: str
    dtype: np.dtype
    shape: tuple


def run(count, seed, folder=None):
    """Sends malformed requests to all models; prints faults and a table.

    Args:
        count: requests, spread over all signatures.
        seed: of all of them.
        folder: of the models, each with a SavedModel in `1`; None for the
            zoo.

    Returns:
        The number of faults.
    """
    folder = folder or zoo.folder()
    paths = sorted(path.parent.parent for path in folder.glob("*/1/*.pb"))
    paths = list(dict.fromkeys(paths))
    counts = collections.defaultdict(collections.Counter)
    for place, path in enumerate(paths):
        share = count // len(paths) + (place < count % len(paths))
        for name, what, kind, detail in _asked(path, share, seed):
            counts[path.name, name][kind] += 1
            if kind == "fault":
                print(f"{path.name} {name}: {what}: {detail}")
    print(format_table(counts))
    return sum(one["fault"] for one in counts.values())


def format_table(counts):
    """Returns a Markdown table: a row for each model and signature."""
    lines = ["| model | signature | sent | refused | answered | faults |"]
    lines.append("|---|---|---:|---:|---:|---:|")
    total = collections.Counter()
    for (model, name), one in counts.items():
        total.update(one)
        lines.append(_row(model, name, one))
    return "\n".join([*lines, _row("all", "", total)])


def _row(model, name, count):
    numbers = [sum(count.values()), *(count[kind] for kind in KINDS)]
    return f"| {model} | {name} | {' | '.join(map(str, numbers))} |"


def _asked(path, count, seed):
    """Yields (signature, what was sent, kind, detail) of requests to a model.

    Where the process dies, that is a fault, and another one goes on behind.
    """
    first = 0
    while first < count:
        ours, theirs = fresh.CONTEXT.Pipe(duplex=False)
        arguments = (theirs, str(path / "1"), range(first, count), seed)
        process = fresh.CONTEXT.Process(target=_serve, args=arguments)
        process.start()
        theirs.close()
        sent = ("?", "?")
        try:
            while first < count:
                if not ours.poll(PATIENCE):
                    raise TimeoutError
                is_answer, *told = ours.recv()
                if not is_answer:  # What is sent now.
                    sent = told
                    continue
                yield (*sent, *told)
                first += 1
        except (EOFError, TimeoutError) as error:
            hangs = isinstance(error, TimeoutError)
            process.kill()
            process.join()
            reason = "hangs" if hangs else f"exit code {process.exitcode}"
            yield (*sent, "fault", reason)
            first += 1
        finally:
            process.kill()
            process.join()


def _serve(connection, path, numbers, seed):
    """Answers requests, in a process of its own."""
    import tensorflow_text  # noqa: F401

    resource.setrlimit(resource.RLIMIT_AS, (ADDRESS_SPACE, ADDRESS_SPACE))
    served = Served(path)
    for number in numbers:
        name, what, inputs = served.request(number, seed)
        connection.send((False, name, what))
        connection.send((True, *served.judge(name, inputs)))


class Served:
    """A SavedModel in a session.

    Args:
        path: its folder.

    Attributes:
        names: of its signatures.
        good: signature -> the good request.
    """

    def __init__(self, path):
        import tensorflow as tf

        self._errors = tf.errors.OpError
        self._session = tf.compat.v1.Session(graph=tf.Graph())
        with self._session.graph.as_default():
            graph = tf.compat.v1.saved_model.load(
                self._session, ["serve"], path
            )
        self._signatures = {
            name: one
            for name, one in graph.signature_def.items()
            if not name.startswith(("__", "serving_default"))
        }
        self.names = sorted(self._signatures)
        self.good = {name: self._good(name) for name in self.names}
        self._wanted = {}
        self._callables = {}

    def inputs(self, name):
        """Returns the `Input`s of a signature."""
        return inputs_of(self._signatures[name])

    def call(self, name, inputs):
        """Returns the outputs of a signature: name -> array."""
        key = (name, *inputs)
        if key not in self._callables:  # Making one optimises the graph.
            self._callables[key] = self._callable(name, inputs)
        answers = self._callables[key](*inputs.values())
        outputs = sorted(self._signatures[name].outputs)
        return dict(zip(outputs, map(np.asarray, answers)))

    def _callable(self, name, inputs):
        """Returns what takes values of some inputs as they are."""
        from tensorflow.core.protobuf import config_pb2

        signature = self._signatures[name]
        feeds = [
            signature.inputs[key].name if key in signature.inputs else key
            for key in inputs
        ]
        fetches = [value.name for _, value in sorted(signature.outputs.items())]
        return self._session._make_callable_from_options(
            config_pb2.CallableOptions(feed=feeds, fetch=fetches)
        )

    def judge(self, name, inputs):
        """Returns (kind, detail) of a request and of the good one after it."""
        if name not in self._wanted:
            self._wanted[name] = self.call(name, self.good[name])
        try:
            outputs = self.call(name, inputs)
        except self._errors as error:
            kind, detail = "refused", error.message.split("\n")[0][:200]
        else:
            kind, detail = "answered", ""
            for output, value in outputs.items():
                if value.dtype.kind == "f" and not np.isfinite(value).all():
                    kind, detail = "fault", f"{output} is not finite"
        again = self.call(name, self.good[name])
        for output, value in self._wanted[name].items():
            if not np.array_equal(value, again[output]):
                kind, detail = "fault", f"{output} of the next one differs"
        return kind, detail

    def request(self, number, seed):
        """Returns (signature, what is wrong, inputs) of a malformed request."""
        generator = np.random.default_rng([seed, number])
        name = self.names[number % len(self.names)]
        specs = self.inputs(name)
        spec = specs[generator.integers(len(specs))]
        ways = list(ways_of(spec))
        what = ways[generator.integers(len(ways))]
        inputs = broken(self.good[name], spec, what, generator)
        return name, f"{spec.name} {what}", inputs

    def _good(self, name):
        return {spec.name: example(spec) for spec in self.inputs(name)}


def inputs_of(signature):
    """Returns the `Input`s of a `SignatureDef`."""
    import tensorflow as tf

    return [
        Input(
            key,
            np.dtype(tf.dtypes.as_dtype(info.dtype).as_numpy_dtype),
            tuple(
                None if dim.size < 0 else dim.size
                for dim in info.tensor_shape.dim
            ),
        )
        for key, info in sorted(signature.inputs.items())
    ]


def broken(good, spec, what, generator):
    """Returns inputs of which one is wrong, in one of the `ways_of` it."""
    inputs = dict(good)
    if what == "missing":
        del inputs[spec.name]
    elif what == "surplus":
        inputs["surplus:0"] = np.zeros([2], np.float32)
    else:
        way = ways_of(spec)[what]
        inputs[spec.name] = way(inputs[spec.name], generator)
    return inputs


def example(spec):
    """Returns a good value of an input."""
    if spec.name == "image_bytes":
        photo = _photo()
        return np.array([photo] if spec.shape else photo, object)
    if spec.name == "boxes":
        return np.array([[0, 0, 60, 40], [5, 8, 30, 20]], np.float32)
    if spec.name == "trees":
        return np.array(
            [
                [
                    [2, 3, 1, 0, 0, 1],
                    [3, 3, 1, 0, 1, 2],
                    [4, 4, 1, 0, 2, 3],
                    [0, 4, 2, 1, 0, 2],
                    [0, 0, 3, 0, 0, 3],
                ]
            ],
            np.int32,
        )
    if spec.dtype == np.object_:
        return np.array([b"a dog in the snow", b"a red ball"], object)
    shape = [2 if size is None else size for size in spec.shape]
    return np.random.default_rng(1).normal(size=shape).astype(spec.dtype)


def _photo(format="JPEG"):
    """Returns a photo of 60 x 40 pixels."""
    pixels = np.random.default_rng(0).integers(0, 256, (40, 60, 3), np.uint8)
    file = io.BytesIO()
    PIL.Image.fromarray(pixels).save(file, format)
    return file.getvalue()


def _strings(change):
    """Returns a way that puts a string among others, or in place of one."""

    def way(value, generator):
        new = change(generator)
        if not value.shape:
            return np.array(new, object)
        return np.array([*value[:1], new, *value[1:]], object)

    return way


def _reshaped(value, generator):
    """Returns a value of a rank more or less."""
    if value.ndim and generator.integers(2):
        return value[0] if value.ndim > 1 or len(value) else value.sum()
    return value[None]


def _of_another_type(value, generator):
    other = [np.float32, np.int64, np.bool_, np.complex64][
        generator.integers(4)
    ]
    if value.dtype == other or value.dtype == np.object_:
        return np.zeros(value.shape, np.float64)
    return value.astype(other)


def _wider(value, generator):
    extra = np.zeros([*value.shape[:-1], 1], value.dtype)
    if generator.integers(2):
        return value[..., :-1]
    return np.concatenate([value, extra], axis=-1)


def _with_number(number):
    def way(value, generator):
        value = value.copy()
        place = tuple(generator.integers(value.shape))
        value[place] = number
        return value

    return way


def _broken_photo(format):
    def change(generator):
        number = int(generator.integers(1 << 30))
        return bytes(mutate(_photo(format), 0, number).content)

    return change


def _bytes(generator):
    return generator.bytes(int(generator.integers(1, 5000)))


_ANY = {
    "missing": None,
    "surplus": None,
    "of another rank": _reshaped,
    "of another type": _of_another_type,
    "empty": lambda value, _: value[:0] if value.ndim else value[None][:0],
}
_TEXTS = {
    "of random bytes": _strings(_bytes),
    "of thousands of words": _strings(
        lambda generator: b"a dog " * int(generator.integers(1, 50_000))
    ),
    "of one long word": _strings(
        lambda generator: b"a" * int(generator.integers(1, 1_000_000))
    ),
    "without words": _strings(lambda _: b" \0 ?! \xf0\x9f"),
    "many": lambda value, generator: np.repeat(
        value, int(generator.integers(1, LARGEST)), axis=0
    ),
}
_PHOTOS = {
    "of random bytes": _strings(_bytes),
    "of no bytes": _strings(lambda _: b""),
    "a mutated JPEG": _strings(_broken_photo("JPEG")),
    "a mutated PNG": _strings(_broken_photo("PNG")),
    "a GIF": _strings(lambda _: _photo("GIF")),
    "a huge PNG": _strings(
        lambda _: _photo("PNG")[:16] + b"\0\1\0\0" * 2 + _photo("PNG")[24:]
    ),
}
_NUMBERS = {
    "NaN": _with_number(np.nan),
    "infinite": _with_number(np.inf),
    "of another width": _wider,
    "many": lambda value, generator: np.repeat(
        value, int(generator.integers(1, LARGEST)), axis=0
    ),
}
_BOXES = {
    **_NUMBERS,
    "inverted": lambda value, _: value[:, ::-1].copy(),
    "far away": lambda value, _: value + 1e6,
}
_TREES = {
    "of random numbers": lambda value, generator: generator.integers(
        -9, 9, value.shape
    ).astype(np.int32),
    "of a level too high": _with_number(2**30),
    "of a negative number": _with_number(-1),
    "with another number": lambda value, generator: _with_number(
        int(generator.integers(6))
    )(value, generator),
    "of another width": _wider,
    "of many nodes": lambda value, generator: np.zeros(
        [1, int(generator.integers(900, 100_000)), 6], np.int32
    ),
}


def ways_of(spec):
    """Returns what can be wrong with an input: name -> function."""
    ways = _TEXTS if spec.dtype == np.object_ else _NUMBERS
    named = {"image_bytes": _PHOTOS, "boxes": _BOXES, "trees": _TREES}
    return {**_ANY, **named.get(spec.name, ways)}
