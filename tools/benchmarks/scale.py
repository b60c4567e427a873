"""Compares the time of parts of tbnets with lower bounds, at growing sizes.

Each size runs in its own process with a memory limit. A size that is predicted
to take more than --patience seconds is left out.
"""

import pathlib
from typing import NamedTuple

from benchmarks.peers import Row, begun, keep, measure


class Part(NamedTuple):
    """A part of tbnets that is timed at several sizes.

    Attributes:
        title: the timed computation.
        floor: the computation of the lower bound.
        sizes: default sizes, in order.
        of: unit of a size.
        builders: functions of `scale_rows` for the lower bound and for tbnets.
        growth: power of the size by which the time grows.
    """

    title: str
    floor: str
    sizes: tuple[int, ...]
    of: str
    builders: tuple[str, str]
    growth: int = 1


PARTS = {
    "loss": Part(
        "miner and loss, K = 10, three terms, 2 captions per image",
        "its products, forward and backward",
        (500, 1000, 2000, 4000, 8000, 16000),
        "images of a batch",
        ("loss_floor", "loss"),
        growth=2,
    ),
    "evaluation": Part(
        "retrieval in both directions, 5 captions per image",
        "the product",
        (1000, 2000, 5000, 10_000, 20_000, 50_000, 100_000, 150_000),
        "images",
        ("tiled_product", "evaluation"),
        growth=2,
    ),
    "extraction": Part(
        "features of photos, from files to a store",
        "the forward passes",
        (64, 256, 1024, 4096),
        "photos",
        ("forward", "extract"),
    ),
    "index": Part(
        "100 queries, the ten best rows of each",
        "their product with rows at hand",
        (10_000, 100_000, 1_000_000, 5_000_000),
        "rows",
        ("scored", "search"),
    ),
    "captions": Part(
        "a CSV table of captions, 5 an image, read and checked",
        "its rows by Python's csv",
        (10_000, 30_000, 100_000, 300_000, 1_000_000, 3_000_000),
        "lines",
        ("csv_rows", "captions"),
    ),
}


def run(options):
    """Prints a table for each part; with --folder, also plots it."""
    for name, part in begun(options, PARTS).items():
        print(f"\n{name}: {part.title}; floor: {part.floor}")
        print(
            f"  {part.of:>18}  {'floor s':>9}  {'s':>9}  {'ratio':>6}  "
            f"{'MiB':>6}  per second"
        )
        rows = []
        for size in options.num_images or part.sizes:
            why = _too_long(part, rows, size, options.patience)
            row = {} if why else _row(part, size, options)
            if why := why or row.get("failed"):
                print(f"  {size:>18}  left out: {why}")
                continue
            rows.append(row)
            seconds, floor = row["seconds"], row["floor"]
            built = name == "index" and f", made in {row['value']:.1f} s"
            print(
                f"  {size:>18}  {floor:9.4f}  {seconds:9.4f}  "
                f"{seconds / floor:6.2f}  {row['mebibytes']:6.0f}  "
                f"{size / seconds:.0f}{built or ''}"
            )
        if rows and options.folder:
            from benchmarks.pictures import draw_parts

            path = pathlib.Path(options.folder, "scale.json")
            results = {"of": part.of, "floor": part.floor, "rows": rows}
            keep(path, name, results, draw_parts)


def _too_long(part, rows, size, patience):
    if not rows:
        return ""
    times = (size / rows[-1]["size"]) ** part.growth
    seconds = times * max(rows[-1]["seconds"], rows[-1]["floor"])
    if seconds <= patience:
        return ""
    return f"it would take {seconds:.0f} s, more than {patience}"


def _row(part, size, options):
    inputs = {"size": size, "dim": options.embedding_dim}
    inputs |= {"images": options.images, "cnn": options.cnn}
    pair = [Row(name, f"scale_rows:{name}") for name in part.builders]
    floor, ours = measure(pair, inputs, options)
    for row in (floor, ours):
        if row["ms"] is None:
            return {"failed": row.get("failed") or row["says"]}
    return {
        "size": size,
        "floor": floor["ms"] / 1e3,
        "seconds": ours["ms"] / 1e3,
        "mebibytes": ours["mebibytes"],
        "value": ours["value"],
    }
