"""A row of a table in a process of its own: what it does, timed when asked.

The parent writes a line for each run and reads a line of JSON as answer. A
process of its own tells the row's memory apart, and lets rows of PyTorch and
of two versions of TensorFlow take turns.
"""

import contextlib
import importlib
import importlib.metadata
import json
import os
import pathlib
import resource
import sys
import time

import numpy as np

from tbnets.startup import keep_freed_memory

PACKAGES = {
    "tensorflow": "tensorflow",
    "torch": "torch",
    "tensorflow_addons": "tensorflow-addons",
    "pytorch_metric_learning": "pytorch-metric-learning",
    "open_clip": "open_clip_torch",
    "sentence_transformers": "sentence-transformers",
    "faiss": "faiss-cpu",
    "dgl": "dgl",
}
"""Modules whose versions are told, and what pip calls them."""


SHORT = 1.0
"""Steps of fewer seconds are run twice in a turn; the second is timed."""


def mebibytes(name):
    """Returns a line of this process's status, such as `VmRSS` (Linux)."""
    status = pathlib.Path("/proc/self/status").read_text()
    line = next(row for row in status.splitlines() if row.startswith(name))
    return int(line.split()[1]) / 1024


def serve(builder, arrays, limit_gib):
    """Answers on standard output: what the row is, then seconds of each run.

    Args:
        builder: `module:function` of dict of arrays -> step; a step returns
            the value that it computed, or None.
        arrays: path of the `.npz` they are in.
        limit_gib: memory that the process may take.
    """
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # Libraries print; the parent reads answers alone.
    keep_freed_memory()
    limit = int(limit_gib * 2**30)
    resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))

    def answer(**told):
        answers.write(json.dumps(told) + "\n")
        answers.flush()

    try:
        step, told = _first(builder, arrays)
    except ImportError as error:
        answer(missing=str(error.name or error), why=str(error))
        return
    except Exception as error:
        answer(failed=_kind(error, limit_gib))
        return
    answer(**told)
    seconds = told["seconds"]
    for _ in sys.stdin:
        if seconds < SHORT:  # Caches are others' and threads are asleep.
            step()
        start = time.perf_counter()
        step()
        seconds = time.perf_counter() - start
        answer(seconds=seconds)


def _first(builder, arrays):
    """Builds a step and runs it once; tells its value and its memory."""
    module, function = builder.split(":")
    with np.load(arrays) as file:
        given = {name: file[name] for name in file.files}
    step = getattr(importlib.import_module(module), function)(given)
    before = mebibytes("VmRSS")
    with contextlib.suppress(OSError):  # Forgets the peak of the imports.
        pathlib.Path("/proc/self/clear_refs").write_text("5")
    start = time.perf_counter()
    value = step()
    seconds = time.perf_counter() - start
    versions = {
        name: importlib.metadata.version(name)
        for module, name in PACKAGES.items()
        if module in sys.modules
    }
    return step, {
        "value": None if value is None else float(value),
        "mebibytes": mebibytes("VmHWM") - before,
        "seconds": seconds,
        "versions": versions,
    }


def _kind(error, limit_gib):
    """Returns what failed, in a few words."""
    text = str(error)
    if isinstance(error, MemoryError) or any(
        word in text for word in ("allocate memory", "OOM", "bad_alloc")
    ):
        return f"more than {limit_gib} GiB"
    return f"{type(error).__name__}: {text.splitlines()[0] if text else ''}"


if __name__ == "__main__":
    serve(*json.loads(sys.argv[1]))
