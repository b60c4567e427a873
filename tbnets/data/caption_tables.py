"""Reads captions from text tables, such as CSV and TSV files."""

import ast
import contextlib
import csv
import itertools
import re
from typing import NamedTuple

from tbnets.data.caption_columns import (
    SAMPLE_ROWS,
    Chosen,
    Columns,
    OtherFormat,
    Row,
    choose_columns,
    images_of,
    is_id,
    is_image,
)
from tbnets.files import listed, parse_json, shown

_MOST_COLUMNS = 50
"""Maximum number of columns in a table without a header."""
_STRING = r"'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\""
_LIST = re.compile(rf"\[\s*(?:(?:{_STRING})\s*(?:,\s*)?)+\]", re.DOTALL)


class _Layout(NamedTuple):
    delimiter: str
    quoting: int
    header: list  # Empty if the table has no header.
    width: int
    chosen: Chosen


def _reader(lines, delimiter, quoting):
    options = {"delimiter": delimiter, "quoting": quoting, "strict": True}
    return csv.reader(lines, **options)


def _find_layout(file):
    if file.start[:1] in ("{", "[") or "\0" in file.start:
        raise OtherFormat("it is not text in columns")
    first = "\t" if file.path.lower().endswith(".tsv") else ","
    reasons = []
    for mark in dict.fromkeys((first, "\t", ",", ";", "|")):
        quoting = _quoting(file, mark)
        lines = [line + "\n" for line in file.first_lines]
        rows = []
        with contextlib.suppress(csv.Error):  # Reported with its line later.
            reader = filter(None, _reader(lines, mark, quoting))
            rows.extend(itertools.islice(reader, SAMPLE_ROWS))
        widths = [len(row) for row in rows]
        if max(widths, default=0) < 2:
            continue
        try:
            return _Layout(mark, quoting, *_find_columns(rows, file.columns))
        except OtherFormat as error:
            reasons.append((widths[0], str(error)))
    raise OtherFormat(max(reasons)[1] if reasons else "it has only one column")


def _quoting(file, mark):
    # Values separated by bars are not quoted, and many separated by tabs are
    # not.
    is_quoted = mark != "|"
    if mark == "\t":
        text = "\n".join(file.first_lines).replace("\r", "")
        is_quoted = re.search(r'(?m)(?:^|\t) *"[^\t]*"(?:\t|$)', text)
    return csv.QUOTE_MINIMAL if is_quoted else csv.QUOTE_NONE


def _find_columns(rows, columns):
    """Returns (header, width, chosen). `header` is [] if there is none."""
    try:
        header, *body = rows
        body = [row for row in body if len(row) == len(header)]
        values = list(zip(*body)) or [()] * len(header)
        chosen = choose_columns(header, values, columns)
        cell = header[chosen.image]
        if is_image(cell) or is_id(cell):  # A header only if its names suffice.
            choose_columns(header, [()] * len(header), columns)
        return [name.strip() for name in header], len(header), chosen
    except OtherFormat:
        widths = range(min(max(map(len, rows)), _MOST_COLUMNS), 1, -1)
        for width in () if any(columns) else widths:
            wide = [row for row in rows if len(row) >= width]
            if len(wide) < 0.8 * len(rows):
                continue
            # A caption in the last column may contain delimiters.
            values = list(zip(*(_joined(row, width, ",") for row in wide)))
            with contextlib.suppress(OtherFormat):
                return (
                    [],
                    width,
                    choose_columns([""] * width, values, Columns()),
                )
        raise


def _joined(row, width, delimiter):
    return [*row[: width - 1], delimiter.join(row[width - 1 :])]


def read_table(file):
    """Reads a table with an image and its captions in each row.

    The separator, the header and the columns are detected in the first rows. If
    there is no column of splits, all images are in the split "all".
    """
    layout = _find_layout(file)
    names = layout.header or [*map(str, range(1, layout.width + 1))]
    file.used = f"columns {layout.chosen.listed(names)}"
    file.used += "" if layout.header else ", no header"
    return images_of(file, _caption_rows(file, layout))


def _caption_rows(file, layout):
    image, captions, split = layout.chosen
    for line, row in _rows(file, layout):
        texts = [text for place in captions for text in _texts(row[place])]
        if len(captions) > 1:  # The last columns of a row may be empty.
            texts = [text for text in texts if text.strip()]
        part = None if split is None else row[split]
        yield Row(line, row[image], [(line, text) for text in texts], part)


def _texts(text):
    if _LIST.fullmatch(text.strip()):
        for parse in (parse_json, _python_strings):
            with contextlib.suppress(ValueError, SyntaxError):
                return parse(text.strip())
    return [text]


def _python_strings(text):
    # NumPy writes no commas. Python would join strings without commas.
    return [ast.literal_eval(part) for part in re.findall(_STRING, text)]


def _rows(file, layout):
    lines, ends_well = file.lines()
    reader = _reader(
        [line + "\n" for line in lines], layout.delimiter, layout.quoting
    )
    rows = _with_lines(file, reader)
    rows = ((line, row) for line, row in rows if row)
    mark, width = layout.delimiter, layout.width
    repaired = []
    for line, row in itertools.islice(rows, bool(layout.header), None):
        if len(row) != width and mark == "|":
            row = _with_bar(row, width) or row
            repaired += [line] * (len(row) == width)
        elif len(row) > width and width - 1 in layout.chosen.captions:
            row = _joined(row, width, mark)
            repaired.append(line)
        if len(row) == width:
            yield line, row
        else:
            names = f" ({listed(layout.header)})" if layout.header else ""
            advice = f"Quote captions that contain {shown(mark)}."
            expected = f"{width} columns{names}"
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
    if lines and not ends_well:
        file.suspect(
            "expected a newline after the last row; found "
            f"{shown(lines[-1])}. Add the newline if the file is complete.",
            len(lines),
        )


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
