"""Loads, calls, replaces and unloads the versions of a model.

The old version serves requests while a new version is loaded. A replaced
version remains in memory until its running requests end. If a version fails to
load, loading is tried again when its files change.
"""

import math
import threading
from typing import NamedTuple

import tensorflow as tf

from tbnets.errors import InputError, UserError
from tbnets.extras.server.batching import batched
from tbnets.serving import export, saved_files
from tbnets.serving.deployment import WARMUP_FILE, read_requests
from tbnets.serving.embedding_cache import stamp_of
from tbnets.serving.protocol import (
    RequestError,
    invalid,
    refusal,
    to_array,
    to_numpy,
)
from tbnets.serving.served import load_saved_model

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
        graphs = saved_files.read_graphs(path)
        self.signature_defs = dict(graphs[0].signature_def)
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


class State(NamedTuple):
    """The state of a version, for GetModelStatus.

    `state` is the name of a `ModelVersionStatus.State`. `code` is "OK" or the
    name of the error's gRPC status. `message` describes the error.
    """

    version: int
    state: str
    code: str = "OK"
    message: str = ""


def newest(numbers, count=1):
    """Returns the `count` largest version numbers."""
    return sorted(numbers)[-count:]


class Versions:
    """The versions of a model.

    Args:
        name: name of the model.
        folder: folder that contains `VERSION/saved_model.pb`, or a run folder.
        load: function that takes a number and a path, and returns a `Version`.
        wanted: function that selects the version numbers to serve, by default
            the newest.
        tell: function that prints a line.
    """

    def __init__(self, name, folder, load, wanted=newest, tell=print):
        self.name = name
        self._folder = folder
        self._load, self._wanted, self._tell = load, wanted, tell
        # Requests read these two dicts in other threads, so that each change
        # makes a new dict.
        self._states = {}
        self._serving = {}  # number -> `Version`
        self._failed = {}  # number -> files that failed to load

    def states(self, version=None):
        """Returns the `State`s of one version or all versions, newest first."""
        states = sorted(self._states.values(), reverse=True)
        if version is not None:
            states = [state for state in states if state.version == version]
        if not states:
            which = "any versions" if version is None else f"version {version}"
            raise RequestError(
                "NOT_FOUND", f"Could not find {which} of model {self.name}"
            )
        return states

    def get(self, version=None):
        """Returns a loaded version, by default the newest."""
        serving, request = self._serving, f"Specific({self.name}, {version})"
        if version is None:
            version = max(serving, default=None)
            request = f"Latest({self.name})"
        if version not in serving:
            raise RequestError(
                "NOT_FOUND", f"Servable not found for request: {request}"
            )
        return serving[version]

    def start(self):
        """Loads the existing versions."""
        self.look()
        for state in self._states.values():
            if state.state == "END":
                raise InputError(state.message)
        if not self._serving:
            raise InputError(
                "model",
                f"be a folder with versions, as 1/{saved_files.GRAPH_FILE}",
                f"{self.name}={self._folder}, which has no versions",
                "Export a run to this folder.",
            )

    def look(self):
        """Loads new versions, and retires the versions that they replace.

        Calls must not overlap.
        """
        folders = saved_files.find_versions(self._folder)
        numbers = self._wanted(folders)
        for number in numbers:
            if number not in self._serving:
                self._try(number, folders[number])
        for number in self._failed.keys() - set(numbers):
            del self._failed[number]
        # Keeps the old versions until a new version is served.
        kept = {n: v for n, v in self._serving.items() if n in numbers}
        if kept:
            replaced, self._serving = self._serving.keys() - kept.keys(), kept
            for number in replaced:
                self._put(State(number, "END"))
                self._tell(f"{self.name} version {number} has ended")

    def _try(self, number, path):
        """Loads a version, unless the same files failed to load before."""
        paths = [file for file in path.rglob("*") if file.is_file()]
        files = {file: stamp_of(file) for file in paths}
        if self._failed.get(number) == files:
            return
        self._put(State(number, "LOADING"))
        try:
            served = self._load(number, path)
        except Exception as error:  # Other versions must continue.
            self._failed[number] = files
            code = getattr(error, "code", "UNKNOWN")
            reason = " ".join(str(error).split()) or type(error).__name__
            if not isinstance(error, UserError):
                reason = f"{type(error).__name__}: {reason}"
            self._put(State(number, "END", code, reason))
            serving = ", ".join(map(str, sorted(self._serving))) or "none"
            self._tell(
                f"{self.name} version {number} does not load, {serving} "
                f"serves: {reason}"
            )
            return
        self._failed.pop(number, None)
        self._serving = {**self._serving, number: served}
        self._put(State(number, "AVAILABLE"))
        self._tell(f"{self.name} version {number} serves")

    def _put(self, state):
        self._states = {**self._states, state.version: state}
