"""One version of a model: loaded, its signatures called as a server does.

What clients send is checked here, in the words of TensorFlow Serving: it may
be of another type or shape than a signature takes.
"""

import contextlib
import threading

import tensorflow as tf

from tbnets.server.protocol import RequestError, refusal
from tbnets.serving import saved_files
from tbnets.serving.served import load_saved_model

DEFAULT_SIGNATURE = "serving_default"


class Version:
    """A loaded version.

    Args:
        number: which one.
        path: folder of the SavedModel.
        trust: as of `load_saved_model`.
        slots: semaphore, as many calls as shall run at once; None for any.

    Attributes:
        served: the `Served` model.
        signature_defs: name -> `SignatureDef`, of each signature.

    Raises:
        ValueError: see `saved_files.load`.
    """

    def __init__(self, number, path, trust=False, slots=None):
        self.number = number
        self._slots = slots or threading.Semaphore(1 << 30)
        self.served = load_saved_model(path, trust)
        self.signature_defs = saved_files.read_signature_defs(path)

    def inputs(self, signature=""):
        """Returns what a signature takes: name -> `tf.TensorSpec`.

        Args:
            signature: its name; "" for the default one.

        Raises:
            RequestError: there is none of this name.
        """
        signature = signature or DEFAULT_SIGNATURE
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
        signature = signature or DEFAULT_SIGNATURE
        specs = self.inputs(signature)
        _check_names(specs, inputs)
        tensors = {n: _tensor(specs[n], v) for n, v in inputs.items()}
        function = self.served.signatures[signature]
        wanted = _wanted(function.structured_outputs, output_filter)
        try:
            with self._turn(timeout):
                answers = function(**tensors)
            return {name: answers[name].numpy() for name in wanted}
        except tf.errors.OpError as error:
            raise refusal(error) from error

    @contextlib.contextmanager
    def _turn(self, timeout):
        """Waits until a call may run: each takes memory while it does."""
        if not self._slots.acquire(timeout=timeout):
            raise RequestError("DEADLINE_EXCEEDED", "Deadline Exceeded")
        try:
            yield
        finally:
            self._slots.release()


def _check_names(specs, inputs):
    """Refuses inputs that are not those of a signature."""
    extra, missing = inputs.keys() - specs.keys(), specs.keys() - inputs.keys()
    if extra or missing:
        raise RequestError(
            "INVALID_ARGUMENT",
            f"input size does not match signature: {len(inputs)}!="
            f"{len(specs)} len({_braced(inputs)}) != len({_braced(specs)}). "
            f"Sent extra: {_braced(extra)}. Missing but required: "
            f"{_braced(missing)}.",
        )


def _tensor(spec, value):
    """Returns an input as a tensor, which must fit its `tf.TensorSpec`."""
    try:
        tensor = tf.convert_to_tensor(value)
    except (TypeError, ValueError, tf.errors.OpError) as error:
        raise RequestError(
            "INVALID_ARGUMENT", f"tensor parsing error: {spec.name}"
        ) from error
    if tensor.dtype != spec.dtype:
        raise RequestError(
            "INVALID_ARGUMENT",
            f"Expects `{spec.name}` to be {spec.dtype.name} but "
            f"{tensor.dtype.name} is provided.",
        )
    if not spec.shape.is_compatible_with(tensor.shape):
        raise RequestError(
            "INVALID_ARGUMENT",
            f"Expects `{spec.name}` to be of shape {_sides(spec)} but "
            f"{_sides(tensor)} is provided.",
        )
    return tensor


def _wanted(outputs, output_filter):
    """Returns the names of the outputs to return."""
    unknown = [name for name in output_filter if name not in outputs]
    if unknown:
        raise RequestError(
            "INVALID_ARGUMENT",
            f"output tensor alias not found in signature: {unknown[0]} Outputs "
            f"expected to be in the set {_braced(outputs)}.",
        )
    twice = {n for n in output_filter if list(output_filter).count(n) > 1}
    if twice:
        raise RequestError(
            "INVALID_ARGUMENT",
            f"duplicate output tensor alias: {min(twice)}",
        )
    return sorted(output_filter or outputs)


def _braced(names):
    return "{" + ",".join(sorted(names)) + "}"


def _sides(tensor):
    """Returns the shape of a tensor or of a spec."""
    return tuple(tensor.shape)
