"""Recognises the format of a caption file, and reads its images and captions.

The structure of a JSON file, the first line of a text file or the suffix of its
name defines the format. A reader yields `ImageRecord`s in the order of the
file, and `read_file` joins the records with one image id.
"""

import ast
import contextlib
import csv
import glob
import itertools
import os
import re

from tbnets.checks import first_twice
from tbnets.data import caption_archives
from tbnets.data import splits as split_names
from tbnets.data.archives import is_photo_name, list_archives
from tbnets.data.caption_files import (
    ImageRecord,
    Row,
    known_layout,
    read_rows,
)
from tbnets.data.photos import listed_names
from tbnets.data.phrase_tables import (
    entries_of,
    key_of,
    published_reader,
    rows_of,
)
from tbnets.data.splits import WHOLE_FILE
from tbnets.data.store.features import first_equal_rows, open_array
from tbnets.errors import InputError
from tbnets.files import CheckedFile, listed, parse_json, require_file, shown

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
        return  # It has no header of columns.
    mark, (lines, ends_well) = match[1], file.lines(may_be_cp1252=True)
    rows = _parsed(file, lines, mark, '"' in first)
    line, header = next(rows, (1, [""]))
    if is_conceptual or _is_row(file, header):
        rows = itertools.chain([(line, header)], rows)  # It has no header.
        numbers = map(str, range(1, len(header) + 1))
        header = ["caption", "url"] if is_conceptual else numbers
    header = [name.strip() for name in header]
    yield from read_rows(file, _table_rows(file, header, rows, mark), header)
    if not ends_well:
        file.suspect(
            "expected a newline after the last row; found "
            f"{shown(lines[-1])}. Add the newline if the file is complete.",
            len(lines),
        )


def _is_row(file, header):
    """Returns whether the first line names a photo instead of columns."""
    is_known = known_layout(header, file.columns) is not None
    return not is_known and any(map(file.fits_photo, header))


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
    is_table_of_tabs = is_raw and delimiter == "\t"
    row, first = [], 1
    while row is not None:
        try:
            row = next(reader, None)
        except csv.Error as error:
            row = []
            file.report(
                f"expected a row; found: {error}. Close each double quote, and "
                "end each row with a newline.",
                first,
            )
        if row:
            yield first, [*map(_unquoted, row)] if is_table_of_tabs else row
        first = reader.line_num + 1


def _unquoted(cell):
    # Spreadsheets and pandas quote a cell of a tab-separated table only if its
    # text contains quotes.
    inner = cell[1:-1].replace('""', "")
    if len(cell) > 1 and cell[0] + cell[-1] == '""' and '"' not in inner:
        return cell[1:-1].replace('""', '"')
    return cell


def _table_rows(file, header, rows, mark):
    """Yields a `Row` for each line with as many cells as the header.

    If the last column has captions, it may contain unquoted delimiters.
    """
    width, repaired = len(header), []
    layout = known_layout(header, file.columns)
    may_join = layout is not None and header[-1] in layout.captions
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
            expected = f"{width} columns ({listed(header)})"
            advice = f"Quote captions that contain {shown(mark)}."
            file.refuse(expected, row, line, advice)
    if repaired:
        file.suspect(
            f"expected {width} columns; repaired {len(repaired)} rows that "
            f"lacked {shown(mark)}, or had it in captions.",
            repaired[0],
        )


def _value(cell):
    """Returns the items of a cell with a list, and all other cells as text."""
    if cell.lstrip()[:1] == "[" and _LIST.fullmatch(cell):
        with contextlib.suppress(ValueError):
            return parse_json(cell.strip())
        with contextlib.suppress(ValueError, SyntaxError):
            # NumPy writes no commas. Python would join strings without commas.
            return [*map(ast.literal_eval, re.findall(_STRING, cell))]
    return cell


def _with_bar(row, count):
    # A row of Kaggle's results.csv of Flickr30k lacks the bar before a caption.
    match = re.fullmatch(r"\s*(\d+)\s+(.+)", row[-1])
    is_short = match and len(row) + 1 == count
    return [*row[:-1], *match.groups()] if is_short else []


def _format_of_json(file):
    """Returns the name of the format of a JSON `CaptionFile`, or ""."""
    content = file.content
    if content is None:
        return "json" if file.is_json_lines else ""  # Else it is damaged.
    if published_reader(content):
        return "phrases"
    lists = _lists_of_objects(content)
    is_coco = "images" in lists and "caption" in lists.get("annotations", ())
    return "coco" if is_coco else "json"


def _is_mapping(file, content):
    """Returns whether all keys are names of photos."""
    is_named = all(map(is_photo_name, content))
    return is_named or all(map(file.fits_photo, content))


def _lists_of_objects(content):
    """Returns {key: first object} of the lists of objects in a JSON object."""
    return {
        key: value[0]
        for key, value in (content.items() if type(content) is dict else ())
        if isinstance(value, list) and value and isinstance(value[0], dict)
    }


