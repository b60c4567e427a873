"""Metrics as text: a table for the screen, a row for a README."""

import re

from tbnets.rounding import per_cent, rounded

DIRECTIONS = ("image_to_text", "text_to_image", "text_to_text")


def recall_cutoffs(metrics: dict) -> tuple:
    """Returns the cut-offs k for which metrics hold recalls, ascending."""
    found = (re.search(r"/recall_at_([0-9]{1,18})$", key) for key in metrics)
    return tuple(sorted({int(match[1]) for match in found if match}))


def retrieval_keys(metrics: dict) -> tuple:
    """Returns the names of the metrics that `markdown_row` shows."""
    shown = [f"recall_at_{k}" for k in recall_cutoffs(metrics)]
    return tuple(
        f"{direction}/{name}"
        for direction in DIRECTIONS[:2]
        for name in (*shown, "median_rank")
    )


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
            per_cent(metrics[f"{direction}/recall_at_{k}"]) for k in cutoffs
        ]
        cells += [
            f"{metrics[f'{direction}/median_rank']:g}",
            rounded(metrics[f"{direction}/mean_rank"]),
            f"{metrics[f'{direction}/num_queries']:.0f}",
        ]
        name = direction.replace("_to_", " to ")
        lines.append(f"{name:15}" + "".join(f"{cell:>9}" for cell in cells))
        lines += _tie_note(metrics[f"{direction}/tie_rate"])
    lines.append(
        f"mean recall {per_cent(metrics['mean_recall'])}, "
        f"recall sum {rounded(metrics['recall_sum'])}"
    )
    return "\n".join(lines)


def format_localization(metrics: dict, title: str = "") -> str:
    """Formats the metrics of phrase localization, in per cent.

    Args:
      metrics: what `localization.evaluate_localization` returns.
      title: the first line; left out when empty.

    Returns:
      Lines joined by newlines: all phrases, then each type, most phrases
      first. R@k is over the proposals as they are, nms R@k after suppression.
    """
    start, end = "phrase_to_region", "/num_queries"
    names = [n.removesuffix(end) for n in metrics if n.endswith(end)]
    names = [n for n in names if n.split("/")[0] == start]
    names.sort(key=lambda n: (n != start, -metrics[n + end]))
    cutoffs = recall_cutoffs(metrics)
    columns = [f"recall_at_{k}" for k in cutoffs] + ["upper_bound"]
    columns += [f"suppressed_recall_at_{k}" for k in cutoffs]
    header = [f"R@{k}" for k in cutoffs] + ["bound"]
    header += [f"nms R@{k}" for k in cutoffs] + ["phrases"]
    lines = [title] if title else []
    lines.append(f"{'':15}" + "".join(f"{cell:>9}" for cell in header))
    for name in names:
        if not metrics[name + end]:
            continue
        cells = [per_cent(metrics[f"{name}/{key}"]) for key in columns]
        cells.append(f"{metrics[name + end]:.0f}")
        label = "all" if name == start else name.removeprefix(start + "/")
        lines.append(f"{label:15}" + "".join(f"{cell:>9}" for cell in cells))
    lines += _tie_note(metrics.get(f"{start}/tie_rate"))
    if f"{start}/mean_average_precision" in metrics:
        value = per_cent(metrics[f"{start}/mean_average_precision"])
        lines.append(f"mean average precision of unique phrases {value}")
    return "\n".join(lines + region_phrase_lines(metrics))


def region_phrase_lines(metrics: dict) -> list[str]:
    """Formats what `pair_ranks.evaluate_region_phrase_ranking` returns.

    Args:
      metrics: which may have it; without, there are no lines.
    """
    lines, cutoffs = [], recall_cutoffs(metrics)
    for direction in ("true_region_to_phrase", "phrase_to_true_region"):
        if f"{direction}/median_rank" in metrics:
            cells = [metrics[f"{direction}/recall_at_{k}"] for k in cutoffs]
            recalls = " ".join(map(per_cent, cells))
            lines.append(
                f"{direction.replace('_', ' ')}: "
                f"{'/'.join(f'R@{k}' for k in cutoffs)} {recalls}, median "
                f"rank {metrics[f'{direction}/median_rank']:g}"
            )
    return lines


def _tie_note(tie_rate):
    if not tie_rate:
        return []
    share = f"{per_cent(tie_rate)}%" if tie_rate >= 0.001 else "under 0.1%"
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
            per_cent(metrics[f"{direction}/recall_at_{k}"])
            for k in recall_cutoffs(metrics)
        ]
        cells.append(f"{metrics[f'{direction}/median_rank']:g}")
    cells.append(rounded(metrics["recall_sum"]))
    return f"| {' | '.join(cells)} |"


_LOCALIZATION = (
    # Title, key below `phrase_to_region/` and whether it is a share.
    ("R@1", "recall_at_1", True),
    ("R@5", "recall_at_5", True),
    ("R@10", "recall_at_10", True),
    ("bound", "upper_bound", True),
    ("mAP", "mean_average_precision", True),
    ("phrases", "num_queries", False),
)

LOCALIZATION_KEYS = tuple(
    f"phrase_to_region/{key}" for _, key, _ in _LOCALIZATION
)
"""The names of the metrics that `localization_markdown_row` shows."""


def localization_markdown_header() -> str:
    """Returns the two header lines for `localization_markdown_row`."""
    titles = ["model", *(title for title, _, _ in _LOCALIZATION)]
    rule = ["---"] + ["---:"] * len(_LOCALIZATION)
    return f"| {' | '.join(titles)} |\n|{'|'.join(rule)}|"


def localization_markdown_row(metrics: dict, name: str) -> str:
    """Formats the metrics of phrase localization as a row of Markdown.

    Args:
      metrics: what `localization.evaluate_localization` returns, with texts.
      name: the first cell.

    Returns:
      One line: recalls, what they could be at most and the mean average
      precision in per cent, then the number of phrases.
    """
    cells = [name.replace("|", "\\|")]
    for _, key, is_share in _LOCALIZATION:
        value = metrics[f"phrase_to_region/{key}"]
        cells.append(per_cent(value) if is_share else f"{value:.0f}")
    return f"| {' | '.join(cells)} |"
