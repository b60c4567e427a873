"""Times tbnets and other packages on the same input arrays.

Each row of a table runs in its own process, which reports its peak memory use,
excluding imports and inputs. The processes alternate.
"""

import contextlib
import datetime
import importlib
import importlib.metadata
import itertools
import multiprocessing
import os
import pathlib
import resource
import sys
import tempfile
import time
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from benchmarks import arrays, timing
from tbnets import startup
from tbnets.errors import check_choice

AGREES = 1e-4
"""Maximum relative difference of values that count as the same."""
LIMIT_GIB = 10
"""Memory limit of a process without a GPU; only one process works at a time."""
ENOUGH = 10
"""Seconds after which a row is no longer repeated."""
SHORT = 1.0
"""Steps that take fewer seconds run twice, and the second run is timed."""
THREADS = (
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "TF_NUM_INTRAOP_THREADS",
    "TF_NUM_INTEROP_THREADS",
)
PACKAGES = {
    "tensorflow": "tensorflow",
    "torch": "torch",
    "pytorch_metric_learning": "pytorch-metric-learning",
    "open_clip": "open_clip_torch",
    "sentence_transformers": "sentence-transformers",
    "faiss": "faiss-cpu",
}
"""The pip names of the modules whose versions are printed."""
_steps = []
"""The step of this process."""


class Row(NamedTuple):
    """One row of a table.

    `builder` is that of its `Process`. `package` is the required package, as
    pip names it. `same` is whether the row computes the same value as the row
    of tbnets.
    """

    name: str
    builder: str
    package: str = "tbnets"
    same: bool = True


class Table(NamedTuple):
    """Rows to compare: the lower bound, then tbnets, then other packages.

    `make(images, captions, dim)` returns the input arrays.
    """

    title: str
    rows: list[Row]
    captions: int = 2
    make: Callable = arrays.embeddings
    sizes: tuple[int, ...] = (500, 1500)


def _tbnets(title, builder):
    return Row(f"tbnets {title}", f"peers_tensorflow:{builder}")


def _torch(name, builder):
    return Row(name, f"peers_torch:{builder}", "torch")


def _package(package, title, builder, module="peers_torch", same=True):
    name = package.removesuffix("_torch")
    return Row(f"{name}: {title}", f"{module}:{builder}", package, same)


FLOOR = Row("matmuls alone, TensorFlow", "peers_tensorflow:matmuls")
TORCH_FLOOR = _torch("matmuls alone, PyTorch", "matmuls")
METRIC = "pytorch-metric-learning"
MINED = "BatchHardMiner, TripletMarginLoss"
SUPERVISED = _package(METRIC, "SupConLoss", "supervised_metric")
CROSSED = _package(METRIC, "NTXentLoss", "crossed_metric")
TABLES = {
    "top_k": Table(
        "K = 10 hardest negatives of each pair, Euclidean, mean of violations",
        [
            FLOOR,
            _tbnets("TripletLoss", "top_k"),
            TORCH_FLOOR,
            _torch("plain PyTorch", "top_k"),
        ],
    ),
    "hardest": Table(
        "the hardest negative of each pair, cosine, sum (VSE++)",
        [
            FLOOR,
            _tbnets("TripletLoss", "hardest"),
            TORCH_FLOOR,
            _torch("plain PyTorch", "hardest"),
            _package(METRIC, MINED, "hardest_metric"),
        ],
        captions=1,
    ),
    "all": Table(
        "all triplets, Euclidean, mean of violations",
        [
            FLOOR,
            _tbnets("TripletLoss", "every"),
            _package(METRIC, "TripletMarginLoss", "all_metric"),
        ],
    ),
    "infonce": Table(
        "softmax over the batch, both directions",
        [
            FLOOR,
            _tbnets("InfoNCELoss", "softmax"),
            TORCH_FLOOR,
            _package("open_clip_torch", "ClipLoss", "clip"),
            _package(
                "sentence-transformers",
                "MultipleNegativesRankingLoss, both directions",
                "ranking_both",
            ),
            SUPERVISED,
            CROSSED,
        ],
        captions=1,
    ),
    "infonce_of_two": Table(
        "softmax over the batch, both directions, several positives",
        [
            FLOOR,
            _tbnets("InfoNCELoss", "softmax"),
            SUPERVISED,
            CROSSED._replace(same=False),
        ],
    ),
    "step": Table(
        "train step, 4096/6000 -> 2048 -> 512, VSE++, Adam",
        [
            FLOOR._replace(builder="peers_tensorflow:step_matmuls"),
            _tbnets("EmbeddingNetwork", "train_step"),
            _torch("plain PyTorch", "train_step"),
        ],
        make=arrays.step,
    ),
    "evaluation": Table(
        "retrieval in both directions, recalls at 1, 5, 10",
        [
            Row("product alone, NumPy", "peers:product"),
            Row("tbnets, exact ranks", "peers:exact_ranks"),
            Row(
                "faiss: IndexFlatIP, ten best",
                "peers:flat_index",
                "faiss-cpu",
            ),
            _torch("plain PyTorch, ten best", "recalls"),
        ],
        captions=5,
        sizes=(1000, 5000),
    ),
}