def _rows_of_columns(file, content):
    """Returns a list of objects, or None if the values are no columns.

    The values are lists of equal length or, as pandas writes them, objects with
    equal keys.
    """
    values = [*content.values()]
    if all(type(value) is dict for value in values):
        is_equal = all(value.keys() == values[0].keys() for value in values)
        values = [[*value.values()] for value in values if is_equal]
    is_equal = all(type(value) is list for value in values)
    is_equal = is_equal and len({*map(len, values)}) == 1
    if not is_equal or not known_layout([*content], file.columns):
        return None
    return [dict(zip(content, row)) for row in zip(*values)]


def read_json(file):
    """Reads a list of objects, or an object from photos to captions."""
    if file.is_json_lines:
        rows = itertools.starmap(Row, file.json_rows(()))
    else:
        rows = _json_rows(file, file.content)
    return read_rows(file, rows)


def _json_rows(file, content, place="", split=WHOLE_FILE):
    """Yields the `Row`s of JSON; `place` is where the content is."""
    if isinstance(content, dict) and content:
        if not place and all(map(split_names.is_usual, content)):
            for name, rows in content.items():
                yield from _json_rows(file, rows, name, name)
            return
        if _is_mapping(file, content):
            yield from _rows_of_mapping(content, split)
            return
        lists = _lists_of_objects(content)
        if "sentences" in lists.get("images", ()):  # Karpathy's format.
            place, content = "images", content["images"]
        elif len(lists) == 1:
            [place] = lists
            content = content[place]
        else:
            content = _rows_of_columns(file, content)
    if place or isinstance(content, list):
        for where, row in entries_of(file, content, place):
            yield Row(where, row, split)


def _rows_of_mapping(content, split):
    # The last item of a list may be the path of the image.
    first = next(iter(content))
    has_paths = _ends_with(first, content[first])
    for name, texts in content.items():
        values = {"image": name}
        if isinstance(texts, dict):
            values |= texts
        elif has_paths:
            values["caption"] = texts[:-1] if _ends_with(name, texts) else None
        elif not isinstance(content[first], dict):
            values["caption"] = texts
        yield Row(f"[{shown(name)}]", values, split)


def _ends_with(name, texts):
    last = texts[-1] if isinstance(texts, list) and texts else ""
    return isinstance(last, str) and last.endswith(name)


def read_phrases(file):
    """Reads a file of phrases, and yields them as captions of their images."""
    return read_rows(file, _phrase_rows(file))


def _phrase_rows(file):
    for place, row in rows_of(file):
        values = {"image": row["image"], "caption": row["phrase"]}
        if "split" in row:
            values["split"] = row["split"]
        yield Row(place, values)


def read_coco(file):
    """Reads a list of images and a list of captions, joined by image ids.

    This is the format of `captions_*.json` of MSCOCO. All images are in the
    split "all".
    """
    content, names = file.content, {}
    for place, image in entries_of(file, content["images"], "images"):
        key = key_of(file, image, "id", place)
        name = file.file_name(image.get("file_name"), place)
        if key in names:
            file.refuse("a unique 'id'", key, place)
        elif None not in (key, name):
            names[key] = name
            yield ImageRecord(key, [], WHOLE_FILE, name)
    rows = entries_of(file, content["annotations"], "annotations")
    for place, row in rows:
        key = key_of(file, row, "image_id", place)
        caption = file.caption(row.get("caption"), place)
        if key is not None and key not in names:
            expected = f"an 'id' among the {len(names)} valid 'images'"
            file.refuse(expected, key, place)
        elif None not in (key, caption):
            yield ImageRecord(key, [caption], WHOLE_FILE, names[key])


_PACKED = {
    b"\x1f\x8b": "a gzip file. Decompress it first with gunzip",
    b"PK\3\4": "a zip file. Unpack it, or save a spreadsheet as CSV",
}
"""Maps the first bytes of a compressed file to advice."""
_TOKEN_START = re.compile(r"[^\t\n]+#\d+ *\t")
_SPLIT_LIST = re.compile(
    rf"(?:.*[._])?([A-Za-z]+)Images\.txt|({'|'.join(split_names.SPLIT_ORDER)})\.txt"
)
_TOKEN_ROW = re.compile(r"([^\t]+)#\d+ *\t(.*)", re.DOTALL)


def read_flickr(file):
    """Reads a token file, the format of Flickr8k.

    Each line is `<image>#<number><TAB><caption>`. In its folder,
    `*.<split>Images.txt` or `<split>.txt` lists the images of a split, with or
    without file extensions. If there are no lists, all images are in the split
    "all".
    """
    lists = _split_lists(file.path)
    records = read_rows(file, _token_rows(file))
    if not lists:
        yield from records
        return
    images = {record.image_id: record for record in joined(records)}
    for split, path in lists.items():
        listed_file = CheckedFile(path, file.problems)
        for name in listed_names(listed_file, images, may_lack=False):
            yield images[name]._replace(split=split)


