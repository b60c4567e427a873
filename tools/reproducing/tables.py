"""Reads tables on Markdown pages, and finds the metrics in each column."""

import dataclasses
import re

_COMMAND = re.compile(r"\btools/\w+\.py|python -m |\btbnets [a-z]+ |--\w+=")
_RECALLS = re.compile(
    r"(?:(test|dev|part) )?(image to text|text to image|text to text)? ?"
    r"((?:R@\d+ ?)+)(image to text|text to image)?"
)
_AFTER = {"median": "median_rank", "mAP": "mean_average_precision"}
_ALONE = {
    "recall sum": "test/recall_sum",
    "recall sum, test": "test/recall_sum",
    "sum": "test/recall_sum",
    "dev": "dev/recall_sum",
    "dev sum": "dev/recall_sum",
    "upper bound": "test/phrase_to_region/upper_bound",
    "Right regions": "test/correspondence_accuracy",
}
_PHRASES = "phrase_to_region"
_BY_SEED = {
    "its spread": ("test/recall_sum", True),
    "recall sums": ("test/recall_sum", False),
    "spread of R@1": ("test/text_to_text/recall_at_1", True),
    "R@1 by seed": (f"test/{_PHRASES}/recall_at_1", False),
}


@dataclasses.dataclass(frozen=True)
class Table:
    """A table on a page.

    `columns` are the cells of its first row. `rows` maps 1-based lines of the
    page to cells. `has_command` is whether its section, or the top of the page,
    has a command.
    """

    columns: tuple
    rows: dict
    has_command: bool


def tables(page):
    """Returns the `Table`s in the text of a page."""
    page_tables, section, top, fenced = [], [], [], False
    for line, text in enumerate([*page.splitlines(), "## end"], 1):
        fenced ^= text.startswith("```")
        if text.startswith("#") and not fenced:
            top = top or [text for _, text in section]
            page_tables += _tables_of(section, top)
            section = []
        section.append((line, text))
    return page_tables


def _tables_of(section, top):
    texts = [text for _, text in section if not text.startswith("|")]
    has_command = bool(_COMMAND.search("\n".join([*top, *texts])))
    rows = {}
    for line, text in [*section, (0, "")]:
        if text.startswith("|"):
            rows[line] = cells_of(text)
        elif rows:
            (_, columns), _, *body = rows.items()
            yield Table(columns, dict(body), has_command)
            rows = {}


def cells_of(text):
    """Returns the cells of a line of a table."""
    cells = re.split(r"(?<!\\)\|", text.strip())[1:-1]
    return tuple(cell.strip() for cell in cells)


def numbers(cell):
    """Returns the numbers in a cell as strings, with `-` if one is missing."""
    return re.findall(r"\d+(?:\.\d+)?|(?<!\S)-(?!\S)", cell)


def is_result(cell):
    """Returns whether a cell starts with a number like 1.5."""
    return bool(re.match(r"\**\d+\.\d", cell))


def by_seed(column):
    """Returns the metric of a column that lists a value per seed, or "".

    Also returns whether the column shows only the minimum and maximum.
    """
    return _BY_SEED.get(column, ("", False))


def of_split(key, columns, cells):
    """Returns a metric key with `test` replaced by the row's split."""
    split = dict(zip(columns, cells)).get("split", "test")
    return key.replace("test/", f"{split}/")


def metrics_of(columns):
    """Returns the metrics that each column shows, in order; [] for none.

    A median or average precision has the direction of the recalls before it. A
    column `R@1` can have any direction.
    """
    all_metrics, context = [], None
    for column in columns:
        metrics = [_ALONE[column]] if column in _ALONE else []
        if recalls := _RECALLS.fullmatch(column):
            split, before, ranks, after = recalls.groups()
            words = before or after or _PHRASES
            context = f"{split or 'test'}/{words.replace(' ', '_')}"
            ranks = re.findall(r"\d+", ranks)
            metrics = [f"{context}/recall_at_{rank}" for rank in ranks]
        elif column in _AFTER and context:
            metrics = [f"{context}/{_AFTER[column]}"]
        elif column.lower().startswith("published"):
            context = None
        if column == "R@1":
            metrics = [
                f"test/{direction}/recall_at_1"
                for direction in ("image_to_text", "text_to_image", _PHRASES)
            ]
        all_metrics.append(metrics)
    return all_metrics
