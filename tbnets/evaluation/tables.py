"""Formats metrics as a table, or as one short line per epoch."""

import re
from collections.abc import Mapping

import numpy as np

from tbnets.checks import per_cent, rounded
from tbnets.evaluation.retrieval import bootstrap_interval

DIRECTIONS = ("image_to_text", "text_to_image", "text_to_text")
REGIONS = "phrase_to_region"
FEW_QUERIES = 200
"""Number of queries below which tables show 95 % intervals.

With fewer queries, a recall near 0.5 may be off by 7 points or more.
"""
_CORRESPONDENCES = (
    "regions of phrases: {correspondence_accuracy} right, "
    "{correspondence_chance} by chance, {correspondence_whole_photo} by the "
    "whole photo, at most {correspondence_upper_bound}",
    "their centre in the box: {correspondence_pointing_accuracy}, "
    "{correspondence_pointing_chance} by chance, "
    "{correspondence_pointing_whole_photo} by the whole photo",
)


def are_of_regions(metrics: dict) -> bool:
    """Returns whether metrics are from phrase localization."""
    return any(name.startswith(f"{REGIONS}/") for name in metrics)


def are_of_retrieval(metrics: dict) -> bool:
    """Returns whether metrics are from image-text retrieval."""
    names = ("recall_sum", *(f"{direction}/" for direction in DIRECTIONS))
    return any(name.startswith(names) for name in metrics)


def recall_cutoffs(metrics: dict) -> tuple:
    """Returns the cutoffs k of the recalls in metrics, ascending."""
    matches = (re.search(r"/recall_at_([0-9]{1,18})$", key) for key in metrics)
    return tuple(sorted({int(match[1]) for match in matches if match}))


def format_table(metrics: Mapping[str, float], title: str = "") -> str:
    """Formats metrics as an aligned table, with recalls in per cent.

    Recalls of fewer than 200 queries are followed by their 95 % intervals, from
    `bootstrap_interval`.

    Args:
        metrics: flat dict of floats, for example from `evaluate_retrieval` or
            `evaluate_localization`. For localization, the table has a row for
            all phrases, then a row per type. R@k ranks all proposals, and nms
            R@k ranks the proposals left after suppression.
        title: the first line; omitted if empty.

    Example:
        metrics = tbnets.evaluate_retrieval(images, texts, caption_to_image)
        print(tbnets.format_table(metrics, title="test"))
    """
    lines = [title] if title else []
    if are_of_retrieval(metrics):
        lines += _retrieval_lines(metrics)
    elif are_of_regions(metrics):
        lines += _localization_lines(metrics)
    else:
        lines += [f"{name:40} {v:10.4f}" for name, v in metrics.items()]
    if "correspondence_accuracy" in metrics:
        shares = {k: f"{per_cent(v)} %" for k, v in metrics.items()}
        lines += [line.format_map(shares) for line in _CORRESPONDENCES]
    return "\n".join(lines + _region_phrase_lines(metrics))


def format_differences(differences: dict, title: str = "") -> str:
    """Formats the result of `recall_differences`, with recalls in per cent."""
    directions = dict.fromkeys(name.partition("/")[0] for name in differences)
    directions.pop("recall_sum", None)
    cutoffs = recall_cutoffs(differences)
    lines = [title, aligned("", [f"R@{k}" for k in cutoffs], 15)]
    for direction in directions:
        values = [differences[f"{direction}/recall_at_{k}"] for k in cutoffs]
        label = direction.replace("_to_", " to ")
        cells = [f"{100 * value:+.1f}" for value, _, _ in values]
        lines.append(aligned(label, cells, 15))
        ends = [f"{100 * a:+.1f} to {100 * b:+.1f}" for _, a, b in values]
        lines.append(aligned("  95 % interval", ends, 15))
    if "recall_sum" in differences:
        value, low, high = differences["recall_sum"]
        interval = f"95 % interval {low:+.1f} to {high:+.1f}"
        lines.append(f"recall sum {value:+.1f}, {interval}")
    return "\n".join(lines)


def aligned(label, cells, width=9):
    """Returns a line of a table: a label and cells aligned to the right."""
    return f"{label:15}" + "".join(f"{cell:>{width}}" for cell in cells)


def _recalls(metrics, title="R@", name="recall_at_"):
    cutoffs = recall_cutoffs(metrics)
    return [(f"{title}{k}", f"{name}{k}", per_cent) for k in cutoffs]


