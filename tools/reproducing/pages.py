"""Writes the generated tables of README.md and docs/, between two comments.

::

    <!-- Wang 2016, Table 1 -->
    ...
    <!-- end -->

docs/reproduction*.md contain the tables of papers and of all rows. Tables of
other pages are defined in docs/measured/pages/, where a cell contains text or a
published number, or is blank if a recorded row fills it in.
"""

import re
import statistics

from reproducing.measured import shown
from reproducing.tables import by_seed, metrics_of, of_split
from tbnets.errors import InputError

_PART = re.compile(r"(<!-- ([^\n]+?) -->\n).*?(<!-- end -->)", re.S)
AS_PUBLISHED = "as published"
"""Marks a row with the numbers of a paper."""
AS_REPORTED = "as reported"
"""Marks a row of other authors that is not in published.json."""
_BY_SEED = "by seed"
"""Marks a cell that also shows the number of each seed, or the seeds."""
_SHOWN = (
    "image to text R@1 R@5 R@10",
    "text to image R@1 R@5 R@10",
    "test R@1 R@5 R@10",
    "recall sum",
    "dev sum",
)


def written(measured, root):
    """Returns {path: text} of the pages, with updated tables."""
    parts = {
        f"{table['paper']}, {table['table']}": _of_paper(table, measured)
        for table in measured.published
    }
    parts |= {"all rows": _rows(measured), "flags": _flags(measured)}
    parts |= {
        name: _table(
            table["columns"],
            [_cells_of(table, row, measured.kept) for row in table["rows"]],
        )
        for name, table in measured.parts.items()
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
    """Returns README.md, if there is one, and the pages of docs/."""
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
            ours = _recorded(name, measured.kept)
            rows.append([*theirs, name, *_cells(columns, ours), *_about(ours)])
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

    `name` is the recorded row of the whole row. Otherwise, a column `NAME`
    gives the recorded row of the columns after it.
    """
    columns, filled = table["columns"], []
    cells = row["cells"] + [""] * (len(columns) - len(row["cells"]))
    ours = _recorded(row["name"], recorded) if "name" in row else None
    for column, cell, metrics in zip(columns, cells, shown_by(table, row)):
        if column.startswith("NAME"):
            ours = recorded.get(cell, ours)
        elif ours:
            split = of_split(by_seed(column)[0], columns, cells)
            cell = _cell(column, cell, metrics or [split], ours)
        filled.append(cell)
    marks = AS_PUBLISHED, AS_REPORTED
    if not ours and not any(mark in cells[0] for mark in marks):
        raise InputError(
            "docs/measured/pages: expected the name of a row, or "
            f"{' or '.join(marks)}, in each row of the table "
            f"{table['part']!r}; found {cells[0]!r}. Add it."
        )
    return filled


def shown_by(table, row):
    """Returns the metrics that each cell of a row shows, in order.

    `metrics` of the row or the table lists them per column. Otherwise they
    follow from the column names and the column `split`.
    """
    columns, cells = table["columns"], row["cells"]
    named = row.get("metrics", table.get("metrics"))
    if named:
        return [cell.split() for cell in named]
    return [
        [of_split(metric, columns, cells) for metric in metrics]
        for metrics in metrics_of(columns)
    ]


def _cell(column, cell, metrics, row):
    """Returns the text of a cell, with a recorded row's values filled in."""
    metrics = [metric for metric in metrics if metric in row.values]
    if column.lower() == "seeds" and cell:
        return ", ".join(map(str, row.seeds))
    if column == "time" and not row.of:
        return _time(statistics.fmean(row.train_seconds))
    if not metrics:
        return cell
    values = [run[metrics[0]] for run in row.runs]
    seeds = " ".join(shown(metrics[0], value) for value in values)
    is_by_seed, is_range = by_seed(column)
    if is_range:
        ends = [shown(metrics[0], end) for end in (min(values), max(values))]
        return " to ".join(ends) if len(values) > 1 else ""
    if is_by_seed:
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
    columns = [column.replace("test ", "phrases ") for column in _SHOWN]
    head = ["NAME", *columns, "seeds", "epochs", "CPU", "date"]
    rows = []
    for name, row in sorted(measured.kept.items()):
        epochs = ", ".join(map(str, row.epochs))
        seeds, *about = _about(row)
        rows.append([name, *_cells(_SHOWN, row), seeds, epochs, *about])
    return _table(head, rows)


def _flags(measured):
    rows = [
        [name, _made_by(row)]
        for name, row in sorted(measured.kept.items())
        if row.flags or row.of
    ]
    return _table(["row", "configuration and flags"], rows)


def _made_by(row):
    if row.of:
        return f"{row.of}, by `tools/evaluate.py {row.evaluation}`"
    if not row.configuration:
        return f"none: `tools/train.py {row.flags}`"
    return f"`configs/{row.configuration}.flags {row.flags}`"


def _cells(columns, row):
    values = [
        [row.values.get(metric, "-") for metric in metrics]
        for metrics in metrics_of(columns)
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
