"""Numbers of pages that nothing stands behind."""

import re

from reproducing import pages
from reproducing.flagfiles import expecting
from reproducing.measured import ROOT
from reproducing.tables import is_result, metrics_of, numbers, tables
from tbnets.rounding import rounded


def findings(measured, root=ROOT):
    """Returns a line for each number of a table that no file or mark explains.

    docs/reproduction.md says what is checked.

    Args:
        measured: what is `Measured`.
        root: folder of README.md, docs/ and configs/.
    """
    found = []
    generated = written(measured, root)
    for path, text in generated.items():
        if path.read_text("utf-8") != text:
            found.append(
                f"{path.relative_to(root)}: expected what the files in "
                "docs/measured make of it; found other text. Run python "
                "tools/reproduce.py."
            )
    names = {path.stem for path in (root / "configs").glob("*.flags")}
    names |= measured.kept.keys() | measured.told.keys()
    for path in [root / "README.md", *sorted((root / "docs").glob("*.md"))]:
        for line, text in _of_page(path, measured, names):
            found.append(f"{path.relative_to(root)}:{line}: {text}")
    return found


def written(measured, root=ROOT):
    """Returns what is written from the files of rows: dict, path -> text."""
    found = pages.written(measured, root / "docs")
    for name, row in measured.kept.items():
        path = root / "configs" / f"{name}.flags"
        if path.exists():
            found[path] = expecting(path.read_text("utf-8"), row)
    return found


def _of_page(path, measured, names):
    """Yields (line, what is wrong) of a page's tables."""
    for table in tables(pages.without_parts(path.read_text("utf-8"))):
        explained = table.has_command and path.name != "README.md"
        for line, cells in table.rows.items():
            found = _results(table, cells, measured, names)
            for column, cell, wanted in found:
                if wanted or not explained:
                    wanted = wanted or "a file, a mark or a command for it"
                    yield (
                        line,
                        f"expected {wanted}; found {cell}, column {column!r}, "
                        f"row {cells[0]!r}",
                    )


def _results(table, cells, measured, names):
    """Yields results of a row that are not those of a file.

    They come as (column, cell, the file's numbers), None where no file has
    any.
    """
    row, metrics = None, metrics_of(table.columns)
    marks = {mark for cell in cells for mark in pages.NOT_OURS if mark in cell}
    for name in re.findall(r"\w+", cells[0]):
        row = row or measured.row(name)
    for column, cell, keys in zip(table.columns, cells, metrics):
        if cell in names:
            row = measured.row(cell)
        if not is_result(cell) or "as reported" in marks:
            continue
        if marks or column.lower().startswith("published"):
            told = {n for n in numbers(cell) if "." in n}
            if not any(told <= row for row in _published_rows(measured)):
                yield column, cell, "numbers of a row of published.json"
            continue
        values = row.values if row else {}
        wanted = [values[key] for key in keys if key in values]
        if not wanted or numbers(cell) != wanted:
            yield column, cell, " ".join(wanted) or None


def _published_rows(measured):
    """Yields the numbers of each row, as printed and with a digit behind."""
    for table in measured.published:
        for row in table["rows"]:
            found = {n for cell in row["published"] for n in numbers(cell)}
            yield found | {rounded(float(n)) for n in found - {"-"}}
