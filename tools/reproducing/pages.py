"""The generated parts of pages in docs/: tables between two comments.

::

    <!-- Wang 2016, Table 1 -->
    ...
    <!-- end -->

What stands between is written anew; the rest is a page like any other. Tables
of papers, and of all kept runs, stand on docs/reproduction*.md. A table of
another page is as docs/measured/pages/ tells it, but for its rows of kept runs:
what they show is what was kept, and others are marked.
"""

import re
import statistics

from reproducing.measured import shown
from reproducing.tables import by_seed, metrics_of, of_split
from tbnets.errors import InputError

_PART = re.compile(r"(<!-- ([^\n]+?) -->\n).*?(<!-- end -->)", re.S)
TOLD = "†"
"""Marks a row whose runs were not kept: the numbers are those once told."""
NOT_OURS = ("as published", "as reported", "not run")
"""What marks a row of others, or none."""
_SHOWN = (
    "image to text R@1 R@5 R@10",
    "text to image R@1 R@5 R@10",
    "test R@1 R@5 R@10",
    "recall sum",
    "dev sum",
)


def written(measured, docs):
    """Returns the pages with their generated parts anew.

    Args:
        measured: what is `Measured`.
        docs: folder of the pages.

    Returns:
        dict, path -> text.

    Raises:
        ValueError: a part is on no page, on two, or unknown.
    """
    parts = {
        f"{table['paper']}, {table['table']}": _of_paper(table, measured)
        for table in measured.published
    }
    parts |= {"kept runs": _kept(measured), "flags": _flags(measured)}
    parts |= {name: _told(t, measured) for name, t in measured.parts.items()}
    pages = {p: p.read_text("utf-8") for p in sorted(docs.glob("*.md"))}
    pages = {p: text for p, text in pages.items() if _PART.search(text)}
    found = [name for t in pages.values() for _, name, _ in _PART.findall(t)]
    if sorted(found) != sorted(parts):
        wrong = sorted(set(found) ^ set(parts)) or found
        raise InputError(
            "docs/*.md must have each generated part once, between "
            "<!-- NAME --> and <!-- end -->. Received: one too many or too "
            f"few of {', '.join(wrong)}. Mend the comments."
        )
    return {
        path: _PART.sub(lambda part: part[1] + parts[part[2]] + part[3], text)
        for path, text in pages.items()
    }


def without_parts(text):
    """Returns a page with as many blank lines where its parts stand."""
    return _PART.sub(lambda part: "\n" * part[0].count("\n"), text)


def _of_paper(table, measured):
    """Returns a table of a paper, our rows beside its own."""
    columns = table["columns"]
    rows = []
    for row in table["rows"]:
        told = [row["row"], *row["published"]]
        if "configuration" in row:
            told[0] += f": {row['configuration']}"
        for name in row.get("ours", ()):
            ours = _named(name, measured)
            rows.append([*told, name, *_cells(columns, ours), *_about(ours)])
            told = [""] * len(told)
        if not row.get("ours"):
            reason = row.get("not_run") or table["not_run"]
            blank = [""] * (len(columns) + 4)
            rows.append([*told, f"not run: {reason}", *blank])
    head = ["row", *(f"published {column}" for column in columns)]
    head += ["ours", *columns, "seeds", "CPU", "date", "from"]
    text = f"\n{table['about']}\n\n{_table(head, rows)}\n"
    if others := table.get("others"):
        text += f"Rows of others, not built here: {others}.\n\n"
    return text


def _told(table, measured):
    """Returns a table of another page, its rows of kept runs anew."""
    columns, rows = table["columns"], []
    for row in table["rows"]:
        kept = measured.kept.get(row.get("name"))
        first, *others = row["cells"]
        if kept:
            rows.append(
                _anew(columns, row["cells"], shown_by(table, row), kept)
            )
        elif any(mark in first for mark in NOT_OURS):
            rows.append(row["cells"])
        else:
            rows.append([f"{first} {TOLD}".strip(), *others])
    return f"\n{_table(columns, rows)}\n"


