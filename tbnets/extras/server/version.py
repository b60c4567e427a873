"""One version of a model: loaded, its signatures called as a server does.

What clients send is checked here, in the words of TensorFlow Serving: it may
be of another type or shape than a signature takes.
"""

import math
import threading

import tensorflow as tf

from tbnets.extras.server.batching import Batched
from tbnets.serving import export
from tbnets.serving.protocol import (
    RequestError,
    invalid,
    refusal,
    to_array,
    to_numpy,
)
from tbnets.serving.saved_files import read_graphs
from tbnets.serving.served import load_saved_model
from tbnets.serving.warmup import WARMUP_FILE, read_requests

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
            if batching and export.is_batchable(export.describe(one))
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
