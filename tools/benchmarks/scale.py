"""Times parts of tbnets at growing sizes, each against its floor.

Every size is a process of its own, with a bound on its memory. A size that
would take more than a minute or two, as the one before tells, is left out;
so is one that wants more memory. Both are said.
"""

import math
import pathlib
import shutil
import tempfile
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from benchmarks import peers, peers_process
from tbnets.errors import check_choice
from tbnets.files import write_atomically, write_json


class Part(NamedTuple):
    """What grows.

    Attributes:
        title: what is timed.
        floor: what it is compared with.
        sizes: that are tried, in order.
        of: what a size counts.
        arrays: function of a size and options -> what both are given.
        builders: of the floor and of tbnets, see `peers_worker.serve`.
        growth: time grows as this power of the size.
    """

    title: str
    floor: str
    sizes: tuple[int, ...]
    of: str
    arrays: Callable
    builders: tuple[str, str]
    growth: int = 1


def _images(count, options):
    return {"num_images": count, "dim": options.dim}


def _photos(count, options):
    return {"folder": options.images, "num_photos": count, "cnn": options.cnn}


PARTS = {
    "loss": Part(
        "miner and loss, K = 10, three terms, 2 captions an image",
        "its products, forward and backward",
        (500, 1000, 2000, 4000, 8000, 16000),
        "images of a batch",
        _images,
        ("scale_rows:loss_floor", "scale_rows:loss"),
        growth=2,
    ),
    "evaluation": Part(
        "retrieval in both directions, 5 captions an image",
        "the product",
        (1000, 2000, 5000, 10_000, 20_000, 50_000, 100_000, 150_000),
        "images",
        _images,
        ("scale_rows:product", "scale_rows:evaluation"),
        growth=2,
    ),
    "extraction": Part(
        "features of photos, from files to a store",
        "the forward passes",
        (64, 256, 1024, 4096),
        "photos",
        _photos,
        ("scale_rows:forward", "scale_rows:extraction"),
    ),
    "index": Part(
        "100 queries, the ten best rows of each",
        "their product with rows at hand",
        (10_000, 100_000, 1_000_000, 5_000_000),
        "rows",
        _images,
        ("scale_rows:scored", "scale_rows:search"),
    ),
    "captions": Part(
        "a CSV table of captions, 5 an image, read and checked",
        "its rows by Python's csv",
        (10_000, 30_000, 100_000, 300_000, 1_000_000, 3_000_000),
        "lines",
        _images,
        ("scale_rows:csv_rows", "scale_rows:captions"),
    ),
}


class Given(NamedTuple):
    """What a user chose: see the flags of `tools/benchmark.py`."""

    sizes: list[int]
    dim: int
    repeats: int
    patience: int
    folder: str
    images: str
    cnn: str


def run(names, options):
    """Prints a table of each part.

    Args:
        names: of `PARTS`; none for all.
        options: `Given`.
    """
    for name in names:
        check_choice("part", name, PARTS)
    print(peers.machine())
    for name in names or PARTS:
        part = PARTS[name]
        print(f"\n{name}: {part.title}; floor: {part.floor}")
        print(
            f"  {part.of:>18}  {'floor s':>9}  {'s':>9}  {'ratio':>6}  "
            f"{'MiB':>6}  a second"
        )
        rows = _measured(name, options)
        if rows and options.folder:
            keep({name: rows}, options.folder)


def _measured(name, options):
    """Prints and returns the rows of a part."""
    part, rows = PARTS[name], []
    for size in options.sizes or part.sizes:
        if why := _too_long(part, rows, size, options.patience):
            print(f"  {size:>18}  left out: {why}")
            continue
        row = _row(part, size, options)
        if "failed" in row:
            print(f"  {size:>18}  left out: {row['failed']}")
            continue
        rows.append(row)
        made = row.get("value")
        print(
            f"  {size:>18}  {row['floor']:9.4f}  {row['seconds']:9.4f}  "
            f"{row['seconds'] / row['floor']:6.2f}  {row['mebibytes']:6.0f}  "
            f"{size / row['seconds']:.0f}"
            + (f", made in {made:.1f} s" if made and name == "index" else "")
        )
    return rows


def _too_long(part, rows, size, patience):
    """Returns why a size is not tried, or ""."""
    if not rows:
        return ""
    times = (size / rows[-1]["size"]) ** part.growth
    seconds = times * max(rows[-1]["seconds"], rows[-1]["floor"])
    if seconds <= patience:
        return ""
    return f"it would take {seconds:.0f} s, more than {patience}"


def _row(part, size, options):
    """Times one size; returns a dict."""
    with tempfile.TemporaryDirectory() as place:
        path = pathlib.Path(place, "given.npz")
        given = {"size": size, "place": place, **part.arrays(size, options)}
        np.savez(path, **given)
        with peers_process.started(
            part.builders, path, patience=options.patience
        ) as processes:
            for process in processes:
                if not process.works:
                    why = process.told
                    return {"failed": why.get("failed") or why["why"]}
            repeats = options.repeats
            floor, own = peers_process.in_turns(processes, repeats)
            told = processes[1].told
        shutil.rmtree(pathlib.Path(place, "index"), ignore_errors=True)
    return {
        "size": size,
        "floor": float(np.median(floor)),
        "seconds": float(np.median(own)),
        "mebibytes": told["mebibytes"],
        "value": told["value"],
    }


def keep(found, folder):
    """Adds a part to `scale.json`, and draws all that is there."""
    path, known = peers.kept(folder, "scale.json", {})
    known |= found
    write_json(path, known)
    _draw(known, path.with_suffix(".png"))


def _draw(rows_of_parts, path):
    """Draws a panel for each part, both axes logarithmic.

    Args:
        rows_of_parts: dict of rows by part.
        path: PNG file to write.
    """
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(
        math.ceil(len(rows_of_parts) / 3), 3, figsize=(13, 7), squeeze=False
    )
    for axis in axes.flat[len(rows_of_parts) :]:
        axis.set_axis_off()
    for axis, (name, rows) in zip(axes.flat, rows_of_parts.items()):
        part = PARTS[name]
        sizes = [row["size"] for row in rows]
        floor = [row["floor"] for row in rows]
        own = [row["seconds"] for row in rows]
        axis.loglog(sizes, own, "o-", label="tbnets")
        axis.loglog(sizes, floor, "s--", color="tab:green", label=part.floor)
        axis.set_title(name)
        axis.set_xlabel(part.of)
        axis.set_ylabel("seconds")
        axis.grid(alpha=0.3, which="both")
        axis.legend(fontsize=8)
    figure.tight_layout()
    write_atomically(
        pathlib.Path(path),
        lambda file: figure.savefig(file, format="png", dpi=80),
    )
    pyplot.close(figure)
