"""Times each row of a table in its own process; the processes alternate.

For each run, the parent process writes a line and reads a line of JSON.
"""

import contextlib
import importlib
import importlib.metadata
import json
import os
import pathlib
import resource
import select
import subprocess
import sys
import tempfile
import time

import numpy as np

from benchmarks import timing
from tbnets import startup

LIMIT_GIB = 10
"""Memory limit of a process without a GPU; only one process works at a time."""
ENOUGH = 10
"""Seconds after which a row is no longer repeated."""
SHORT = 1.0
"""Steps that take fewer seconds run twice, and the second run is timed."""
THREADS = (
    *("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"),
    *("TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS"),
)
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
"""The pip names of the modules whose versions are printed."""
ROOT = pathlib.Path(__file__).resolve().parents[2]


class Process:
    """A process that times one row of a table.

    `told` is a dict that the process reports. It contains `value`, `mebibytes`,
    `seconds` and `versions`; or `missing`, the name of a module; or `failed`,
    the reason.
    """

    def __init__(self, builder, arrays, python, patience):
        paths = [str(ROOT), str(ROOT / "tools")]
        self._patience = patience
        self._errors = tempfile.TemporaryFile()
        line = [f"benchmarks.{builder}", str(arrays)]
        self._process = subprocess.Popen(
            [python, "-m", "benchmarks.processes", *line],
            env={
                **os.environ,
                **dict.fromkeys(THREADS, str(startup.usable_cores())),
                "TF_CPP_MIN_LOG_LEVEL": "3",
                "TF_FORCE_GPU_ALLOW_GROWTH": "true",  # Processes share it.
                "PYTHONPATH": os.pathsep.join(paths),
            },
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
        )
        self.told = self._answer()

    def run(self):
        """Runs the step once; returns its seconds, or None if it failed."""
        if {"missing", "failed"} & self.told.keys():
            return None
        self._process.stdin.write("run\n")
        self._process.stdin.flush()
        answer = self._answer()
        if "failed" in answer:
            self.told |= answer
        return answer.get("seconds")

    def _answer(self):
        stdout = self._process.stdout
        if not select.select([stdout], [], [], self._patience)[0]:
            self.stop()
            return {"failed": f"more than {self._patience} s"}
        if line := stdout.readline():
            return json.loads(line)
        code = self._process.wait()
        self._errors.seek(0)
        text = self._errors.read().decode(errors="replace")
        *_, last = ["", *filter(str.strip, text.split("\n"))]
        return {"failed": _why(text, f"exit code {code}, {last[:100]}")}

    def stop(self):
        """Ends the process."""
        self._process.kill()
        self._process.wait()
        for file in (self._process.stdin, self._process.stdout, self._errors):
            with contextlib.suppress(BrokenPipeError):
                file.close()


@contextlib.contextmanager
def started(builders, arrays, pythons=(), *, patience):
    """Yields a `Process` per builder; ends all processes after the block.

    If this interpreter lacks a package, `pythons` are tried in order.
    """
    processes = []
    with contextlib.ExitStack() as stack:
        for builder in builders:
            for python in (sys.executable, *pythons):
                process = Process(builder, arrays, python, patience)
                stack.callback(process.stop)
                if "missing" not in process.told:
                    break
            processes.append(process)
        yield processes


def take_turns(processes, repeats):
    """Runs processes alternately; returns a list of seconds for each."""
    seconds = [[] for _ in processes]
    for _ in range(repeats):
        for process, times in zip(processes, seconds):
            if sum(times) < ENOUGH and (elapsed := process.run()):
                times.append(elapsed)
    return seconds


def serve(builder, arrays):
    """Writes a step's results; for each input line, times another run.

    `builder` is `module:function`. This function takes the dict of arrays in
    the file `arrays`, and returns a step: a function that returns a value or
    None.
    """
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # Separates other output from the answers.
    startup.keep_freed_memory()
    startup.prepare_tensorflow()
    # CUDA reserves more addresses than the limit allows.
    if not pathlib.Path("/dev/nvidiactl").exists():
        resource.setrlimit(resource.RLIMIT_DATA, (LIMIT_GIB * 2**30,) * 2)

    def answer(**record):
        answers.write(json.dumps(record) + "\n")
        answers.flush()

    try:
        step, record = _first(builder, arrays)
    except ImportError as error:
        answer(missing=str(error.name or error))
        return
    except Exception as error:
        text = f"{type(error).__name__}: {error}"
        answer(failed=_why(text, text.splitlines()[0]))
        return
    answer(**record)
    seconds = record["seconds"]
    for _ in sys.stdin:
        if seconds < SHORT:  # Warms up caches and threads.
            step()
        start = time.perf_counter()
        step()
        seconds = time.perf_counter() - start
        answer(seconds=seconds)


def _first(builder, arrays):
    module, function = builder.split(":")
    with np.load(arrays) as file:
        inputs = {name: file[name] for name in file.files}
    step = getattr(importlib.import_module(module), function)(inputs)
    start = time.perf_counter()
    value, mebibytes = timing.with_peak(step)
    seconds = time.perf_counter() - start
    versions = {
        name: importlib.metadata.version(name)
        for module, name in PACKAGES.items()
        if module in sys.modules
    }
    if "tensorflow" in sys.modules:
        versions["device"] = startup.describe_device()
    is_number = value is not None and np.ndim(value) == 0
    return step, {
        "value": float(value) if is_number else None,
        "mebibytes": mebibytes,
        "seconds": seconds,
        "versions": versions,
    }


def _why(text, otherwise):
    words = "MemoryError", "bad_alloc", "allocat", "OOM"
    if any(word in text for word in words):
        return f"more than {LIMIT_GIB} GiB of memory"
    return otherwise


if __name__ == "__main__":
    serve(*sys.argv[1:])
