"""Plots the results of `peers` and `scale`."""

import math
import re

from matplotlib import pyplot
from matplotlib.ticker import NullFormatter

from tbnets.files import write_atomically

OURS, THEIRS, FLOOR = "tab:blue", "tab:gray", "tab:green"
MARKS = "o", "s", "^", "v"
"""Plot markers for the sizes in a table, in order."""


def draw_peers(results, path):
    """Plots a panel per table, with a line for the ratio of each row."""
    tables = {}
    for result in results.values():
        tables.setdefault(result["table"], []).append(result)
    counts = [len(sizes[0]["rows"]) for sizes in tables.values()]
    heights = [max(counts[at : at + 2]) + 1 for at in range(0, len(counts), 2)]
    figure, axes = pyplot.subplots(
        len(heights),
        2,
        figsize=(14, 0.5 * sum(heights) + 0.4 * len(heights)),
        squeeze=False,
        layout="constrained",
        height_ratios=heights,
    )
    for axis in axes.flat[len(tables) :]:
        axis.set_axis_off()
    for axis, (name, sizes) in zip(axes.flat, tables.items()):
        _panel(axis, sizes)
        legend = ", ".join(
            f"{mark} {result['images']}"
            for mark, result in zip("\N{BLACK CIRCLE}\N{BLACK SQUARE}", sizes)
        )
        axis.set_title(
            f"{name}: times the products alone; {legend}", fontsize=9
        )
    _write(figure, path)


def _panel(axis, sizes):
    axis.axvline(1, color=FLOOR, linewidth=1)
    axis.set_xscale("log")
    axis.xaxis.set_major_formatter("{x:g}")
    axis.xaxis.set_minor_formatter(NullFormatter())
    for mark, result in zip(MARKS, sizes):
        for place, row in enumerate(result["rows"]):
            if row["ratio"]:
                _point(axis, mark, place, row)
            elif result is sizes[0]:
                axis.text(1, place, f" {row['says']}", va="center", fontsize=8)
    rows = sizes[0]["rows"]
    names = [re.sub("[:,] ", ",\n", row["name"], count=1) for row in rows]
    axis.set_yticks(range(len(rows)), names, fontsize=8)
    axis.set_ylim(len(rows) - 0.4, -0.6)
    axis.margins(x=0.1)
    axis.tick_params(labelsize=8)
    axis.grid(alpha=0.3)


def _point(axis, mark, place, row):
    ratio = row["ratio"]
    colour = OURS if row["package"] == "tbnets" else THEIRS
    colour = FLOOR if "alone" in row["name"] else colour
    axis.scatter(ratio, place, c=colour, marker=mark)
    is_first = mark == MARKS[0]
    if place:
        axis.annotate(
            f"{ratio:.2g}" if ratio < 10 else f"{ratio:.0f}",
            (ratio, place),
            xytext=(0, 5 if is_first else -5),
            textcoords="offset points",
            ha="center",
            va="bottom" if is_first else "top",
            fontsize=7,
        )


def draw_parts(results, path):
    """Plots a panel per part, with logarithmic axes."""
    figure, axes = pyplot.subplots(
        math.ceil(len(results) / 3), 3, figsize=(13, 7), squeeze=False
    )
    for axis in axes.flat[len(results) :]:
        axis.set_axis_off()
    for axis, (name, part) in zip(axes.flat, results.items()):
        sizes, seconds, floor = (
            [row[key] for row in part["rows"]]
            for key in ("size", "seconds", "floor")
        )
        axis.loglog(sizes, seconds, "o-", label="tbnets")
        axis.loglog(sizes, floor, "s--", color=FLOOR, label=part["floor"])
        axis.set_title(name)
        axis.set_xlabel(part["of"])
        axis.set_ylabel("seconds")
        axis.grid(alpha=0.3, which="both")
        axis.legend(fontsize=8)
    figure.tight_layout()
    _write(figure, path)


def _write(figure, path):
    write_atomically(
        path, lambda file: figure.savefig(file, format="png", dpi=80)
    )
    pyplot.close(figure)