def _token_rows(file):
    rows, ends_well = file.lines(may_be_cp1252=True)
    for line, row in enumerate(rows, 1):
        is_cut = line == len(rows) and not ends_well
        match = _TOKEN_ROW.fullmatch(row)
        if match and not is_cut:
            yield Row(line, {"image": match[1], "caption": match[2]})
        elif row.strip():
            advice = "Copy the truncated file again, or end its last line."
            expected = "'<image>#<number><TAB><caption>'"
            file.refuse(expected, row, line, advice * is_cut)


def _split_lists(path):
    # Returns {split: path of the list}.
    folder, lists = glob.escape(os.path.dirname(path)), {}
    for candidate in sorted(glob.glob(os.path.join(folder, "*.txt"))):
        match = _SPLIT_LIST.fullmatch(os.path.basename(candidate))
        split = match and (match[1] or match[2]).lower()
        if split in lists:
            raise InputError(
                "path",
                f"have at most one list of {split!r} in its folder",
                f"{lists[split]} and {candidate}",
            )
        if split:
            lists[split] = candidate
    return lists


def read_precomputed(file):
    """Reads captions of precomputed image features, the format of VSE++.

    `file` is `<split>_caps.txt`, with one caption per line. `<split>_ims.npy`
    contains one row of features per image. The lines are divided into equal
    blocks, and block i contains the captions of row i.

    If there is a row for each caption, rows with equal ids in `<split>_ids.txt`
    belong to one image. If there is no file of ids, consecutive identical rows
    belong to one image, whose id is the number of its first row.
    """
    base = file.path.removesuffix("_caps.txt")
    rows, ends_well = file.lines(may_be_cp1252=True)
    try:
        features = open_array(f"{base}_ims.npy")
    except ValueError as error:
        file.report(f"its features cannot be read: {error}")
        return
    images = len(features)
    if not rows or len(rows) % images:
        cut = "" if ends_well else "Copy the file again: its end is missing."
        expected = (
            "an equal number of captions for each of the "
            f"{images} rows of {features.path}"
        )
        file.refuse(expected, len(rows), len(rows), cut)
        return
    each, twice = len(rows) // images, first_twice(features.ids)
    keys = [key for key in features.ids for _ in range(each)]
    if each == 1 and not features.has_ids:
        keys = map(str, first_equal_rows(features))
    if each > 1 and twice is not None:
        expected = f"unique ids, because each row has {each} captions"
        ids = CheckedFile(f"{base}_ids.txt", file.problems)
        ids.refuse(expected, twice)
        return
    for key, row in zip(keys, rows):
        yield ImageRecord(key, [row.strip()], WHOLE_FILE, key, features.has_ids)


READERS = {
    "precomputed": read_precomputed,
    "flickr": read_flickr,
    "phrases": read_phrases,
    "coco": read_coco,
    "json": read_json,
    "webdataset": caption_archives.read_shards,
    "parquet": caption_archives.read_parquet,
    "table": read_table,
}
"""Maps each format to its reader."""


def joined(records):
    """Returns a list with an `ImageRecord` for each image and split."""
    images = {}
    for record in records:
        key = record.split, record.image_id
        if key in images:
            images[key].captions.extend(record.captions)
        else:
            images[key] = record
    return [*images.values()]


def read_file(file):
    """Returns the `ImageRecord`s of a `CaptionFile`, and text on its format.

    The text names the format and the columns. Reports a problem and returns
    ([], "") if the file has no known format or no columns of captions.
    """
    before = len(file.problems or ())
    name = _format_of(file)
    records = joined(READERS[name](file) if name else ())
    if not records and len(file.problems or ()) == before:
        _report_unknown(file)
    used = f" ({file.used})" if file.used else ""
    return records, f"{name}{used}" if records or used else ""


def _format_of(file):
    """Returns the format of a file, or "" if it has none."""
    for suffix, name in ((".tar", "webdataset"), (".parquet", "parquet")):
        if list_archives(file.path, (suffix,)):
            return name
    require_file(file.path)
    if file.path.endswith("_caps.txt"):
        return "precomputed"
    for magic, packed in _PACKED.items():
        if file.head.startswith(magic):
            file.report(f"expected captions; found {packed}.")
            return ""
    if file.is_json:
        return _format_of_json(file)
    return "flickr" if _TOKEN_START.match(file.start) else "table"


def _report_unknown(file):
    found = shown(file.start.partition("\n")[0])
    if file.is_json and isinstance(file.content, dict):
        found = f"an object with the keys {listed([*file.content], 12)}"
    advice = "docs/bring_your_data.md shows the files that can be read."
    file.report(f"expected captions; found {found}. {advice}")
