"""Batches the requests of several clients, with TensorFlow Serving's settings.

As in TensorFlow Serving, TensorFlow's own op batches the requests. Unlike in
TensorFlow Serving, only signatures that embed row by row are batched. If a
batch fails, its requests run separately, so that only the invalid request gets
an error.
"""

import dataclasses
import itertools
import re

import tensorflow as tf

from tbnets.files import CheckedFile
from tbnets.startup import usable_cores


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
