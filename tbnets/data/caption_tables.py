"""Reads tables of one's own: CSV, TSV or JSONL of `image,caption[,split]`."""

import csv
import os

from tbnets.checked_files import CheckedFile, shown
from tbnets.data import splits as split_names
from tbnets.data.caption_readers import ImageRecord
from tbnets.errors import InputError


def read_table(path, split, problems):
    """Reads the CSV, TSV or JSONL table `image,caption[,split]`.

    Rows of the same image and split are joined; further columns are ignored.
    Without a split column, the file is the split "all".
    """
    del split
    file = CheckedFile(path, problems)
    extension = os.path.splitext(file.path)[1].lower()
    if extension not in _TABLES:
        raise InputError(
            f"`path` must end with one of {', '.join(_TABLES)}. Received: "
            f"path={file.path}. Rename the file to what it holds."
        )
    has_split = None
    records = {}
    for line, row in _TABLES[extension](file):
        name = file.file_name(_stripped(row.get("image")), line)
        caption = file.caption(row.get("caption"), line)
        if has_split is None:
            has_split = "split" in row
        part = row.get("split", "" if has_split else split_names.WHOLE_FILE)
        if "split" in row and not has_split:
            file.report(
                "expected 'split' in every row or in none; found "
                f"{shown(part)} here and none in the rows before. Name the "
                "split of each row.",
                line,
            )
        elif not isinstance(part, str) or not part.strip():
            file.report(
                f"expected the name of a split; found {shown(part)}.", line
            )
        elif name is not None and caption is not None:
            key = (name, part.strip())
            record = ImageRecord(name, [], part.strip(), name)
            records.setdefault(key, record).captions.append(caption)
    if has_split is None:
        file.report("expected rows of image,caption; found none.")
    return list(records.values())


def _stripped(value):
    return value.strip() if isinstance(value, str) else value


def _delimited_rows(file, delimiter):
    rows, ends_well = file.lines()
    reader = csv.reader(
        [row + "\n" for row in rows], delimiter=delimiter, strict=True
    )
    header = None
    for line, row in _numbered(file, reader):
        if not row:
            continue
        if header is None:
            header = [column.strip().lower() for column in row]
            if not {"image", "caption"} <= set(header):
                file.report(
                    "expected a header with the columns image and caption; "
                    f"found {shown(row)}. Name the columns in the first row.",
                    line,
                )
                return
        elif len(row) == len(header):
            yield line, dict(zip(header, row))
        else:
            file.report(
                f"expected {len(header)} columns ({', '.join(header)}); found "
                f"{len(row)}: {shown(row)}. Put a caption that holds "
                f"{shown(delimiter)} between double quotes.",
                line,
            )
    if rows and not ends_well:
        file.suspect(
            "expected a newline after the last row; found "
            f"{shown(rows[-1])}. The file may be truncated: if it is whole, "
            "end the line.",
            len(rows),
        )


def _numbered(file, reader):
    """Yields (first line, row) of a csv reader; reports what is no row."""
    while True:
        first = reader.line_num + 1
        try:
            yield first, next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            open_quote = "unexpected end" in str(error)
            file.report(
                f"expected a row of a table; found: {error}."
                + " A double quote opened here is never closed: double it, "
                "or the file is truncated." * open_quote,
                first,
            )


_TABLES = {
    ".csv": lambda file: _delimited_rows(file, ","),
    ".tsv": lambda file: _delimited_rows(file, "\t"),
    ".jsonl": lambda file: file.json_rows(("image", "caption")),
}
