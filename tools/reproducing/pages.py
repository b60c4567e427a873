"""Writes the generated tables of README.md and docs/, between two comments.

::

    <!-- Wang 2016, Table 1 -->
    ...
    <!-- end -->

docs/reproduction*.md contain the tables of papers and of all rows. Tables of
other pages are defined in docs/measured/pages/, where a cell contains text or a
published number, or is blank if a recorded row fills it in. `metrics` of the
table, or of one of its rows, lists the metrics of each column:

- `test/image_to_text/recall_at_1,5,10` stands for three metrics,
- `{split}/recall_sum` takes the split from the column `split`,
- `seeds: METRIC` shows the value of each seed, and
- `range: METRIC` shows the minimum and maximum over seeds.
"""

import re
import statistics

from reproducing.measured import shown
from tbnets.errors import InputError

_PART = re.compile(r"(<!-- ([^\n]+?) -->\n).*?(<!-- end -->)", re.S)
AS_PUBLISHED = "as published"
"""Marks a row with the numbers of a paper."""
AS_REPORTED = "as reported"
"""Marks a row of other authors that is not in published.json."""
_BY_SEED = "by seed"
"""Marks a cell that also shows the number of each seed, or the seeds."""
_SHOWN = {
    "image to text R@1 R@5 R@10": "test/image_to_text/recall_at_1,5,10",
    "text to image R@1 R@5 R@10": "test/text_to_image/recall_at_1,5,10",
    "phrases R@1 R@5 R@10": "test/phrase_to_region/recall_at_1,5,10",
    "recall sum": "test/recall_sum",
    "dev sum": "dev/recall_sum",
}
"""Metrics in the columns of the table of all rows."""


def generated_pages(measured, root):
    """Returns a dict {path: text} of the pages with updated tables."""
    parts = {
        f"{table['paper']}, {table['table']}": _of_paper(table, measured)
        for table in measured.published
    }
    parts |= {"all rows": _rows(measured), "flags": _flags(measured)}
    parts |= {
        name: _table(
            table["columns"],
            [_cells_of(table, row, measured.recorded) for row in table["rows"]],
        )
        for name, table in measured.tables.items()
    }
    pages = {path: path.read_text("utf-8") for path in all_pages(root)}
    pages = {p: text for p, text in pages.items() if _PART.search(text)}
    names = [name for t in pages.values() for _, name, _ in _PART.findall(t)]
    if sorted(names) != sorted(parts):
        wrong = sorted(set(names) ^ set(parts)) or names
        raise InputError(
            "README.md and docs/*.md must have each generated part once, "
            "between <!-- NAME --> and <!-- end -->. Received: too many or "
            f"too few of {', '.join(wrong)}. Correct the comments."
        )
    return {
        path: _PART.sub(lambda part: part[1] + parts[part[2]] + part[3], text)
        for path, text in pages.items()
    }


def all_pages(root):
    """Returns the paths of README.md, if it exists, and the pages in docs/."""
    paths = [root / "README.md", *sorted((root / "docs").glob("*.md"))]
    return [path for path in paths if path.exists()]


def without_parts(text):
    """Replaces the generated parts of a page with blank lines."""
    return _PART.sub(lambda part: "\n" * part[0].count("\n"), text)


def _of_paper(table, measured):
    columns = table["columns"]
    rows = []
    for row in table["rows"]:
        theirs = [row["row"], *row["published"]]
        if "configuration" in row:
            theirs[0] += f": {row['configuration']}"
        for name in row.get("ours", ()):
            ours = _recorded(name, measured.recorded)
            cells = _cells(table["metrics"], ours)
            rows.append([*theirs, name, *cells, *_about(ours)])
            theirs = [""] * len(theirs)
        if not row.get("ours"):
            reason = row.get("not_run") or table["not_run"]
            blank = [""] * (len(columns) + 3)
            rows.append([*theirs, f"not run: {reason}", *blank])
    head = ["row", *(f"published {column}" for column in columns)]
    head += ["ours", *columns, "seeds", "CPU", "date"]
    text = f"\n{table['about']}\n{_table(head, rows)}"
    if others := table.get("others"):
        text += f"The paper also lists results of other methods: {others}.\n\n"
    return text


