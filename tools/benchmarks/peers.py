"""Times tbnets beside other packages, on the same arrays, in one run.

Each row is a process of its own, which tells its memory: the most that it has
beyond imports and inputs. They take turns, a step each (short ones a second,
which is timed), so that whatever else the machine does slows all; only the one
whose turn it is works. All have the same number of threads, and the C library
keeps freed memory in all of them. A row whose package is not there says so.
"""

import datetime
import json
import os
import pathlib
import platform
import tempfile
from typing import NamedTuple

import numpy as np

from benchmarks import peers_arrays, peers_process
from tbnets.cores import usable_cores
from tbnets.errors import check_choice


class Row(NamedTuple):
    """One row of a table.

    Attributes:
        name: what it is called.
        builder: `module:function`, see `peers_worker.serve`.
        package: what pip calls the package that it needs.
        same: whether its definition is that of tbnets in this table, so that
            values agree.
    """

    name: str
    builder: str
    package: str = "tbnets"
    same: bool = True


class Table(NamedTuple):
    """Rows that are compared; the first is the floor, the second is tbnets.

    Attributes:
        title: what all rows do.
        rows: list of `Row`.
        captions: of each image.
        make: function that makes the arrays.
        sizes: of images, where a user asks for none.
    """

    title: str
    rows: list[Row]
    captions: int = 2
    make: str = "embeddings"
    sizes: tuple[int, ...] = (500, 1500)


