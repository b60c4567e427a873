"""Metrics as text: a table for the screen, a row for a README."""

DIRECTIONS = ("image_to_text", "text_to_image", "text_to_text")


def recall_cutoffs(metrics: dict) -> tuple:
    """Returns the cut-offs k for which metrics hold recalls, ascending."""
    prefix = "/recall_at_"
    names = [name for name in metrics if prefix in name]
    return tuple(sorted({int(name.split(prefix)[1]) for name in names}))


def format_table(metrics: dict, title: str = "") -> str:
    """Formats metrics as an aligned table, recalls in per cent.

    Args:
      metrics: what `retrieval.evaluate_retrieval` returns.
      title: the first line; left out when empty.

    Returns:
      Lines joined by newlines, without one at the end.
    """
    cutoffs = recall_cutoffs(metrics)
    header = [f"R@{k}" for k in cutoffs] + ["MedR", "MeanR", "queries"]
    lines = [title] if title else []
    lines.append(f"{'':15}" + "".join(f"{cell:>9}" for cell in header))
    for direction in DIRECTIONS:
        if not metrics.get(f"{direction}/num_queries"):
            continue
        cells = [
            f"{100 * metrics[f'{direction}/recall_at_{k}']:.1f}"
            for k in cutoffs
        ]
        cells += [
            f"{metrics[f'{direction}/median_rank']:g}",
            f"{metrics[f'{direction}/mean_rank']:.1f}",
            f"{metrics[f'{direction}/num_queries']:.0f}",
        ]
        name = direction.replace("_to_", " to ")
        lines.append(f"{name:15}" + "".join(f"{cell:>9}" for cell in cells))
        lines += _tie_note(metrics[f"{direction}/tie_rate"])
    lines.append(
        f"mean recall {100 * metrics['mean_recall']:.1f}, "
        f"recall sum {metrics['recall_sum']:.1f}"
    )
    return "\n".join(lines)


def _tie_note(tie_rate):
    if not tie_rate:
        return []
    share = f"{tie_rate:.1%}" if tie_rate >= 0.001 else "under 0.1%"
    return [f"{'':15}{share} of these tie with a wrong one (a miss)"]


def markdown_header(recall_at: tuple = (1, 5, 10)) -> str:
    """Returns the two header lines for rows of `markdown_row`."""
    cells = [f"R@{k}" for k in recall_at] + ["MedR"]
    titles = ["model"]
    titles += [f"image to text {cell}" for cell in cells[:1]] + cells[1:]
    titles += [f"text to image {cell}" for cell in cells[:1]] + cells[1:]
    titles.append("recall sum")
    rule = ["---"] + ["---:"] * (len(titles) - 1)
    return f"| {' | '.join(titles)} |\n|{'|'.join(rule)}|"


def markdown_row(metrics: dict, name: str) -> str:
    """Formats both directions as one row of a Markdown table.

    Args:
      metrics: what `retrieval.evaluate_retrieval` returns.
      name: the first cell.

    Returns:
      One line: recalls in per cent and median rank, image to text first,
      then the recall sum.
    """
    cells = [name.replace("|", "\\|")]
    for direction in DIRECTIONS[:2]:
        cells += [
            f"{100 * metrics[f'{direction}/recall_at_{k}']:.1f}"
            for k in recall_cutoffs(metrics)
        ]
        cells.append(f"{metrics[f'{direction}/median_rank']:g}")
    cells.append(f"{metrics['recall_sum']:.1f}")
    return f"| {' | '.join(cells)} |"
