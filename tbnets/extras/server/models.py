"""The models of a server: what its protocols, gRPC and REST, ask.

::

    models = Models({"flickr8k": "served/flickr8k"})
    models.start()
    with models.using("flickr8k") as version:
        version.predict("embed_text", {"captions": ["a dog"]})
    models.close()

A client gets a model's newest version, or one by its number or label. It is
for trying; TensorFlow Serving is for production.
"""

import contextlib
import dataclasses
import functools
import itertools
import math
import re
import threading
import time

import tensorflow as tf

from tbnets import files
from tbnets.extras.server.versions import Versions, newest
from tbnets.files import CheckedFile
from tbnets.serving import export
from tbnets.serving.deployment import WARMUP_FILE, read_requests
from tbnets.serving.protocol import (
    RequestError,
    invalid,
    refusal,
    to_array,
    to_numpy,
)
from tbnets.serving.saved_files import read_graphs
from tbnets.serving.served import load_saved_model
from tbnets.startup import usable_cores

# Requests of several clients put together, by TensorFlow's own batching op.
#
# TensorFlow Serving's batching is the same code. It batches every signature of
# a model; here only those are that embed row by row. Where a batch fails, each
# of its requests is asked alone, so that only the bad one gets the error.


@dataclasses.dataclass(frozen=True)
class Batching:
    """How requests are put together; TensorFlow Serving's names.

    Args:
        max_batch_size: rows of a batch; a request with more goes alone.
        batch_timeout_micros: how long a batch waits to be filled.
        max_enqueued_batches: that wait; beyond, requests are refused.
        num_batch_threads: batches in work at once, of all models together.
        allowed_batch_sizes: to which batches are filled up; () for any.
    """

    max_batch_size: int = 32
    batch_timeout_micros: int = 1000
    max_enqueued_batches: int = 10
    num_batch_threads: int = dataclasses.field(default_factory=usable_cores)
    allowed_batch_sizes: tuple = ()


_ENTRY = re.compile(r"(\w+)\s*(?::\s*(\d+)|:?\s*\{\s*value\s*:\s*(\d+)\s*\})")


def read_parameters(path):
    """Reads a file of --batching_parameters_file.

    Args:
        path: text like `max_batch_size { value: 32 }`, an entry for each
            field of `Batching`; `allowed_batch_sizes: 8` once for each.

    Returns:
        A `Batching`; what is not in the file has its default.

    Raises:
        ValueError: names the file, and the entry that is none.
    """
    file = CheckedFile(path)
    text = "\n".join(line.partition("#")[0] for line in file.lines()[0])
    known = {field.name for field in dataclasses.fields(Batching)}
    entries = [(name, int(a or b)) for name, a, b in _ENTRY.findall(text)]
    sizes = [one for name, one in entries if name == "allowed_batch_sizes"]
    found = dict(entries) | {"allowed_batch_sizes": tuple(sizes)}
    rest = " ".join(_ENTRY.sub("", text).split()).replace(",", "")
    wrong = sorted(found.keys() - known) + [rest] * bool(rest)
    if wrong:
        file.refuse(
            f"entries of {', '.join(sorted(known))}",
            wrong[0],
            advice="Write, for example, max_batch_size { value: 32 }.",
        )
    made = Batching(**found)
    if 0 in (found | {"batch_timeout_micros": 1}).values():
        file.refuse("numbers above 0", found)
    rises = all(a < b for a, b in itertools.pairwise((0, *sizes)))
    if not rises or (sizes and sizes[-1] != made.max_batch_size):
        file.refuse(
            f"allowed_batch_sizes that rise to {made.max_batch_size}, the "
            "max_batch_size",
            sizes,
        )
    return made