def run(options):
    """Prints the load and the date, then a table for each part and size."""
    for name in options.part:
        check_choice("part", name, TABLES)
    load = f"load {os.getloadavg()[0]:.1f}"
    print(f"{startup.usable_cores()} threads, {load}, {datetime.date.today()}")
    for name in options.part or TABLES:
        table = TABLES[name]
        for size in options.num_images or table.sizes:
            dim, captions = options.embedding_dim, table.captions
            rows = measure(table.rows, table.make(size, captions, dim), options)
            title = f"{name}: {table.title}; {size} images, "
            print_table(f"{title}{size * captions} captions, {dim}-d", rows)


def measure(rows, inputs, options):
    """Times rows alternately; returns a dict of results for each row."""
    with tempfile.TemporaryDirectory() as place:
        path = pathlib.Path(place, "arrays.npz")
        np.savez(path, **inputs)
        builders = [row.builder for row in rows]
        with started(builders, path, options.patience) as processes:
            times = take_turns(processes, options.repeats or 7)
            results = [
                {"name": row.name, "package": row.package, **process.result}
                for row, process in zip(rows, processes)
            ]
    for row, seconds in zip(results, times):
        row["ms"] = 1e3 * np.median(seconds) if seconds else None
        row["best"] = 1e3 * min(seconds) if seconds else None
        row["ratio"] = _share(row["ms"], results[0]["ms"])
        row["best_ratio"] = _share(row["best"], results[0]["best"])
    for row, entry in zip(results, rows):
        row["says"] = _says(row, results[1], entry.same)
    return results


def _share(value, of):
    return None if value is None or of is None else value / of


def _says(row, ours, same):
    if "missing" in row:
        return f"not installed: pip install {row['package']}"
    if row["ms"] is None:
        return f"failed: {row['failed']}"
    if row is ours or row.get("value") is None or ours["ms"] is None:
        return ""
    gap = abs(row["value"] - ours["value"]) / max(abs(ours["value"]), 1e-9)
    if not same:
        remark = "other definition"
    else:
        remark = "same value" if gap <= AGREES else f"OTHER VALUE, {gap:.1e}"
    times, best = (row[name] / ours[name] for name in ("ms", "best"))
    if min(times, best) < 1:
        remark += f", AHEAD: {times:.2f} of tbnets, best {best:.2f}"
    return remark


def print_table(title, rows):
    """Prints times, ratios to the first row, memory and values.

    `ratio` compares medians, and `best` compares minimum times.
    """
    width = max(len(row["name"]) for row in rows)
    versions = [row.get("versions", {}).items() for row in rows]
    versions = dict.fromkeys(map(" ".join, itertools.chain(*versions)))
    print(f"\n{title}")
    columns = f"{'ms':>9}  {'ratio':>6}  {'best':>6}  {'MiB':>6}  value"
    print(f"  {''.ljust(width)}  {columns}")
    forms = {"ms": "9.1f", "ratio": "6.2f", "best_ratio": "6.2f"}
    forms |= {"mebibytes": "6.0f"}
    for row in rows:
        cells = [row["name"].ljust(width)]
        for name, form in forms.items():
            is_known = row.get(name) is not None
            cells.append(
                format(row[name], form) if is_known else f"{'-':>{form[0]}}"
            )
        value = row.get("value")
        cells.append(f"{'' if value is None else f'{value:.6g}':<8}")
        print(f"  {'  '.join(cells)}  {row['says']}".rstrip())
    print("  " + ", ".join(versions))


