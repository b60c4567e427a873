"""A picture of how times grow with sizes."""

import math
import pathlib

from matplotlib import pyplot

from benchmarks import scale
from tbnets.files import write_atomically


def draw(found, path):
    """Draws a panel for each part, both axes logarithmic.

    Args:
        found: dict of rows by part.
        path: PNG file to write.
    """
    figure, axes = pyplot.subplots(
        math.ceil(len(found) / 3), 3, figsize=(13, 7), squeeze=False
    )
    for axis in axes.flat[len(found) :]:
        axis.set_axis_off()
    for axis, (name, rows) in zip(axes.flat, found.items()):
        part = scale.PARTS[name]
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
