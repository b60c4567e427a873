"""Reads tables of one's own: CSV, TSV or JSONL of `image,caption[,split]`."""

import contextlib
import csv
import os
import posixpath

from tbnets.checked_files import shown
from tbnets.data.caption_readers import ImageRecord
from tbnets.data.splits import WHOLE_FILE
from tbnets.errors import InputError
from tbnets.identity import first_twice

_NEEDED = {"image", "caption"}
_READ = {*_NEEDED, "split"}


def read_table(file, _):
    """Reads the CSV, TSV or JSONL table `image,caption[,split]`.

    Rows of the same image and split are joined; further columns are ignored.
    Without a split column, the file is the split "all".
    """
    extension = os.path.splitext(file.path)[1].lower()
    if extension not in _TABLES:
        raise InputError(
            f"`path` must end with one of {', '.join(_TABLES)}. Received: "
            f"path={file.path}. Rename the file to what it holds."
        )
    has_split, records, spelled = None, {}, {}
    for line, row in _TABLES[extension](file):
        image = row.get("image")
        image = image.strip() if isinstance(image, str) else image
        name = file.file_name(image, line)
        caption = file.caption(row.get("caption"), line)
        if has_split is None:
            has_split = "split" in row
        part = row.get("split", "" if has_split else WHOLE_FILE)
        if "split" in row and not has_split:
            advice = "The rows before have none: name the split of each row."
            file.refuse("'split' in every row or in none", part, line, advice)
        elif not isinstance(part, str) or not part.strip():
            file.refuse("the name of a split", part, line)
        elif None not in (name, caption) and _is_spelled(
            file, line, name, spelled
        ):
            key = (name, part.strip())
            record = ImageRecord(name, [], part.strip(), name)
            records.setdefault(key, record).captions.append(caption)
    if has_split is None:
        file.report("expected rows of image,caption; found none.")
    return list(records.values())


def _is_spelled(file, line, name, spelled):
    """Tells whether an image is called as before; reports it where not.

    Args:
        file: `CheckedFile`.
        line: of the row.
        name: of the image.
        spelled: dict, path of an image -> its name in the rows before; gets
            this one.
    """
    before = spelled.setdefault(posixpath.normpath(name), name)
    if name != before:
        advice = "They are one file: write its name alike in all rows."
        file.refuse(f"{shown(before)}, as before", name, line, advice)
    return name == before


def _delimited_rows(file, delimiter):
    rows, ends_well = file.lines()
    delimiter = _delimiter(next(filter(str.strip, rows), ""), delimiter)
    lines = [row + "\n" for row in rows]
    reader = csv.reader(lines, delimiter=delimiter, strict=True)
    header = None
    for line, row in _numbered(file, reader):
        if not row:
            continue
        if header is None:
            header = _columns(row)
            if not _NEEDED <= set(header):
                wanted = "a header with the columns image and caption"
                file.refuse(wanted, row, line, "Name them in the first row.")
                return
            if twice := first_twice(one for one in header if one in _READ):
                advice = "Give each caption of an image a row of its own."
                file.refuse(f"one column {twice}", row, line, advice)
                return
        elif len(row) == len(header):
            yield line, dict(zip(header, row))
        else:
            wanted = f"{len(header)} columns ({', '.join(header)})"
            advice = f"Quote captions that hold {shown(delimiter)}."
            file.refuse(wanted, row, line, f"It has {len(row)}. {advice}")
    if rows and not ends_well:
        file.suspect(
            "expected a newline after the last row; found "
            f"{shown(rows[-1])}. It may be truncated: if not, end the line.",
            len(rows),
        )


def _columns(row):
    """Returns the names of columns in a header."""
    return [column.strip().lower() for column in row]


def _delimiter(header, usual):
    """Returns what stands between columns: in many countries semicolons."""
    for mark in (usual, ";", "\t"):
        with contextlib.suppress(csv.Error):  # It is reported with its row.
            names = next(csv.reader([header], delimiter=mark))
            if _NEEDED <= {*_columns(names)}:
                return mark
    return usual


def _numbered(file, reader):
    """Yields (first line, row) of a csv reader; reports what is no row."""
    while True:
        first = reader.line_num + 1
        try:
            yield first, next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            advice = ""
            if "unexpected end" in str(error):
                advice = (
                    " A double quote opened here is never closed: double it, "
                    "or the file is truncated."
                )
            elif "new-line character" in str(error):
                error = "a carriage return that no newline follows"
                advice = " End each row by a newline, or quote what holds it."
            file.report(f"expected a row; found: {error}.{advice}", first)


_TABLES = {
    ".csv": lambda file: _delimited_rows(file, ","),
    ".tsv": lambda file: _delimited_rows(file, "\t"),
    ".jsonl": lambda file: file.json_rows(("image", "caption")),
}
