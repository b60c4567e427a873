"""Times tbnets and other packages on the same input arrays.

Each row of a table runs in its own process, which reports its peak memory use,
excluding imports and inputs. The processes alternate.
"""

import contextlib
import datetime
import importlib
import importlib.metadata
import multiprocessing
import os
import pathlib
import resource
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
_steps = []
"""The step of this process."""


class Row(NamedTuple):
    """One row of a table.

    `builder` is `module:function` in this package. This function takes the dict
    of input arrays, and returns a step: a function that returns a value or
    None. `package` is the required package, as pip names it. `same` is whether
    the row computes the same value as the row of tbnets.
    """

    name: str
    builder: str
    package: str = "tensorflow"
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


def _package(package, title, builder):
    name = package.removesuffix("_torch")
    return Row(f"{name}: {title}", f"peers_torch:{builder}", package)


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
    """Prints the device, load and versions, then a table per part and size."""
    for name in options.part:
        check_choice("part", name, TABLES)
    tables = {name: TABLES[name] for name in options.part or TABLES}
    print(f"device    {timing.in_another_process(startup.describe_device)}")
    load = f"load {os.getloadavg()[0]:.1f}"
    print(f"{startup.usable_cores()} threads, {load}, {datetime.date.today()}")
    print(_versions({row.package for t in tables.values() for row in t.rows}))
    for name, table in tables.items():
        for size in options.num_images or table.sizes:
            dim, captions = options.embedding_dim, table.captions
            inputs = table.make(size, captions, dim)
            results = measure(table.rows, inputs, options)
            title = f"{name}: {table.title}; {size} images, "
            title += f"{size * captions} captions, {dim}-d"
            print_table(title, table.rows, results)


def _versions(packages):
    versions = []
    for name in sorted({*packages, "tensorflow"}):
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            versions.append(f"{name} {importlib.metadata.version(name)}")
    return ", ".join(versions)


def measure(rows, inputs, options):
    """Times rows in turn; returns the result of each row.

    A result is a dict of the seconds, the value and the mebibytes; after an
    error, `failed` is its description.
    """
    threads = dict.fromkeys(THREADS, str(startup.usable_cores()))
    os.environ.update(threads, TF_FORCE_GPU_ALLOW_GROWTH="true")
    context = multiprocessing.get_context("spawn")
    with contextlib.ExitStack() as stack:
        place = stack.enter_context(tempfile.TemporaryDirectory())
        path, patience = pathlib.Path(place, "arrays.npz"), options.patience
        np.savez(path, **inputs)
        pools, results = [], []
        for row in rows:
            pool = stack.enter_context(context.Pool(1, _prepare))
            first = _call(pool, row, patience, _first, row.builder, str(path))
            pools.append(pool)
            results.append({"seconds": [], **first})
        for _ in range(options.repeats or 7):
            for row, pool, result in zip(rows, pools, results):
                if "failed" not in result and sum(result["seconds"]) < ENOUGH:
                    again = _call(pool, row, patience, _again)
                    result["seconds"] += again.pop("seconds", [])
                    result |= again
    return results


def _call(pool, row, patience, function, *arguments):
    """Calls a function in the process of a row; returns its dict, or errors."""
    try:
        return pool.apply_async(function, arguments).get(patience)
    except multiprocessing.TimeoutError:  # Or the process was killed.
        limits = f"{patience} s or {LIMIT_GIB} GiB of memory"
        return {"failed": f"failed: more than {limits}"}
    except ImportError:
        return {"failed": f"not installed: pip install {row.package}"}
    except Exception as error:
        text = f"failed: {type(error).__name__}: {error}"
        return {"failed": text.splitlines()[0]}


def print_table(title, rows, results):
    """Prints times, ratios to the first row, memory and values.

    `ratio` compares medians, and `best` compares minimum times.
    """
    width = max(len(row.name) for row in rows)
    print(f"\n{title}")
    columns = f"{'ms':>9}  {'ratio':>6}  {'best':>6}  {'MiB':>6}  value"
    print(f"  {''.ljust(width)}  {columns}")
    floor, ours = (_times(result) for result in results[:2])
    for row, result in zip(rows, results):
        if "failed" in result:
            print(f"  {row.name.ljust(width)}  {result['failed']}")
            continue
        times = _times(result)
        cells = [row.name.ljust(width), f"{1e3 * times[0]:9.1f}"]
        cells += [f"{ratio:6.2f}" for ratio in times / floor]
        cells.append(f"{result['mebibytes']:6.0f}")
        if result["value"] is not None:
            cells.append(f"{result['value']:<8.6g}")
            if result is not results[1]:
                cells.append(_compared(row, result, results[1], times / ours))
        print(f"  {'  '.join(cells)}".rstrip())


def _times(result):
    """Returns the median and the minimum of a row's seconds."""
    seconds = result["seconds"] or [np.nan]
    return np.array([np.median(seconds), min(seconds)])


def _compared(row, result, ours, ratios):
    value, expected = result["value"], ours.get("value", np.nan)
    gap = abs(value - expected) / max(abs(expected), 1e-9)
    text = "same value" if gap <= AGREES else f"OTHER VALUE, {gap:.1e}"
    if not row.same:
        text = "other definition"
    if min(ratios) < 1:
        text += f", AHEAD: {ratios[0]:.2f} of tbnets, best {ratios[1]:.2f}"
    return text


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
    is_number = value is not None and np.ndim(value) == 0
    value = float(value) if is_number else None
    return {"value": value, "mebibytes": mebibytes}


def _again():
    for _ in range(2):  # The first run warms up caches and threads.
        start = time.perf_counter()
        _steps[0]()
        seconds = time.perf_counter() - start
        if seconds >= SHORT:
            break
    return {"seconds": [seconds]}


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
