"""Loads and calls the models of a trial server.

::

    models = Models({"flickr8k": "served/flickr8k"})
    models.start()
    with models.using("flickr8k") as version:
        version.predict("embed_text", {"captions": ["a dog"]})
"""

import contextlib
import dataclasses
import functools
import itertools
import math
import re
import threading

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

# As in TensorFlow Serving, TensorFlow's own op batches the requests of several
# clients. Unlike in TensorFlow Serving, only signatures that embed row by row
# are batched. If a batch fails, its requests run separately, so that only the
# invalid request gets an error.


@dataclasses.dataclass(frozen=True)
class Batching:
    """Settings for batching requests, named as in TensorFlow Serving.

    Args:
        max_batch_size: maximum number of rows in a batch.
        batch_timeout_micros: microseconds to wait for more requests.
        max_enqueued_batches: number of waiting batches above which requests are
            rejected.
        num_batch_threads: number of parallel batches, across all models.
        allowed_batch_sizes: sizes to which batches are padded; () for any size.
    """

    max_batch_size: int = 32
    batch_timeout_micros: int = 1000
    max_enqueued_batches: int = 10
    num_batch_threads: int = dataclasses.field(default_factory=usable_cores)
    allowed_batch_sizes: tuple = ()


_ENTRY = re.compile(r"(\w+)\s*(?::\s*(\d+)|:?\s*\{\s*value\s*:\s*(\d+)\s*\})")


def read_parameters(path):
    """Reads a `Batching` from a file for `--batching_parameters_file`.

    The file has entries such as `max_batch_size { value: 32 }`, and one entry
    of `allowed_batch_sizes` for each size.
    """
    file = CheckedFile(path)
    text = "\n".join(line.partition("#")[0] for line in file.lines()[0])
    known = {field.name for field in dataclasses.fields(Batching)}
    entries = [(name, int(a or b)) for name, a, b in _ENTRY.findall(text)]
    sizes = [size for name, size in entries if name == "allowed_batch_sizes"]
    settings = dict(entries) | {"allowed_batch_sizes": tuple(sizes)}
    unread = " ".join(_ENTRY.sub("", text).split()).replace(",", "")
    wrong = sorted(settings.keys() - known) + [unread] * bool(unread)
    if wrong:
        file.refuse(
            f"entries of {', '.join(sorted(known))}",
            wrong[0],
            advice="Write, for example, max_batch_size { value: 32 }.",
        )
    batching = Batching(**settings)
    if 0 in (settings | {"batch_timeout_micros": 1}).values():
        file.refuse("numbers above 0", settings)
    rises = all(a < b for a, b in itertools.pairwise((0, *sizes)))
    if not rises or (sizes and sizes[-1] != batching.max_batch_size):
        file.refuse(
            "increasing allowed_batch_sizes up to "
            f"{batching.max_batch_size}, the max_batch_size",
            sizes,
        )
    return batching


_QUEUES = itertools.count()


def batched(function, options):
    """Returns a function that batches concurrent calls to a signature.

    `export.is_batchable` must be true for `function`. `options` is a
    `Batching`.
    """
    [(name, spec)] = function.structured_input_signature[1].items()
    outputs = sorted(function.structured_outputs)
    settings = dataclasses.asdict(options)
    # The name makes all queues share threads. Each queue has the calls of one
    # function.
    settings["shared_name"] = f"tbnets {dataclasses.astuple(options)}"
    settings["batching_queue"] = str(next(_QUEUES))

    @tf.function(input_signature=[spec], autograph=False)
    def rows(values):
        answers = function(**{name: values})
        return [answers[output] for output in outputs]

    batch = rows.get_concrete_function()

    @tf.function(input_signature=[spec], autograph=False)
    def call(values):
        answers = tf.raw_ops.BatchFunction(
            in_tensors=[values],
            captured_tensors=batch.captured_inputs,
            f=batch,
            Tout=[tensor.dtype for tensor in batch.outputs],
            **settings,
        )
        return dict(zip(outputs, answers))

    return call.get_concrete_function()


# Inputs from clients may have the wrong dtype or shape. `Version` checks them,
# with the error messages of TensorFlow Serving.

MOST_ROWS = 4096
"""Maximum number of rows in an input. A million empty captions are small but
take a long time."""
MOST_PAIRS = 2**18
"""Maximum number of pairs of rows from two inputs. A learned similarity runs a
network for each pair."""