def shown_by(table, row):
    """Returns the metrics that each cell of a row shows, in their order.

    The row says so, or the table, by their `metrics`: a string a column, of
    metrics with spaces between. Otherwise the columns do, see
    `tables.metrics_of`; a column `split` says of what.
    """
    columns, cells = table["columns"], row["cells"]
    told = row.get("metrics", table.get("metrics"))
    if told:
        return [cell.split() for cell in told]
    return [
        [of_split(metric, columns, cells) for metric in metrics]
        for metrics in metrics_of(columns)
    ]


def _anew(columns, cells, shown_metrics, row):
    """Returns cells of a kept row: what it has no number for stays."""
    found = []
    for column, cell, metrics in zip(columns, cells, shown_metrics):
        metric, is_range = by_seed(column)
        metric = of_split(metric, columns, cells)
        numbers = [row.values[m] for m in metrics if m in row.values]
        if metric:
            values = [run[metric] for run in row.runs]
            values = [min(values), max(values)] if is_range else values
            between = " to " if is_range else " "
            told = between.join(shown(metric, value) for value in values)
            alone = "" if is_range or not cell else told
            cell = told if len(row.runs) > 1 else alone
        elif numbers:
            seeds = [shown(metrics[0], run[metrics[0]]) for run in row.runs]
            several = "(" in cell and len(seeds) > 1
            cell = " ".join(numbers) + f" ({' '.join(seeds)})" * several
        elif column.lower() == "seeds" and cell:
            cell = ", ".join(map(str, row.seeds))
        elif column == "time" and not row.of:
            cell = _time(statistics.fmean(row.train_seconds))
        found.append(cell)
    return found


def _time(seconds):
    """Returns seconds in words of a table."""
    return f"{seconds / 60:.0f} min" if seconds >= 120 else f"{seconds:.0f} s"


def _named(name, measured):
    found = measured.row(name)
    if found is None or not found.values:
        raise InputError(
            "docs/measured/published.json: expected names of rows as `ours`; "
            f"found {name}, which no file has. Record it, or take it out."
        )
    return found


def _kept(measured):
    """Returns all rows whose runs were kept, and what pages said before."""
    shown = [column.replace("test ", "phrases ") for column in _SHOWN]
    head = ["NAME", *shown, "seeds", "epochs", "CPU", "date", "told before"]
    rows = []
    for name, row in sorted(measured.kept.items()):
        epochs = ", ".join(map(str, row.epochs))
        before = ""
        if told := measured.told.get(name):
            numbers = filter(None, _cells(_SHOWN, told))
            before = f"{', '.join(numbers)} ({told.cpu})"
        seeds, cpu, date, _ = _about(row)
        found = _cells(_SHOWN, row)
        rows.append([name, *found, seeds, epochs, cpu, date, before])
    return f"\n{_table(head, rows)}\n"


def _flags(measured):
    """Returns what follows `--flagfile=` where a row has flags of its own."""
    names = {
        name
        for table in measured.published
        for row in table["rows"]
        for name in row.get("ours", ())
    }
    rows = [
        [name, _made_by(row)]
        for name in sorted(names | measured.kept.keys())
        if (row := _named(name, measured)).flags or row.of
    ]
    return f"\n{_table(['row', 'configuration and flags'], rows)}\n"


def _made_by(row):
    """Returns in a cell what a row is made by."""
    if row.of:
        return f"{row.of}, by `tools/evaluate.py {row.evaluation}`"
    if not row.configuration:
        return f"none: `tools/train.py {row.flags}`"
    return f"`configs/{row.configuration}.flags {row.flags}`"


def _cells(columns, row):
    """Returns what a row has in some columns."""
    found = [
        [row.values.get(metric, "-") for metric in metrics]
        for metrics in metrics_of(columns)
    ]
    return [" ".join(cell) if set(cell) != {"-"} else "" for cell in found]


def _about(row):
    """Returns seeds, processor, date and source as cells."""
    source = row.source
    if source.endswith(".md"):
        source = f"[{source.removesuffix('.md')}]({source})"
    return [", ".join(map(str, row.seeds)), row.cpu, row.date, source]


def _table(columns, rows):
    lines = [columns, ["---"] * len(columns), *rows]
    return "".join(
        "|" + "".join(f" {cell} |" if cell else " |" for cell in cells) + "\n"
        for cells in lines
    )
