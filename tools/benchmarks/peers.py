"""Times tbnets and other packages on the same input arrays.

Each row runs in its own process, which reports its peak memory use,
excluding imports and inputs.
"""

import datetime
import itertools
import os
import pathlib
import platform
import tempfile
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from benchmarks import arrays, processes
from tbnets.errors import check_choice
from tbnets.startup import quiet_tensorflow, usable_cores

AGREES = 1e-4
"""Maximum relative difference of values that count as the same."""


class Row(NamedTuple):
    """One row of a table.

    `builder` is `module:function`, as in `processes.serve`. `package` is the
    required package, as pip names it. `same` is whether the row computes the
    same value as the tbnets row.
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


def _trees(*sizes):
    with quiet_tensorflow():
        from benchmarks.tree_lstm import tree_arrays

        return tree_arrays(*sizes)


FLOOR = Row("matmuls alone, TensorFlow", "peers_tensorflow:matmuls")
TORCH_FLOOR = _torch("matmuls alone, PyTorch", "matmuls")
METRIC = "pytorch-metric-learning"
SENTENCES = "sentence-transformers"
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
    "one_view": Table(
        "images and captions as one view, hardest positive and negative",
        [
            FLOOR._replace(builder="peers_tensorflow:within_matmuls"),
            _tbnets("TripletLoss", "batch_hard"),
            TORCH_FLOOR._replace(builder="peers_torch:within_matmuls"),
            _package(METRIC, MINED, "batch_hard_metric"),
            _package(SENTENCES, "BatchHardTripletLoss", "batch_hard_sentences"),
            Row(
                "tensorflow-addons: triplet_hard_loss",
                "peers_tensorflow:hard_addons",
                "tensorflow-addons",
            ),
            Row(
                "tensorflow-addons: triplet_semihard_loss",
                "peers_tensorflow:semihard_addons",
                "tensorflow-addons",
                same=False,
            ),
        ],
        captions=1,
    ),
    "infonce": Table(
        "softmax over the batch, both directions",
        [
            FLOOR,
            _tbnets("InfoNCELoss", "softmax"),
            TORCH_FLOOR,
            _package("open_clip_torch", "ClipLoss", "clip"),
            _package(
                SENTENCES,
                "MultipleNegativesRankingLoss, both directions",
                "ranking_both",
            ),
            SUPERVISED,
            CROSSED,
        ],
        captions=1,
    ),
    "infonce_one_way": Table(
        "softmax over the batch, from image to caption",
        [
            FLOOR,
            _tbnets("InfoNCELoss", "softmax_one_way"),
            _package(SENTENCES, "MultipleNegativesRankingLoss", "ranking"),
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
    "trees": Table(
        "child-sum LSTM over trees of 12 words, 300 -> 512",
        [
            FLOOR._replace(builder="peers_tensorflow:tree_matmuls"),
            _tbnets("TreeLSTM(tied=True)", "child_sum"),
            Row("DGL, messages by level", "peers_torch:child_sum", "dgl"),
        ],
        captions=1,
        make=_trees,
        sizes=(64,),
    ),
    "evaluation": Table(
        "retrieval in both directions, recalls at 1, 5, 10",
        [
            Row("product alone, NumPy", "peers_numpy:product"),
            Row("tbnets, exact ranks", "peers_numpy:exact_ranks"),
            Row(
                "faiss: IndexFlatIP, ten best",
                "peers_numpy:flat_index",
                "faiss-cpu",
            ),
            _torch("plain PyTorch, ten best", "recalls"),
        ],
        captions=5,
        sizes=(1000, 5000),
    ),
}


def run(options):
    """Prints the machine and the date, then a table for each part and size."""
    for name in options.part:
        check_choice("part", name, TABLES)
    print(_machine())
    for name in options.part or TABLES:
        table = TABLES[name]
        for size in options.num_images or table.sizes:
            dim, captions = options.embedding_dim, table.captions
            rows = measure(table.rows, table.make(size, captions, dim), options)
            title = f"{name}: {table.title}; {size} images, "
            print_table(f"{title}{size * captions} captions, {dim}-d", rows)


def _machine():
    lines = pathlib.Path("/proc/cpuinfo").read_text().splitlines()
    model = [x.split(":")[1].strip() for x in lines if "model name" in x][:1]
    return ", ".join(
        [
            *(model or [platform.machine()]),
            f"{usable_cores()} threads",
            f"load {os.getloadavg()[0]:.1f}",
            f"Python {platform.python_version()}",
            f"{datetime.date.today()}",
        ]
    )


def measure(rows, inputs, options):
    """Times rows alternately; returns a dict of results for each row."""
    with tempfile.TemporaryDirectory() as place:
        path = pathlib.Path(place, "arrays.npz")
        np.savez(path, **inputs)
        builders = [row.builder for row in rows]
        with processes.started(
            builders, path, options.pythons, patience=options.patience
        ) as started:
            times = processes.take_turns(started, options.repeats or 7)
            results = [
                {"name": row.name, "package": row.package, **process.told}
                for row, process in zip(rows, started)
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