class Batched:
    """A signature whose calls are put together.

    Args:
        function: concrete function of it, see `export.is_batchable`; what
            holds its variables must stay.
        options: `Batching`.
    """

    _queues = itertools.count()

    def __init__(self, function, options):
        [(name, spec)] = function.structured_input_signature[1].items()
        self._name, self._most = name, options.max_batch_size
        outputs = sorted(function.structured_outputs)
        more = dataclasses.asdict(options)
        # The threads are shared by all; a queue has calls of one function.
        more["shared_name"] = f"tbnets {dataclasses.astuple(options)}"
        more["batching_queue"] = str(next(self._queues))

        @tf.function(input_signature=[spec], autograph=False)
        def rows(values):
            answers = function(**{name: values})
            return [answers[one] for one in outputs]

        batch = rows.get_concrete_function()

        @tf.function(input_signature=[spec], autograph=False)
        def call(values):
            answers = tf.raw_ops.BatchFunction(
                in_tensors=[values],
                captured_tensors=batch.captured_inputs,
                f=batch,
                Tout=[one.dtype for one in batch.outputs],
                **more,
            )
            return dict(zip(outputs, answers))

        self._call = call.get_concrete_function()

    def __call__(self, inputs):
        """Calls the signature together with others.

        Args:
            inputs: name -> tensor, the one that there is.

        Returns:
            dict, name of an output -> tensor; None where it must be asked
            alone: it has no row or too many, or the batch has failed.

        Raises:
            tf.errors.UnavailableError: too many wait.
        """
        values = inputs[self._name]
        if not 0 < values.shape[0] <= self._most:
            return None
        try:
            return self._call(values)
        except tf.errors.UnavailableError:
            raise
        except tf.errors.OpError:
            return None


# One version of a model: loaded, its signatures called as a server does.
#
# What clients send is checked here, in the words of TensorFlow Serving: it may
# be of another type or shape than a signature takes.

MOST_ROWS = 4096
"""Of an input: a million of empty captions are few bytes, their network not."""
MOST_PAIRS = 2**18
"""Of two inputs: where comparing is learned, each pair goes through a network.
"""


class Version:
    """A loaded version.

    Args:
        number: which one.
        path: folder of the SavedModel.
        trust: as of `load_saved_model`.
        slots: semaphore, as many calls as shall run at once; None for any.
        batching: `Batching`; None for none.

    Attributes:
        served: the `Served` model.
        signature_defs: name -> `SignatureDef`, of each signature.

    Raises:
        ValueError: see `load_saved_model`; or a request that the model comes
            with to warm up by fails.
    """

    def __init__(self, number, path, trust=False, slots=None, batching=None):
        self.number = number
        self._slots = slots or threading.Semaphore(1 << 30)
        self.served = load_saved_model(path, trust)
        path, signatures = self.served.path, self.served.signatures
        self.signature_defs = dict(read_graphs(path)[0].signature_def)
        self._batched = {
            name: Batched(one, batching)
            for name, one in signatures.items()
            if batching and export.is_batchable(export.describe_signature(one))
        }
        for request in read_requests(path):
            self._warm_up(request)

    def inputs(self, signature=""):
        """Returns what a signature takes: name -> `tf.TensorSpec`.

        Args:
            signature: its name; "" for the default one.

        Raises:
            RequestError: there is none of this name.
        """
        signature = signature or export.DEFAULT
        function = self.served.signatures.get(signature)
        if function is None:
            raise RequestError(
                "FAILED_PRECONDITION",
                f'Serving signature key "{signature}" not found. There are: '
                f"{', '.join(sorted(self.served.signatures))}.",
            )
        return function.structured_input_signature[1]

    def predict(self, signature, inputs, output_filter=(), timeout=None):
        """Calls a signature.

        Args:
            signature: as in `inputs`.
            inputs: name -> array or tensor.
            output_filter: names of the outputs that are wanted; () for all.
            timeout: seconds that the call may wait for its turn; None for any.

        Returns:
            dict, name of an output -> NumPy array, sorted.

        Raises:
            RequestError: the request is wrong, or the graph raised an error.
        """
        signature = signature or export.DEFAULT
        specs = self.inputs(signature)
        _check_names(specs, inputs)
        tensors = {n: _tensor(specs[n], v) for n, v in inputs.items()}
        outputs = self.served.signatures[signature].structured_outputs
        _check_pairs(outputs, tensors)
        wanted = _wanted(outputs, output_filter)
        try:
            answers = self._call(signature, tensors, timeout)
            return {name: to_numpy(answers[name]) for name in wanted}
        except tf.errors.OpError as error:
            raise refusal(error) from error

    def _call(self, signature, tensors, timeout):
        """Calls a signature, together with others where it may be."""
        batched = self._batched.get(signature)
        answers = batched and batched(tensors)
        if answers:
            return answers
        # Each call takes memory while it runs.
        if not self._slots.acquire(timeout=timeout):
            raise RequestError("DEADLINE_EXCEEDED", "Deadline Exceeded")
        try:
            return self.served.signatures[signature](**tensors)
        finally:
            self._slots.release()

    def _warm_up(self, request):
        """Answers a `PredictRequest`, so that the next one is answered fast."""
        inputs = request.inputs.items()
        signature = request.model_spec.signature_name
        try:
            arrays = {name: to_array(name, proto) for name, proto in inputs}
            self.predict(signature, arrays, request.output_filter)
        except RequestError as error:
            error.args = (f"{WARMUP_FILE} of {signature}: {error}",)
            raise


