"""Pictures of a run."""

from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from tbnets.files import write_atomically

PANELS = (
    ("loss", "train/", "_loss"),
    ("share of triplets with a loss", "train/", "_active"),
    ("dev recall@1", "dev/", "/recall_at_1"),
    ("mean pairwise cosine", "health/", "/mean_cosine"),
)


def draw_history(history, path):
    """Draws a run's scalars over its epochs as a PNG, a panel a kind of them.

    A scalar that some epochs do not have, as one whose loss begins later, is
    drawn over those that have it.

    Args:
        history: list with one dict of scalars an epoch, one epoch or more.
        path: PNG file to write.
    """
    keys = sorted({key for row in history for key in row})
    panels = {panel: _of_panel(keys, *panel[1:]) for panel in PANELS}
    panels = {panel: found for panel, found in panels.items() if found}
    figure = Figure(figsize=(4 * len(panels), 3.6))
    axes = figure.subplots(1, len(panels), squeeze=False)[0]
    for axis, ((title, prefix, suffix), found) in zip(axes, panels.items()):
        for key in found:
            name = key[len(prefix) : -len(suffix)].replace("_", " ")
            epochs = [n for n, row in enumerate(history, 1) if key in row]
            values = [history[epoch - 1][key] for epoch in epochs]
            axis.plot(epochs, values, label=name, marker=".")
        axis.set_title(title)
        axis.set_xlabel("epoch")
        axis.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
        axis.grid(alpha=0.3)
        low, high = axis.get_ylim()
        low = min(0, low)
        axis.set_ylim(low, high + 0.05 * (high - low))
        axis.legend(fontsize=8, framealpha=0.5)
    figure.tight_layout()
    write_atomically(
        path, lambda file: figure.savefig(file, format="png", dpi=110)
    )


def _of_panel(keys, prefix, suffix):
    """Returns the scalars that a panel shows; none of a part of the data."""
    ends = [k for k in keys if k.startswith(prefix) and k.endswith(suffix)]
    return [k for k in ends if "/" not in k[len(prefix) : -len(suffix)]]