FLOOR = Row("matmuls alone, TensorFlow", "peers_ours:matmuls")
TORCH_FLOOR = Row("matmuls alone, PyTorch", "peers_torch:matmuls", "torch")
METRIC = "pytorch-metric-learning"
SENTENCES = "sentence-transformers"
ADDONS = "tensorflow-addons"
TABLES = {
    "top_k": Table(
        "K = 10 hardest negatives of each pair, Euclidean, mean of violations",
        [
            FLOOR,
            Row("tbnets TripletLoss", "peers_ours:top_k"),
            TORCH_FLOOR,
            Row("plain PyTorch", "peers_torch:top_k", "torch"),
        ],
    ),
    "hardest": Table(
        "the hardest negative of each pair, cosine, sum (VSE++)",
        [
            FLOOR,
            Row("tbnets TripletLoss", "peers_ours:hardest"),
            TORCH_FLOOR,
            Row("plain PyTorch", "peers_torch:hardest", "torch"),
            Row(
                f"{METRIC}: BatchHardMiner, TripletMarginLoss",
                "peers_packages:hardest_metric",
                METRIC,
            ),
        ],
        captions=1,
    ),
    "all": Table(
        "all triplets, Euclidean, mean of violations",
        [
            FLOOR,
            Row("tbnets TripletLoss", "peers_ours:every"),
            Row(
                f"{METRIC}: TripletMarginLoss",
                "peers_packages:all_metric",
                METRIC,
            ),
        ],
    ),
    "one_view": Table(
        "images and captions as one view, hardest positive and negative",
        [
            FLOOR._replace(builder="peers_ours:within_matmuls"),
            Row("tbnets TripletLoss", "peers_ours:batch_hard"),
            TORCH_FLOOR._replace(builder="peers_torch:within_matmuls"),
            Row(
                f"{METRIC}: BatchHardMiner, TripletMarginLoss",
                "peers_packages:batch_hard_metric",
                METRIC,
            ),
            Row(
                f"{SENTENCES}: BatchHardTripletLoss",
                "peers_packages:batch_hard_sentences",
                SENTENCES,
            ),
            Row(
                f"{ADDONS}: triplet_hard_loss",
                "peers_addons:hard_addons",
                ADDONS,
            ),
            Row(
                f"{ADDONS}: triplet_semihard_loss",
                "peers_addons:semihard_addons",
                ADDONS,
                same=False,
            ),
        ],
        captions=1,
    ),
    "infonce": Table(
        "softmax over the batch, both directions",
        [
            FLOOR,
            Row("tbnets InfoNCELoss", "peers_ours:softmax"),
            TORCH_FLOOR,
            Row(
                "open_clip: ClipLoss", "peers_packages:clip", "open_clip_torch"
            ),
            Row(
                f"{SENTENCES}: MultipleNegativesRankingLoss, both ways",
                "peers_packages:ranking_both",
                SENTENCES,
            ),
            Row(
                f"{METRIC}: SupConLoss",
                "peers_packages:supervised_metric",
                METRIC,
            ),
            Row(
                f"{METRIC}: NTXentLoss",
                "peers_packages:crossed_metric",
                METRIC,
            ),
        ],
        captions=1,
    ),
    "infonce_one_way": Table(
        "softmax over the batch, images ask alone",
        [
            FLOOR,
            Row("tbnets InfoNCELoss", "peers_ours:softmax_one_way"),
            Row(
                f"{SENTENCES}: MultipleNegativesRankingLoss",
                "peers_packages:ranking",
                SENTENCES,
            ),
        ],
        captions=1,
    ),
    "infonce_of_two": Table(
        "softmax over the batch, both directions, several positives",
        [
            FLOOR,
            Row("tbnets InfoNCELoss", "peers_ours:softmax"),
            Row(
                f"{METRIC}: SupConLoss",
                "peers_packages:supervised_metric",
                METRIC,
            ),
            Row(
                f"{METRIC}: NTXentLoss",
                "peers_packages:crossed_metric",
                METRIC,
                same=False,
            ),
        ],
    ),
    "step": Table(
        "train step, 4096/6000 -> 2048 -> 512, VSE++, Adam",
        [
            FLOOR._replace(builder="peers_ours:step_matmuls"),
            Row("tbnets EmbeddingNetwork", "peers_ours:train_step"),
            Row("plain PyTorch", "peers_torch:train_step", "torch"),
        ],
        make="step",
    ),
    "trees": Table(
        "child-sum LSTM over trees of 12 words, 300 -> 512",
        [
            Row("matmuls alone, TensorFlow", "peers_trees:products"),
            Row("tbnets TreeLSTM(tied=True)", "peers_trees:child_sum"),
            Row("DGL, messages by level", "peers_dgl:child_sum", "dgl"),
        ],
        captions=1,
        make="trees",
        sizes=(64,),
    ),
    "evaluation": Table(
        "retrieval in both directions, recalls at 1, 5, 10",
        [
            Row("product alone, NumPy", "peers_ranking:product"),
            Row("tbnets, exact ranks", "peers_ranking:exact_ranks"),
            Row(
                "faiss: IndexFlatIP, ten best",
                "peers_ranking:flat_index",
                "faiss-cpu",
            ),
            Row("plain PyTorch, ten best", "peers_torch:recalls", "torch"),
        ],
        captions=5,
        sizes=(1000, 5000),
    ),
}
AGREES = 1e-4
"""Values that differ by no more than this share are the same."""


class Given(NamedTuple):
    """What a user chose.

    Attributes:
        sizes: of images; none for those of the tables.
        dim: size of an embedding.
        repeats: timed runs of a row.
        patience: seconds that a run may take.
        folder: that keeps what was measured, and its picture; "" for none.
        pythons: interpreters that are tried where this one has no package.
    """

    sizes: list[int]
    dim: int
    repeats: int
    patience: int
    folder: str
    pythons: list[str]


def run(names, options):
    """Prints a table for each name and size.

    Args:
        names: of `TABLES`; none for all.
        options: `Given`.
    """
    for name in names:
        check_choice("part", name, TABLES)
    print(machine())
    for name in names or TABLES:
        table = TABLES[name]
        for size in options.sizes or table.sizes:
            rows = measure(table, size, options)
            title = f"{name}: {table.title}; {size} images, "
            title += f"{size * table.captions} captions, {options.dim}-d"
            print_table(title, rows)
            if options.folder:
                found = {"table": name, "images": size, "rows": rows}
                keep(found, options.folder)


