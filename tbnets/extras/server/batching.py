"""Requests of several clients put together, by TensorFlow's own batching op.

TensorFlow Serving's batching is the same code. It batches every signature of a
model; here only those are that embed row by row. Where a batch fails, each of
its requests is asked alone, so that only the bad one gets the error.
"""

import dataclasses
import itertools
import re

import tensorflow as tf

from tbnets.checked_files import CheckedFile
from tbnets.cores import usable_cores


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