def _check_names(specs, inputs):
    """Refuses inputs that are not those of a signature."""
    extra, missing = inputs.keys() - specs.keys(), specs.keys() - inputs.keys()
    if extra or missing:
        raise invalid(
            f"input size does not match signature: {len(inputs)}!="
            f"{len(specs)} len({_braced(inputs)}) != len({_braced(specs)}). "
            f"Sent extra: {_braced(extra)}. Missing but required: "
            f"{_braced(missing)}."
        )


def _check_pairs(outputs, tensors):
    """Refuses too many pairs of a signature that answers for each pair."""
    shapes = [spec.shape.as_list() for spec in outputs.values()]
    rows = {n: one.shape[0] for n, one in tensors.items() if one.shape.rank}
    if [None, None] in shapes and math.prod(rows.values()) > MOST_PAIRS:
        raise invalid(
            f"{' x '.join(f'`{name}`' for name in sorted(rows))} must be at "
            f"most {MOST_PAIRS} pairs of rows. Received: rows={rows}. Send "
            "fewer at once."
        )


def _tensor(spec, value):
    """Returns an input as a tensor, which must fit its `tf.TensorSpec`."""
    try:
        tensor = tf.convert_to_tensor(value)
    except (TypeError, ValueError, tf.errors.OpError) as error:
        raise invalid(f"tensor parsing error: {spec.name}") from error
    if tensor.dtype != spec.dtype:
        raise invalid(
            f"Expects `{spec.name}` to be {spec.dtype.name} but "
            f"{tensor.dtype.name} is provided."
        )
    if not spec.shape.is_compatible_with(tensor.shape):
        raise invalid(
            f"Expects `{spec.name}` to be of shape {tuple(spec.shape)} but "
            f"{tuple(tensor.shape)} is provided."
        )
    if spec.shape.rank and tensor.shape[0] > MOST_ROWS:
        raise invalid(
            f"`{spec.name}` must have at most {MOST_ROWS} rows. Received: "
            f"{tensor.shape[0]}. Send fewer at once."
        )
    return tensor


def _wanted(outputs, output_filter):
    """Returns the names of the outputs to return."""
    unknown = [name for name in output_filter if name not in outputs]
    if unknown:
        raise invalid(
            f"output tensor alias not found in signature: {unknown[0]} Outputs "
            f"expected to be in the set {_braced(outputs)}."
        )
    twice = {n for n in output_filter if list(output_filter).count(n) > 1}
    if twice:
        raise invalid(f"duplicate output tensor alias: {min(twice)}")
    return sorted(output_filter or outputs)


def _braced(names):
    return "{" + ",".join(sorted(names)) + "}"


MOST_REQUESTS = 64
"""Requests that are in work or wait, beyond which a client is sent away."""
MOST_FAILURES = 20
"""Requests that fail, of which a line is told, in a minute."""


