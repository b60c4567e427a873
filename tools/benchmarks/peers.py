"""Times tbnets beside other packages, on the same arrays, in one run.

Each row is a process of its own, which tells its memory: the most that it has
beyond imports and inputs. They take turns, a step each (short ones a second,
which is timed), so that whatever else the machine does slows all; only the one
whose turn it is works. All have the same number of threads, and the C library
keeps freed memory in all of them. A row whose package is not there says so.
"""

import datetime
import itertools
import os
import pathlib
import platform
import tempfile
from typing import NamedTuple

import numpy as np

from benchmarks import peers_arrays, peers_process
from benchmarks.peers_tables import TABLES
from tbnets.errors import check_choice
from tbnets.files import CheckedFile, write_json
from tbnets.startup import usable_cores

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
            patience=options.patience,
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
    told = [row.get("versions", {}).items() for row in rows]
    versions = dict.fromkeys(" ".join(one) for one in itertools.chain(*told))
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
    print("  " + ", ".join(versions))


def keep(found, folder):
    """Adds a table to `peers.json`, and draws all that is there."""
    from benchmarks import peers_picture

    path, known = kept(folder, "peers.json", [])
    names = "table", "images"
    known = [x for x in known if any(x[name] != found[name] for name in names)]
    known.append(found)
    write_json(path, known)
    peers_picture.draw(known, path.with_suffix(".png"))


def kept(folder, name, nothing):
    """Returns the path of a file of results, and what it has."""
    path = pathlib.Path(folder, name)
    path.parent.mkdir(parents=True, exist_ok=True)
    return path, CheckedFile(path).json() if path.exists() else nothing
