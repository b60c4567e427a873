"""A picture of what rows of peers take beside the products alone."""

import math
import pathlib
import re

from matplotlib import pyplot
from matplotlib.ticker import NullFormatter

from tbnets.files import write_atomically

OURS, THEIRS, FLOOR = "tab:blue", "tab:gray", "tab:green"
MARKS = "o", "s", "^", "v"
"""Of the sizes of a table, in order."""


def draw(found, path):
    """Draws a panel for each table: a line a row, in units of the floor.

    Args:
        found: list of dicts of `table`, `images` and `rows`.
        path: PNG file to write.
    """
    tables = {}
    for one in found:
        tables.setdefault(one["table"], []).append(one)
    counts = [len(sizes[0]["rows"]) for sizes in tables.values()]
    pairs = [max(counts[at : at + 2]) for at in range(0, len(counts), 2)]
    figure, axes = pyplot.subplots(
        math.ceil(len(tables) / 2),
        2,
        figsize=(14, 0.5 * sum(pairs) + 0.9 * len(pairs)),
        squeeze=False,
        layout="constrained",
        gridspec_kw={"height_ratios": [count + 1 for count in pairs]},
    )
    for axis in axes.flat[len(tables) :]:
        axis.set_axis_off()
    for axis, (name, sizes) in zip(axes.flat, tables.items()):
        _panel(axis, name, sizes)
    write_atomically(
        pathlib.Path(path),
        lambda file: figure.savefig(file, format="png", dpi=80),
    )
    pyplot.close(figure)


def _panel(axis, name, sizes):
    rows = sizes[0]["rows"]
    axis.axvline(1, color=FLOOR, linewidth=1)
    for mark, one in zip(MARKS, sizes):
        points = [
            (row["ratio"], place, _colour(row))
            for place, row in enumerate(one["rows"])
            if row["ratio"]
        ]
        axis.scatter(
            [ratio for ratio, _, _ in points],
            [place for _, place, _ in points],
            c=[colour for _, _, colour in points],
            marker=mark,
        )
        up = mark == MARKS[0]
        for ratio, place, _ in points[1:]:
            axis.annotate(
                f"{ratio:.2g}" if ratio < 10 else f"{ratio:.0f}",
                (ratio, place),
                xytext=(0, 5 if up else -5),
                textcoords="offset points",
                ha="center",
                va="bottom" if up else "top",
                fontsize=7,
            )
    names = [re.sub("[:,] ", ",\n", row["name"], count=1) for row in rows]
    axis.set_xscale("log")
    axis.xaxis.set_major_formatter("{x:g}")
    axis.xaxis.set_minor_formatter(NullFormatter())
    for place, row in enumerate(rows):
        if not row["ratio"]:
            axis.text(1, place, f" {row['says']}", va="center", fontsize=8)
    axis.set_yticks(range(len(rows)), names, fontsize=8)
    axis.set_ylim(len(rows) - 0.4, -0.6)
    low, high = axis.get_xlim()
    axis.set_xlim(low / 1.2, high * 1.2)
    axis.tick_params(labelsize=8)
    axis.grid(alpha=0.3)
    told = ", ".join(
        f"{mark} {one['images']}"
        for mark, one in zip("\N{BLACK CIRCLE}\N{BLACK SQUARE}", sizes)
    )
    axis.set_title(f"{name}: times the products alone; {told}", fontsize=9)


def _colour(row):
    if "alone" in row["name"]:
        return FLOOR
    return OURS if row["package"] == "tbnets" else THEIRS
