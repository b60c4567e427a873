"""A picture of what rows of peers take beside the products alone."""

import pathlib

from tbnets.files import write_atomically
from tbnets.pictures.curves import pyplot

OURS, THEIRS, FLOOR = "tab:blue", "tab:gray", "tab:green"


def draw(found, path):
    """Draws a panel for each table: a bar a row, in units of the floor.

    Args:
        found: list of dicts of `table`, `images` and `rows`.
        path: PNG file to write.
    """
    found = [one for one in found if any(row["ratio"] for row in one["rows"])]
    if not found:
        return
    heights = [1.2 + 0.3 * len(one["rows"]) for one in found]
    figure, axes = pyplot.subplots(
        (len(found) + 1) // 2,
        2,
        figsize=(15, sum(heights[::2])),
        squeeze=False,
        gridspec_kw={"height_ratios": heights[::2]},
    )
    for axis in axes.flat[len(found) :]:
        axis.set_axis_off()
    for axis, one in zip(axes.flat, found):
        _bars(axis, one)
    figure.tight_layout()
    write_atomically(
        pathlib.Path(path),
        lambda file: figure.savefig(file, format="png", dpi=80),
    )
    pyplot.close(figure)


def _bars(axis, one):
    rows = one["rows"][::-1]
    ratios = [row["ratio"] or 0 for row in rows]
    colours = [
        FLOOR if "alone" in row["name"]
        else OURS if row["package"] == "tbnets"
        else THEIRS
        for row in rows
    ]  # fmt: skip
    axis.barh([row["name"] for row in rows], ratios, color=colours)
    most = max(ratios)
    for place, (row, ratio) in enumerate(zip(rows, ratios)):
        told = f"{ratio:.2f}" if ratio else row["says"]
        axis.text(ratio + 0.01 * most, place, told, va="center", fontsize=8)
    axis.axvline(1, color=FLOOR, linewidth=1)
    axis.set_xlim(0, 1.15 * most)
    axis.tick_params(labelsize=8)
    title = f"{one['table']}, {one['images']}: times the products alone"
    axis.set_title(title, fontsize=9)
