"""Reads captions from text tables, such as CSV and TSV files.

The first line that is not empty is the header. Its first tab, bar, semicolon or
comma is the delimiter of all lines.
"""

import ast
import contextlib
import csv
import itertools
import re

from tbnets.data.caption_files import Row, read_rows
from tbnets.data.layouts import UnknownColumns, find_layout
from tbnets.files import listed, parse_json, shown

_DELIMITER = re.compile(r"[^\t|;,]*([\t|;,])")
_STRING = r"'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\""
_LIST = re.compile(rf"\s*\[\s*(?:(?:{_STRING})\s*(?:,\s*)?)+\]\s*", re.DOTALL)
_CONCEPTUAL = re.compile(r"[^\t]+(\t)https?://\S+")
"""A line of Conceptual Captions, which has no header."""


def read_table(file):
    """Reads a table with an image and its captions in each row.

    If there is no column of splits, all images are in the split "all".
    """
    first = file.start.partition("\n")[0].rstrip()
    is_conceptual = _CONCEPTUAL.fullmatch(first)
    match = is_conceptual or _DELIMITER.match(first)
    if not match or "\0" in file.start:
        file.report(
            f"expected captions; found {shown(first)}, which is no header of "
            "columns. docs/bring_your_data.md shows the files that can be read."
        )
        return []
    mark, (lines, ends_well) = match[1], file.lines(may_be_cp1252=True)
    rows = _parsed(file, lines, mark, '"' in first)
    line, header = next(rows, (1, [""]))
    if is_conceptual or _is_row(file, header):
        rows = itertools.chain([(line, header)], rows)  # It has no header.
        numbers = map(str, range(1, len(header) + 1))
        header = ["caption", "url"] if is_conceptual else numbers
    header = [name.strip() for name in header]
    records = read_rows(file, header, _rows(file, header, rows, mark))
    if not ends_well:
        file.suspect(
            "expected a newline after the last row; found "
            f"{shown(lines[-1])}. Add the newline if the file is complete.",
            len(lines),
        )
    return records


def _is_row(file, header):
    """Returns whether the first line names a photo instead of columns."""
    with contextlib.suppress(UnknownColumns):
        return not find_layout(header, file.columns)
    pairs = itertools.product(header, (False, True))
    return any(file.has_photos([cell], by_stem) for cell, by_stem in pairs)


def _parsed(file, lines, delimiter, is_quoted):
    """Yields (line, cells) for each line that is not empty."""
    # Between tabs, quotes have a meaning only if the header has quotes.
    is_raw = delimiter == "|" or delimiter == "\t" and not is_quoted
    reader = csv.reader(
        (line + "\n" for line in lines),
        delimiter=delimiter,
        quoting=csv.QUOTE_NONE if is_raw else csv.QUOTE_MINIMAL,
        strict=True,
    )
    for line, row in _with_lines(file, reader):
        if row:
            is_table_of_tabs = is_raw and delimiter == "\t"
            yield line, [*map(_unquoted, row)] if is_table_of_tabs else row


def _unquoted(cell):
    # Spreadsheets and pandas quote a cell of a tab-separated table only if its
    # text contains quotes.
    inner = cell[1:-1].replace('""', "")
    if len(cell) > 1 and cell[0] + cell[-1] == '""' and '"' not in inner:
        return cell[1:-1].replace('""', '"')
    return cell


def _rows(file, header, rows, mark):
    """Yields a `Row` for each line with as many cells as the header.

    If the last column has captions, it may contain unquoted delimiters.
    """
    width, repaired, may_join = len(header), [], False
    with contextlib.suppress(UnknownColumns):
        may_join = header[-1] in find_layout(header, file.columns).captions
    for line, row in rows:
        if len(row) != width:
            if mark == "|":
                row = _with_bar(row, width) or row
            elif len(row) > width and may_join:
                row = [*row[: width - 1], mark.join(row[width - 1 :])]
            repaired += [line] * (len(row) == width)
        if len(row) == width:
            yield Row(line, dict(zip(header, map(_value, row))))
        else:
            advice = f"Quote captions that contain {shown(mark)}."
            expected = f"{width} columns ({listed(header)})"
            file.refuse(expected, row, line, f"It has {len(row)}. {advice}")
    if repaired:
        why = (
            "lacked a bar" if mark == "|" else f"had {shown(mark)} in captions"
        )
        file.suspect(
            f"expected {width} columns; repaired {len(repaired)} rows that "
            f"{why}. The first is line {repaired[0]}.",
            repaired[0],
        )


def _value(cell):
    """Returns the items of a cell with a list, and all other cells as text."""
    if cell.lstrip()[:1] == "[" and _LIST.fullmatch(cell):
        for parse in (parse_json, _python_strings):
            with contextlib.suppress(ValueError, SyntaxError):
                return parse(cell.strip())
    return cell


def _python_strings(text):
    # NumPy writes no commas. Python would join strings without commas.
    return [ast.literal_eval(part) for part in re.findall(_STRING, text)]


def _with_bar(row, count):
    # A row of Kaggle's results.csv of Flickr30k lacks the bar before a caption.
    match = re.fullmatch(r"\s*(\d+)\s+(.+)", row[-1])
    return (
        [*row[:-1], *match.groups()] if match and len(row) + 1 == count else []
    )


def _with_lines(file, reader):
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
                    " A double quote that starts here is not closed. Write it "
                    "twice, or copy the file again."
                )
            elif "new-line character" in str(error):
                error = "a carriage return without a newline"
                advice = " End each row with a newline, or quote the value."
            file.report(f"expected a row; found: {error}.{advice}", first)