class Models:
    """Models by their names.

    Args:
        folders: name -> folder, see `Versions`.
        trust: whether their graphs may have any ops.
        batching: `Batching`; None for none.
        policies: name -> function of the versions there are -> those that
            shall serve; where it has none, the newest.
        labels: name -> label -> version.
        poll_seconds: between two looks at the folders.
        tell: function of a line: what is loaded, and requests that fail, a
            few of them.
    """

    def __init__(
        self,
        folders,
        trust=False,
        batching=None,
        policies=None,
        labels=None,
        poll_seconds=1,
        tell=print,
    ):
        slots = threading.BoundedSemaphore(max(2, usable_cores()))
        load = functools.partial(
            Version, trust=trust, slots=slots, batching=batching
        )
        policies = policies or {}
        self._labels = labels or {}
        self._versions = {
            name: Versions(name, folder, load, policies.get(name, newest), tell)
            for name, folder in folders.items()
        }
        self._poll_seconds = poll_seconds
        self._requests = threading.BoundedSemaphore(MOST_REQUESTS)
        self._failures = _Failures(tell)
        self._ending = threading.Event()
        self._watcher = threading.Thread(target=self._watch, daemon=True)

    def names(self):
        """Returns the names of the models."""
        return list(self._versions)

    def start(self):
        """Loads each model, then watches their folders.

        Raises:
            ValueError: a model has no version, or one that does not load.
        """
        for versions in self._versions.values():
            versions.start()
        self._watcher.start()

    def close(self):
        """Ends the watching, and gives no version out any more."""
        self._ending.set()
        if self._watcher.is_alive():
            self._watcher.join()
        for versions in self._versions.values():
            versions.close()

    @contextlib.contextmanager
    def using(self, model, version=None, label=""):
        """Gives the `Version` that a client asks for, until the context ends.

        Args:
            model: its name.
            version: its number; None for the newest.
            label: or what it is labelled.

        Raises:
            RequestError: there is none of these, or too much is asked at once.
        """
        try:
            versions = self._of(model)
            if label:
                version = self._labelled(model, label)
            with self._admitted(), versions.using(version) as served:
                yield served
        except RequestError as error:
            self._failures.tell(f"{model}: {error.code}: {error}")
            raise

    def _labelled(self, model, label):
        version = self._labels.get(model, {}).get(label)
        if version is None:
            raise invalid(f"Unrecognized servable version label: {label}")
        return version

    @contextlib.contextmanager
    def _admitted(self):
        """Sends a client away where too many others are here."""
        requests = self._requests
        if not requests.acquire(blocking=False):
            raise RequestError(
                "UNAVAILABLE",
                f"The server works on {MOST_REQUESTS} requests, and takes no "
                "more. Ask again later.",
            )
        try:
            yield
        finally:
            requests.release()

    def metadata(self, model, version=None, label=""):
        """Returns (number of the version, name -> `SignatureDef`)."""
        with self.using(model, version, label) as served:
            return served.number, served.signature_defs

    def status(self, model, version=None, label=""):
        """Returns the `State` of a version, or of each, the newest first.

        Raises:
            RequestError: there is none, or it is asked for by a label.
        """
        if label:
            raise invalid(
                "A version must be asked for by its number. Received: the "
                f"label {label}. Send its number, or none for all versions."
            )
        return self._of(model, "find any versions of model").states(version)

    def _of(self, model, doing="serve model"):
        if model not in self._versions:
            raise RequestError(
                "NOT_FOUND",
                f"Could not {doing} {model}. There are: "
                f"{', '.join(self._versions)}.",
            )
        return self._versions[model]

    def _watch(self):
        while not self._ending.wait(self._poll_seconds):
            for name, versions in self._versions.items():
                try:
                    versions.look()
                except OSError as error:  # Files go while they are listed.
                    self._failures.tell(f"{name} is not looked at: {error}")


class _Failures:
    """Tells of requests that fail: some a minute, the others counted.

    Args:
        tell: function of a line.
    """

    def __init__(self, tell):
        self._tell = tell
        self._lock = threading.Lock()
        self._since, self._count = 0, 0

    def tell(self, line):
        """Tells a line, unless too many were told before."""
        now = time.monotonic()
        with self._lock:
            if now - self._since > 60:
                more = self._count - MOST_FAILURES
                if more > 0:
                    self._tell(f"{more} more requests failed")
                self._since, self._count = now, 0
            self._count += 1
            if self._count <= MOST_FAILURES:
                self._tell(files.readable(f"failed: {line[:300]}"))