def _rows(metrics, group, label, columns):
    """Returns a group's line, and one of intervals if it has few queries."""
    count = int(metrics.get(f"{group}/num_queries", 0))
    if not count:
        return []
    cells = [write(metrics[f"{group}/{name}"]) for _, name, write in columns]
    lines, cells = [aligned(label, cells)], []
    if count >= FEW_QUERIES or "/" in group:  # A type of phrases.
        return lines
    for _, name, _ in _recalls(metrics):
        # The interval does not depend on the order of the hits.
        hits = np.arange(count) < round(metrics[f"{group}/{name}"] * count)
        ends = bootstrap_interval(hits, np.mean)
        cells.append("-".join(rounded(100 * end, 0) for end in ends))
    return [*lines, aligned("  95 % interval", cells)]


def _retrieval_lines(metrics):
    columns = [
        *_recalls(metrics),
        ("MedR", "median_rank", "{:g}".format),
        ("MeanR", "mean_rank", rounded),
        ("queries", "num_queries", "{:.0f}".format),
    ]
    lines = [aligned("", [title for title, _, _ in columns])]
    for direction in DIRECTIONS:
        label = direction.replace("_to_", " to ")
        lines += _rows(metrics, direction, label, columns)
        precise = {"R-Precision": (f"{direction}/r_precision", per_cent)}
        precise["mAP@R"] = f"{direction}/map_at_r", per_cent
        lines += _metrics_line(metrics, precise, "  ")
        lines += _tie_note(metrics.get(f"{direction}/tie_rate"))
    totals = {"mean recall": ("mean_recall", per_cent)}
    totals["recall sum"] = "recall_sum", rounded
    return lines + _metrics_line(metrics, totals)


def _metrics_line(metrics, names, indent=""):
    parts = [
        f"{title} {write(metrics[name])}"
        for title, (name, write) in names.items()
        if name in metrics
    ]
    return [indent + ", ".join(parts)] * bool(parts)


def _localization_lines(metrics):
    columns = [
        *_recalls(metrics),
        ("bound", "upper_bound", per_cent),
        *_recalls(metrics, "nms R@", "suppressed_recall_at_"),
        ("phrases", "num_queries", "{:.0f}".format),
    ]
    lines = [aligned("", [title for title, _, _ in columns])]
    counts = {
        name.removesuffix("/num_queries"): count
        for name, count in metrics.items()
        if name.startswith(f"{REGIONS}/") and name.endswith("/num_queries")
    }
    for group in sorted(counts, key=lambda n: (n != REGIONS, -counts[n])):
        label = "all" if group == REGIONS else group.partition("/")[2]
        lines += _rows(metrics, group, label, columns)
    lines += _tie_note(metrics.get(f"{REGIONS}/tie_rate"))
    title = "mean average precision of unique phrases"
    name = f"{REGIONS}/mean_average_precision"
    return lines + _metrics_line(metrics, {title: (name, per_cent)})


def _region_phrase_lines(metrics):
    lines, cutoffs = [], recall_cutoffs(metrics)
    titles = "/".join(f"R@{k}" for k in cutoffs)
    for direction in ("true_region_to_phrase", "phrase_to_true_region"):
        rank = metrics.get(f"{direction}/median_rank")
        if rank is not None:
            cells = [metrics[f"{direction}/recall_at_{k}"] for k in cutoffs]
            recalls, title = map(per_cent, cells), direction.replace("_", " ")
            line = f"{titles} {' '.join(recalls)}, median rank {rank:g}"
            lines.append(f"{title}: {line}")
    return lines


def _tie_note(tie_rate):
    if not tie_rate:
        return []
    share = f"{per_cent(tie_rate)}%" if tie_rate >= 0.001 else "under 0.1%"
    return [f"{'':15}{share} of these tie with a wrong one (a miss)"]


def headline(metrics: dict, best: str) -> str:
    """Formats the main metrics as a short line, printed after each epoch.

    `best` is the name of the metric that selects the best epoch.
    """
    shares = {name: per_cent(value) for name, value in metrics.items()}
    if f"{REGIONS}/upper_bound" in metrics:
        recalls = [shares[f"{REGIONS}/recall_at_{k}"] for k in (1, 5, 10)]
        line = "R@1 R@5 R@10 " + " ".join(f"{cell:>5}" for cell in recalls)
        return f"{line} of {shares[f'{REGIONS}/upper_bound']}"
    if f"{DIRECTIONS[0]}/recall_at_1" not in metrics:
        return f"{best} {metrics[best]:.4f}"
    recalls = [shares[f"{d}/recall_at_1"] for d in DIRECTIONS[:2]]
    line = f"R@1 {recalls[0]:>5} {recalls[1]:>5}"
    line += f"  recall sum {rounded(metrics['recall_sum']):>6}"
    if "correspondence_accuracy" in metrics:
        line += f"  regions {shares['correspondence_accuracy']:>4} "
        line += f"(chance {shares['correspondence_chance']})"
    return line