def _cells_of(table, row, recorded):
    """Returns the cells of a row, filled from recorded rows.

    If the row has a `name`, the recorded row with this name fills all cells.
    Otherwise, each cell in a `NAME` column contains the name of the recorded
    row that fills the columns after it.
    """
    columns, filled = table["columns"], []
    cells = row["cells"] + [""] * (len(columns) - len(row["cells"]))
    ours = _recorded(row["name"], recorded) if "name" in row else None
    metrics = row.get("metrics", table["metrics"])
    for column, cell, shown_by in zip(columns, cells, metrics):
        if column.startswith("NAME"):
            ours = recorded.get(cell, ours)
        elif ours:
            shown_by = shown_by.format_map(dict(zip(columns, cells)))
            cell = _cell(column, cell, shown_by, ours)
        filled.append(cell)
    marks = AS_PUBLISHED, AS_REPORTED
    if not ours and not any(mark in cells[0] for mark in marks):
        raise InputError(
            "docs/measured/pages: expected the name of a row, or "
            f"{' or '.join(marks)}, in each row of the table "
            f"{table['part']!r}; found {cells[0]!r}. Add it."
        )
    return filled


def metrics_of(text):
    """Returns the metrics in an entry of `metrics`, omitting its prefix."""
    metrics = []
    for part in text.rpartition(": ")[2].split():
        first, *ranks = part.split(",")
        metrics += [first, *(first.rstrip("0123456789") + k for k in ranks)]
    return metrics


def _cell(column, cell, shown_by, row):
    metrics = [x for x in metrics_of(shown_by) if x in row.values]
    if column.lower() == "seeds" and cell:
        return ", ".join(map(str, row.seeds))
    if column == "time" and not row.of:
        return _time(statistics.fmean(row.train_seconds))
    if not metrics:
        return cell
    values = [run[metrics[0]] for run in row.runs]
    seeds = " ".join(shown(metrics[0], value) for value in values)
    if shown_by.startswith("range: "):
        ends = [shown(metrics[0], end) for end in (min(values), max(values))]
        return " to ".join(ends) if len(values) > 1 else ""
    if shown_by.startswith("seeds: "):
        return seeds if len(values) > 1 or cell else ""
    several = cell == _BY_SEED and len(values) > 1
    means = " ".join(row.values[metric] for metric in metrics)
    return means + f" ({seeds})" * several


def _time(seconds):
    return f"{seconds / 60:.0f} min" if seconds >= 120 else f"{seconds:.0f} s"


def _recorded(name, recorded):
    if name not in recorded:
        raise InputError(
            f"docs/measured: expected {name}.json, for a row of a page; found "
            f"no such file. Run python tools/reproduce.py --run={name} | sh, "
            "or remove the row."
        )
    return recorded[name]


def _rows(measured):
    head = ["NAME", *_SHOWN, "seeds", "epochs", "CPU", "date"]
    rows = []
    for name, row in sorted(measured.recorded.items()):
        epochs = ", ".join(map(str, row.epochs))
        seeds, *about = _about(row)
        cells = _cells(_SHOWN.values(), row)
        rows.append([name, *cells, seeds, epochs, *about])
    return _table(head, rows)


def _flags(measured):
    rows = [
        [name, _made_by(row)]
        for name, row in sorted(measured.recorded.items())
        if row.flags or row.of
    ]
    return _table(["row", "configuration and flags"], rows)


def _made_by(row):
    if row.of:
        return f"{row.of}, by `tbnets evaluate {row.evaluation}`"
    if not row.configuration:
        return f"none: `tbnets train {row.flags}`"
    return f"`configs/{row.configuration}.flags {row.flags}`"


def _cells(metrics, row):
    values = [
        [row.values.get(metric, "-") for metric in metrics_of(text)]
        for text in metrics
    ]
    return [" ".join(cell) if set(cell) != {"-"} else "" for cell in values]


def _about(row):
    return [", ".join(map(str, row.seeds)), row.cpu, row.date]


def _table(columns, rows):
    lines = [columns, ["---"] * len(columns), *rows]
    text = "".join(
        "|" + "".join(f" {cell} |" if cell else " |" for cell in cells) + "\n"
        for cells in lines
    )
    return f"\n{text}\n"