def machine():
    """Returns a line of what the numbers were measured with."""
    names = pathlib.Path("/proc/cpuinfo").read_text().splitlines()
    model = [x.split(":")[1].strip() for x in names if "model name" in x][:1]
    return ", ".join(
        [
            *(model or [platform.machine()]),
            f"{usable_cores()} threads",
            f"load {os.getloadavg()[0]:.1f}",
            f"Python {platform.python_version()}",
            f"{datetime.date.today()}",
        ]
    )


def measure(table, size, options):
    """Returns what was found of each row, as dicts.

    Args:
        table: `Table`.
        size: images.
        options: `Given`.
    """
    with tempfile.TemporaryDirectory() as place:
        path = pathlib.Path(place, "arrays.npz")
        make = getattr(peers_arrays, table.make)
        np.savez(path, **make(size, table.captions, options.dim))
        with peers_process.started(
            [row.builder for row in table.rows],
            path,
            options.pythons,
            options.patience,
        ) as processes:
            times = peers_process.in_turns(processes, options.repeats)
            rows = [
                {
                    "name": row.name,
                    "package": row.package,
                    "same": row.same,
                    **process.told,
                    "ms": 1e3 * np.median(seconds) if seconds else None,
                    "best": 1e3 * min(seconds) if seconds else None,
                }
                for row, process, seconds in zip(table.rows, processes, times)
            ]
    ours = rows[1]
    for row in rows:
        row["ratio"] = _share(row["ms"], rows[0]["ms"])
        row["best_ratio"] = _share(row["best"], rows[0]["best"])
        row["says"] = _says(row, ours)
    return rows


def _share(value, of):
    return None if value is None or of is None else value / of


def _says(row, ours):
    """Returns what is to say of a row beside that of tbnets."""
    if "missing" in row:
        return f"not installed: pip install {row['package']}"
    if row["ms"] is None:
        return f"failed: {row['failed']}"
    if row is ours or row.get("value") is None or ours["ms"] is None:
        return ""
    apart = abs(row["value"] - ours["value"]) / max(abs(ours["value"]), 1e-9)
    if not row["same"]:
        said = "other definition"
    else:
        said = "same value" if apart <= AGREES else f"OTHER VALUE, {apart:.1e}"
    times, best = (row[name] / ours[name] for name in ("ms", "best"))
    if min(times, best) < 1:
        said += f", AHEAD: {times:.2f} of tbnets, best {best:.2f}"
    return said


def print_table(title, rows):
    """Prints times, ratios to the first row, memory and values.

    `ratio` is of medians, `best` of the least times: what the machine does
    besides slows some rows more than others.
    """
    width = max(len(row["name"]) for row in rows)
    versions = {}
    for row in rows:
        versions |= row.get("versions", {})
    print(f"\n{title}")
    columns = f"{'ms':>9}  {'ratio':>6}  {'best':>6}  {'MiB':>6}  value"
    print(f"  {''.ljust(width)}  {columns}")
    for row in rows:
        names = "ms", "ratio", "best_ratio", "mebibytes"
        cells = [row.get(name) for name in names]
        formats = "9.1f", "6.2f", "6.2f", "6.0f"
        told = [
            format("-" if cell is None else format(cell, form), f">{form[0]}")
            for cell, form in zip(cells, formats)
        ]
        value = row.get("value")
        value = "" if value is None else f"{value:.6g}"
        line = f"  {row['name'].ljust(width)}  {'  '.join(told)}  "
        print(f"{line}{value:<8}  {row['says']}".rstrip())
    print("  " + ", ".join(f"{name} {versions[name]}" for name in versions))


def keep(found, folder):
    """Adds a table to `peers.json`, and draws all that is there."""
    from benchmarks import peers_picture

    path = pathlib.Path(folder, "peers.json")
    path.parent.mkdir(parents=True, exist_ok=True)
    known = json.loads(path.read_text("utf-8")) if path.exists() else []
    names = "table", "images"
    known = [x for x in known if any(x[name] != found[name] for name in names)]
    known.append(found)
    path.write_text(json.dumps(known, indent=1), "utf-8")
    peers_picture.draw(known, path.with_suffix(".png"))