class Version:
    """A loaded version of a model.

    Args:
        number: number of the version.
        path: folder of the SavedModel.
        trust: whether to allow all ops in the model's graph.
        slots: semaphore that limits concurrent calls, or None.
        batching: `Batching`, or None.

    Attributes:
        served: the `Served` model.
        signature_defs: name -> `SignatureDef`.
    """

    def __init__(self, number, path, trust=False, slots=None, batching=None):
        self.number = number
        self._slots = slots or threading.Semaphore(1 << 30)
        self.served = load_saved_model(path, trust)
        path, signatures = self.served.path, self.served.signatures
        self.signature_defs = dict(read_graphs(path)[0].signature_def)
        self._batching = batching
        self._batched = {
            name: batched(f, batching)
            for name, f in signatures.items()
            if batching and export.is_batchable(export.describe_signature(f))
        }
        for request in read_requests(path):
            self._warm_up(request)

    def inputs(self, signature=""):
        """Returns the input `tf.TensorSpec`s of a signature, by name.

        The signature "" is the default signature.
        """
        signature = signature or export.DEFAULT
        function = self.served.signatures.get(signature)
        if function is None:
            raise RequestError(
                "FAILED_PRECONDITION",
                f'Serving signature key "{signature}" not found. The model has '
                f"{', '.join(sorted(self.served.signatures))}.",
            )
        return function.structured_input_signature[1]

    def predict(self, signature, inputs, output_filter=(), timeout=None):
        """Calls a signature and returns a sorted dict of output arrays.

        `output_filter` names the outputs to return; () stands for all.
        `timeout` is the maximum time in seconds to wait for a slot, or None.
        Raises RequestError if the request is invalid or the graph raises an
        error.
        """
        signature = signature or export.DEFAULT
        specs = self.inputs(signature)
        _check_names(specs, inputs)
        tensors = {n: _tensor(specs[n], v) for n, v in inputs.items()}
        outputs = self.served.signatures[signature].structured_outputs
        _check_pairs(outputs, tensors)
        names = _wanted(outputs, output_filter)
        try:
            answers = self._call(signature, tensors, timeout)
            return {name: to_numpy(answers[name]) for name in names}
        except tf.errors.OpError as error:
            raise refusal(error) from error

    def _call(self, signature, tensors, timeout):
        if signature in self._batched:
            [rows] = tensors.values()
            if 0 < rows.shape[0] <= self._batching.max_batch_size:
                try:
                    return self._batched[signature](rows)
                except tf.errors.UnavailableError:  # The queue is full.
                    raise
                except tf.errors.OpError:
                    pass  # The request runs again, separately.
        # Limits the memory of concurrent calls.
        if not self._slots.acquire(timeout=timeout):
            raise RequestError("DEADLINE_EXCEEDED", "Deadline Exceeded")
        try:
            return self.served.signatures[signature](**tensors)
        finally:
            self._slots.release()

    def _warm_up(self, request):
        inputs = request.inputs.items()
        signature = request.model_spec.signature_name
        try:
            arrays = {name: to_array(name, proto) for name, proto in inputs}
            self.predict(signature, arrays, request.output_filter)
        except RequestError as error:
            error.args = (f"{WARMUP_FILE} of {signature}: {error}",)
            raise


def _check_names(specs, inputs):
    extra, missing = inputs.keys() - specs.keys(), specs.keys() - inputs.keys()
    if extra or missing:
        raise invalid(
            f"input size does not match signature: {len(inputs)}!="
            f"{len(specs)} len({_braced(inputs)}) != len({_braced(specs)}). "
            f"Sent extra: {_braced(extra)}. Missing but required: "
            f"{_braced(missing)}."
        )


def _check_pairs(outputs, tensors):
    shapes = [spec.shape.as_list() for spec in outputs.values()]
    rows = {n: x.shape[0] for n, x in tensors.items() if x.shape.rank}
    if [None, None] in shapes and math.prod(rows.values()) > MOST_PAIRS:
        raise invalid(
            f"{' x '.join(f'`{name}`' for name in sorted(rows))} must be at "
            f"most {MOST_PAIRS} pairs of rows. Received: rows={rows}. Send "
            "fewer at once."
        )


def _tensor(spec, value):
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
"""Maximum number of requests at once. More requests are rejected."""


class Models:
    """The models of a server.

    Args:
        folders: model name -> folder, as in `Versions`.
        trust: whether to allow all ops in the models' graphs.
        batching: `Batching`, or None.
        policies: model name -> the `wanted` argument of its `Versions`.
        labels: model name -> dict that maps labels to versions.
        poll_seconds: seconds between two checks of the folders.
        tell: function that prints a line.
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
        self._tell = tell
        self._ending = threading.Event()
        self._watcher = threading.Thread(target=self._watch, daemon=True)

    def names(self):
        """Returns the names of the models."""
        return list(self._versions)

    def start(self):
        """Loads all models, then watches their folders."""
        for versions in self._versions.values():
            versions.start()
        self._watcher.start()

    def close(self):
        """Stops watching the folders."""
        self._ending.set()
        if self._watcher.is_alive():
            self._watcher.join()

    @contextlib.contextmanager
    def using(self, model, version=None, label=""):
        """Yields the `Version` for a request, by default the newest."""
        is_admitted = self._requests.acquire(blocking=False)
        try:
            if not is_admitted:
                raise RequestError(
                    "UNAVAILABLE",
                    f"The server already has {MOST_REQUESTS} requests. Try "
                    "again later.",
                )
            yield self._version(model, version, label)
        except RequestError as error:
            line = f"failed: {model}: {error.code}: {error}"
            self._tell(files.readable(line[:300]))
            raise
        finally:
            if is_admitted:
                self._requests.release()

    def _version(self, model, version, label):
        versions = self._of(model)
        if label:
            version = self._labels.get(model, {}).get(label)
            if version is None:
                raise invalid(f"Unrecognized servable version label: {label}")
        return versions.get(version)

    def metadata(self, model, version=None, label=""):
        """Returns a version's number and its `SignatureDef`s by name."""
        with self.using(model, version, label) as served:
            return served.number, served.signature_defs

    def status(self, model, version=None, label=""):
        """Returns the `State`s of one version or all versions, newest first."""
        if label:
            raise invalid(
                "A version must be requested by its number. Received: the "
                f"label {label}. Send its number, or none for all versions."
            )
        return self._of(model, "find any versions of model").states(version)

    def _of(self, model, doing="serve model"):
        if model not in self._versions:
            raise RequestError(
                "NOT_FOUND",
                f"Could not {doing} {model}. The server has "
                f"{', '.join(self._versions)}.",
            )
        return self._versions[model]

    def _watch(self):
        while not self._ending.wait(self._poll_seconds):
            for name, versions in self._versions.items():
                try:
                    versions.look()
                except OSError as error:  # Files may disappear meanwhile.
                    self._tell(f"{name} cannot be read: {error}")