class Process:
    """A process that times one row of a table.

    `builder` is `module:function` in this package. This function takes the
    dict of arrays in the file `path`, and returns a step: a function that
    returns a value or None. `result` is a dict with `value`, `mebibytes` and
    `versions`; or with `missing`, the name of a module; or with `failed`, the
    reason.
    """

    def __init__(self, builder, path, patience):
        self._patience = patience
        context = multiprocessing.get_context("spawn")
        self._pool = context.Pool(1, _prepare)
        self.result = self._call(_first, builder, str(path))

    def run(self):
        """Runs the step once; returns its seconds, or None if it failed."""
        if "versions" in self.result and "failed" not in self.result:
            self.result |= self._call(_again)
            return self.result.get("last")
        return None

    def _call(self, function, *arguments):
        task = self._pool.apply_async(function, arguments)
        try:
            return task.get(self._patience)
        except multiprocessing.TimeoutError:  # Or the process was killed.
            limits = f"{self._patience} s or {LIMIT_GIB} GiB of memory"
            return {"failed": f"more than {limits}", "last": None}
        except ImportError as error:
            return {"missing": str(error.name or error)}
        except Exception as error:
            text = f"{type(error).__name__}: {error}"
            return {"failed": text.splitlines()[0], "last": None}

    def stop(self):
        """Ends the process."""
        self._pool.terminate()


@contextlib.contextmanager
def started(builders, path, patience):
    """Yields a `Process` per builder; ends all processes after the block."""
    threads = dict.fromkeys(THREADS, str(startup.usable_cores()))
    os.environ.update(threads, TF_FORCE_GPU_ALLOW_GROWTH="true")
    with contextlib.ExitStack() as stack:
        processes = []
        for builder in builders:
            processes.append(Process(builder, path, patience))
            stack.callback(processes[-1].stop)
        yield processes


def take_turns(processes, repeats):
    """Runs processes alternately; returns a list of seconds for each."""
    seconds = [[] for _ in processes]
    for _ in range(repeats):
        for process, times in zip(processes, seconds):
            if sum(times) < ENOUGH and (elapsed := process.run()):
                times.append(elapsed)
    return seconds


def _prepare():
    startup.keep_freed_memory()
    startup.prepare_tensorflow()
    # CUDA reserves more addresses than the limit allows.
    if not pathlib.Path("/dev/nvidiactl").exists():
        resource.setrlimit(resource.RLIMIT_DATA, (LIMIT_GIB * 2**30,) * 2)


def _first(builder, path):
    module, function = builder.split(":")
    with np.load(path) as file:
        inputs = {name: file[name] for name in file.files}
    home = importlib.import_module(f"benchmarks.{module}")
    step = getattr(home, function)(inputs)
    value, mebibytes = timing.with_peak(step)
    _steps.append(step)
    versions = {
        name: importlib.metadata.version(name)
        for module, name in PACKAGES.items()
        if module in sys.modules
    }
    if "tensorflow" in sys.modules:
        versions["device"] = startup.describe_device()
    is_number = value is not None and np.ndim(value) == 0
    return {
        "value": float(value) if is_number else None,
        "mebibytes": mebibytes,
        "versions": versions,
    }


def _again():
    start = time.perf_counter()
    _steps[0]()
    seconds = time.perf_counter() - start
    if seconds < SHORT:  # The first run warms up caches and threads.
        start = time.perf_counter()
        _steps[0]()
        seconds = time.perf_counter() - start
    return {"last": seconds}


def product(inputs):
    """Times the matrix product in NumPy, which is the lower bound."""
    images, texts = inputs["images"], inputs["texts"]
    scores = np.empty((len(images), len(texts)), np.float32)
    return lambda: np.matmul(images, texts.T, scores)


def exact_ranks(inputs):
    """Times exact ranks in both directions, computed by tbnets."""
    from tbnets.evaluation.retrieval import evaluate_retrieval

    rows = [inputs[name] for name in ("images", "texts", "owners")]
    return lambda: evaluate_retrieval(*rows, text_to_text=False)["recall_sum"]


def flat_index(inputs):
    """Times the top-10 search in both directions with faiss.IndexFlatIP."""
    import faiss

    def best(queries, rows):
        index = faiss.IndexFlatIP(rows.shape[1])
        index.add(rows)
        return index.search(queries, 10)[1]

    images, texts, owners = (inputs[x] for x in ("images", "texts", "owners"))
    return lambda: arrays.recall_sum(
        owners, best(images, texts), best(texts, images)
    )
