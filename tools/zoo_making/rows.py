"""Metrics of models as rows of a Markdown table."""

from tbnets.checks import per_cent, rounded
from tbnets.evaluation import tables


def _recalls(cutoffs):
    return [(f"R@{k}", f"recall_at_{k}", per_cent) for k in cutoffs]


def columns(metrics: dict) -> list[tuple]:
    """Returns the cells that a row of Markdown shows of metrics.

    Args:
      metrics: as for `evaluation.tables.format_table`.

    Returns:
      (title, name of the metric, function that writes its value) for each:
      of retrieval recalls and median rank, image to text first, then the
      recall sum; of localization recalls, what they could be at most and the
      mean average precision, then the number of phrases; of others each.
    """
    if tables.are_of_retrieval(metrics):
        shown = [
            *_recalls(tables.recall_cutoffs(metrics)),
            ("MedR", "median_rank", "{:g}".format),
        ]
        found = []
        for direction in tables.DIRECTIONS[:2]:
            label = direction.replace("_", " ") + " "
            for title, name, write in shown:
                found.append((label + title, f"{direction}/{name}", write))
                label = ""
        return [*found, ("recall sum", "recall_sum", rounded)]
    if tables.are_of_regions(metrics):
        shown = [
            *_recalls((1, 5, 10)),
            ("bound", "upper_bound", per_cent),
            ("mAP", "mean_average_precision", per_cent),
            ("phrases", "num_queries", "{:.0f}".format),
        ]
        return [(t, f"{tables.REGIONS}/{n}", write) for t, n, write in shown]
    return [(name, name, "{:.4g}".format) for name in metrics]


def header(metrics: dict) -> str:
    """Returns the two header lines for rows of `row`."""
    titles = ["model", *(title for title, _, _ in columns(metrics))]
    rule = ["---"] + ["---:"] * (len(titles) - 1)
    return f"| {' | '.join(titles)} |\n|{'|'.join(rule)}|"


def row(metrics: dict, name: str) -> str:
    """Formats metrics as one row of a Markdown table.

    Args:
      metrics: as for `evaluation.tables.format_table`.
      name: the first cell.
    """
    cells = [name.replace("|", "\\|")]
    cells += [write(metrics[key]) for _, key, write in columns(metrics)]
    return f"| {' | '.join(cells)} |"
