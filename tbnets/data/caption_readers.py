"""Readers of caption files.

A reader takes a `CheckedFile` and a split, and returns one `ImageRecord` per
image, in the order of the file. If one file contains all splits, its reader
returns all images, and `captions.read_captions` selects a split.
"""

import contextlib
import csv
import functools
import glob
import os
import posixpath
import re
from typing import NamedTuple

from tbnets.checks import first_twice
from tbnets.data import splits as split_names
from tbnets.data.splits import WHOLE_FILE
from tbnets.data.store.arrays import first_equal_rows, open_array
from tbnets.errors import InputError, MissingFileError
from tbnets.files import CheckedFile, require_file, shown

_HEAD_BYTES = 65536


class CaptionFile(CheckedFile):
    """A caption file. `start` is used to find its format."""

    @functools.cached_property
    def head(self):
        """The first bytes of the file; b"" for a folder."""
        with contextlib.suppress(OSError), open(self.path, "rb") as file:
            return file.read(_HEAD_BYTES)
        return b""

    @functools.cached_property
    def start(self):
        """The first characters of the file, without leading whitespace."""
        is_wide = self.head.startswith((b"\xff\xfe", b"\xfe\xff"))
        encoding = "utf-16" if is_wide else "utf-8-sig"
        return self.head.decode(encoding, errors="replace").lstrip()


# Custom tables: CSV, TSV or JSONL of `image,caption[,split]`.

COLUMNS = {
    "image": (
        *("image", "image_name", "file_name", "filename", "filepath"),
        *("file_path", "image_path", "path", "img", "image_id", "url"),
    ),
    "caption": (
        *("caption", "text", "title", "sentence", "description", "comment"),
        *("alt_text", "captions"),
    ),
    "split": ("split", "set", "subset"),
}
"""Maps each column that is read to the names that it may have."""
_NEEDED = {"image", "caption"}
_DELIMITERS = {".csv": ",", ".tsv": "\t"}


def read_table(file, _):
    """Reads a table with an image and a caption, or several, per row.

    The table is CSV, TSV, JSONL or a JSON list of objects. The columns may have
    any name in `COLUMNS`. Rows with the same image and split become one record.
    If there is no split column, all images are in the split "all".
    """
    extension = os.path.splitext(file.path)[1].lower()
    has_split, records, spelled = None, {}, {}
    if extension in (".json", ".jsonl"):
        rows = _json_rows(file, extension)
    else:
        rows = _delimited_rows(file, _DELIMITERS.get(extension, ","))
    for line, row in rows:
        image = row.get("image")
        image = image.strip() if isinstance(image, str) else image
        name = file.file_name(image, line)
        texts = row["caption"]
        texts = texts if isinstance(texts, list) else [texts]
        captions = _captions(file, [(line, text) for text in texts])
        if has_split is None:
            has_split = "split" in row
        part = row.get("split", "" if has_split else WHOLE_FILE)
        if "split" in row and not has_split:
            advice = "Earlier rows have no 'split'. Add it to all rows."
            file.refuse("'split' in all rows or in no row", part, line, advice)
        elif not isinstance(part, str) or not part.strip():
            file.refuse("the name of a split", part, line)
        elif (
            name
            and (captions or not texts)
            and _is_spelled(file, line, name, spelled)
        ):
            key = (name, part.strip())
            record = ImageRecord(name, [], part.strip(), name)
            records.setdefault(key, record).captions.extend(captions)
    if has_split is None:
        file.report("expected rows of image,caption; found none.")
    return list(records.values())


def _is_spelled(file, line, name, spelled):
    # Reports a path that an earlier row spells differently.
    before = spelled.setdefault(posixpath.normpath(name), name)
    if name != before:
        advice = "Both names refer to one file. Use one name in all rows."
        file.refuse(f"{shown(before)} as before", name, line, advice)
    return name == before


def _delimited_rows(file, delimiter):
    rows, ends_well = file.lines()
    delimiter = _delimiter(next(filter(str.strip, rows), ""), delimiter)
    lines = [row + "\n" for row in rows]
    # Tables with bars do not quote their values.
    quoting = csv.QUOTE_NONE if delimiter == "|" else csv.QUOTE_MINIMAL
    options = {"delimiter": delimiter, "quoting": quoting, "strict": True}
    reader = csv.reader(lines, **options)
    header = None
    for line, row in _numbered(file, reader):
        if not row:
            continue
        if header is None:
            header = _columns(row)
            if not _NEEDED <= set(header):
                expected = "a header with the columns image and caption"
                file.refuse(expected, row, line, "Name them in the first row.")
                return
            if twice := first_twice(name for name in header if name in COLUMNS):
                advice = "Write one row per caption."
                file.refuse(f"one column {twice}", row, line, advice)
                return
        elif len(row) == len(header):
            yield line, dict(zip(header, row))
        elif delimiter == "|" and (whole := _with_bar(row, len(header))):
            file.suspect("a bar was missing after the comment number.", line)
            yield line, dict(zip(header, whole))
        else:
            expected = f"{len(header)} columns ({', '.join(header)})"
            advice = f"Quote captions that contain {shown(delimiter)}."
            file.refuse(expected, row, line, f"It has {len(row)}. {advice}")
    if rows and not ends_well:
        file.suspect(
            "expected a newline after the last row; found "
            f"{shown(rows[-1])}. Add the newline if the file is complete.",
            len(rows),
        )


def _columns(row):
    """Returns the names in a header, with the keys of `COLUMNS` if known."""
    names = [column.strip().lower() for column in row]
    for kind, usual in COLUMNS.items():
        if known := [name for name in usual if name in names]:
            names = [kind if name == known[0] else name for name in names]
    return names


def _with_bar(row, count):
    # A row of Kaggle's results.csv of Flickr30k lacks the bar before a caption.
    match = re.fullmatch(r"\s*(\d+)\s+(.+)", row[-1])
    return (
        [*row[:-1], *match.groups()] if match and len(row) + 1 == count else []
    )


def _json_rows(file, extension):
    rows = file.json_rows(())
    if extension == ".json":
        rows = ((f"[{i}]", row) for i, row in enumerate(file.json() or ()))
    for place, row in rows:
        renamed = {}
        if isinstance(row, dict):
            renamed = dict(zip(_columns(row), row.values()))
        if _NEEDED <= renamed.keys():
            yield place, renamed
        else:
            expected = "a JSON object with 'image' and 'caption'"
            file.refuse(expected, row, place)


def is_table(start):
    """Returns whether text begins with the header of a table."""
    header = start.partition("\n")[0].strip("\r")
    with contextlib.suppress(csv.Error):  # A carriage return, for example.
        rows = csv.reader([header], delimiter=_delimiter(header, ","))
        return _NEEDED <= {*_columns(next(rows, ()))}
    return False


def _delimiter(header, usual):
    # Tables may also use a comma, a semicolon, a tab or a bar.
    for mark in (usual, ",", ";", "\t", "|"):
        with contextlib.suppress(csv.Error):  # Reported later, with its line.
            names = next(csv.reader([header], delimiter=mark))
            if _NEEDED <= {*_columns(names)}:
                return mark
    return usual


def _numbered(file, reader):
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


_TOKEN_ROW = re.compile(r"([^\t]+)#(\d+)[ ]*\t(.*)", re.DOTALL)


class ImageRecord(NamedTuple):
    """An image and its captions, as returned by a reader.

    `has_id` is False if the id is only a row number within the split.
    """

    image_id: str
    captions: list
    split: str
    file_name: str
    has_id: bool = True


def _entries(file, parent, key, place=""):
    # Yields (place, entry) for each object in the list.
    if parent is None:  # The problem was reported before.
        return
    entries = parent.get(key) if isinstance(parent, dict) else None
    if not isinstance(entries, list):
        received = sorted(parent) if isinstance(parent, dict) else parent
        advice = "Check that `format` fits the file."
        expected = f"an object with a list {key!r}"
        file.refuse(expected, received, place or None, advice)
        return
    before = f"{place}." if place else ""
    for index, entry in enumerate(entries):
        where = f"{before}{key}[{index}]"
        if isinstance(entry, dict):
            yield where, entry
        else:
            file.refuse("an object", entry, where)


def _captions(file, texts):
    captions = [file.caption(text, place) for place, text in texts]
    return [text for text in captions if text is not None]


def read_karpathy(file, _):
    """Reads all splits of Karpathy's `dataset_*.json`.

    The image id is `filename`. Entries of MSCOCO also contain `filepath`, the
    folder of the image.
    """
    records = {}
    for place, image in _entries(file, file.json(), "images"):
        name = file.file_name(image.get("filename"), place)
        folder, part = image.get("filepath"), image.get("split")
        file_name = f"{folder}/{name}" if folder else name
        if not isinstance(part, str) or not part:
            file.refuse("'split' (train, restval, val or test)", part, place)
        elif name in records:
            file.refuse("a unique 'filename'", name, place)
        elif name and file.file_name(file_name, place):
            sentences = _entries(file, image, "sentences", place)
            texts = [(where, entry.get("raw")) for where, entry in sentences]
            captions = _captions(file, texts)
            records[name] = ImageRecord(name, captions, part, file_name)
    return list(records.values())


def read_coco(file, _):
    """Reads an MSCOCO `captions_*.json` file, which has a single split."""
    records, content = {}, file.json()
    for place, image in _entries(file, content, "images"):
        key = _coco_id(file, image, "id", place)
        name = file.file_name(image.get("file_name"), place)
        if key in records:
            file.refuse("a unique 'id'", key, place)
        elif None not in (key, name):
            records[key] = ImageRecord(key, [], WHOLE_FILE, name)
    for place, annotation in _entries(file, content, "annotations"):
        key = _coco_id(file, annotation, "image_id", place)
        caption = file.caption(annotation.get("caption"), place)
        if key is not None and key not in records:
            expected = f"an 'id' among the {len(records)} valid 'images'"
            file.refuse(expected, key, place)
        elif None not in (key, caption):
            records[key].captions.append(caption)
    return list(records.values())


def _coco_id(file, entry, name, place):
    value = entry.get(name)
    if isinstance(value, int | str) and not isinstance(value, bool):
        return str(value)
    return file.refuse(f"an integer or a string as {name!r}", value, place)


def read_flickr30k_json(file, _):
    """Reads JSON `{name: [caption, ..., image path]}` with a single split.

    If the first list does not end with the path of its image, all items are
    captions, and a single caption may be a string.
    """
    content, records = file.json(), []
    if content is not None and not isinstance(content, dict):
        file.refuse("an object of images", content)
        return []
    content = content or {}
    has_paths = any(_ends_with(*each) for each in [*content.items()][:1])
    for name, entries in content.items():
        place = f"[{shown(name)}]"
        if isinstance(entries, str) and not has_paths:
            entries = [entries]
        if has_paths and not _ends_with(name, entries):
            expected = "a list of captions that ends with the path of the image"
            file.refuse(expected, entries, place)
        elif not isinstance(entries, list) or not entries:
            file.refuse("a caption or a list of captions", entries, place)
        elif file.file_name(name, place):
            texts = entries[:-1] if has_paths else entries
            captions = _captions(file, [(place, text) for text in texts])
            records.append(ImageRecord(name, captions, WHOLE_FILE, name))
    return records


def _ends_with(name, entries):
    is_list = isinstance(entries, list) and len(entries) > 0
    return is_list and str(entries[-1]).endswith(name)


def flickr_splits(path):
    """Returns the splits that have a list in the folder of a token file."""
    require_file(path)
    return split_names.ordered_splits(_split_lists(path)) or (WHOLE_FILE,)


def read_flickr(file, split):
    """Reads one split of a token file.

    The lines are `<image>#<number><TAB><caption>`. The list of images in a
    split is named `*.<split>Images.txt` or `<split>.txt`, and is in the same
    folder. Its ids may lack the file extension. If there are no lists, all
    images are in the split "all".
    """
    captions, lists = _token_captions(file), _split_lists(file.path)
    part, names = WHOLE_FILE, captions
    if lists:
        known = split_names.ordered_splits(lists)
        part = split_names.choose_split(split, known, file.path)
        names = _listed(lists[part], captions, file)
    return [
        ImageRecord(name, list(captions[name].values()), part, name)
        for name in names
    ]


def _token_captions(file):
    # Returns {image: {caption number: caption}}.
    rows, ends_well = file.lines()
    captions = {}
    for line, row in enumerate(rows, 1):
        cut = line == len(rows) and not ends_well
        match = _TOKEN_ROW.fullmatch(row)
        if row.strip() and (cut or not match):
            advice = ""
            if cut and captions:  # Else the file may have another format.
                advice = "Copy the truncated file again, or end its last line."
            file.refuse("'<image>#<number><TAB><caption>'", row, line, advice)
        elif match and file.file_name(match[1], line):
            texts = captions.setdefault(match[1], {})
            if match[2] in texts:
                expected = "a unique number for each caption of an image"
                file.refuse(expected, f"{match[1]}#{match[2]}", line)
            texts.setdefault(match[2], match[3].strip())
    if not captions:
        file.report("expected captions; found none.")
    return captions


def _split_lists(path):
    # Returns {split: path of the list}.
    folder = os.path.dirname(os.fspath(path))
    lists = {}
    pattern = os.path.join(glob.escape(folder), "*.txt")
    for candidate in sorted(glob.glob(pattern)):
        name = os.path.basename(candidate)
        match = re.fullmatch(r"(?:.*[._])?([A-Za-z]+)Images\.txt", name)
        split = match[1].lower() if match else name.removesuffix(".txt")
        if not match and split not in split_names.SPLIT_ORDER:
            continue
        if split in lists:
            raise InputError(
                "path",
                "have at most one list per split in its folder",
                f"path={path} with {lists[split]} and {candidate} for "
                f"{split!r}",
                "Remove one list.",
            )
        lists[split] = candidate
    return lists


def _listed(path, captions, token_file):
    # Returns the images that a split list names.
    file, names, by_stem = CheckedFile(path, token_file.problems), {}, {}
    for name in captions:
        by_stem.setdefault(os.path.splitext(name)[0], []).append(name)
    for line, row in enumerate(file.lines()[0], 1):
        listed = row.strip()
        matches = [listed] if listed in captions else by_stem.get(listed, [])
        if listed and len(matches) != 1:
            expected = f"an image of {token_file.path}"
            advice = (
                f"It has {len(matches) or 'no'} images of this name. Correct "
                "the list, or complete the token file."
            )
            file.refuse(expected, listed, line, advice)
        elif listed and matches[0] in names:
            expected = f"each image once; line {names[matches[0]]} has it"
            file.refuse(expected, listed, line)
        elif listed:
            names[matches[0]] = line
    if not names:
        file.report("expected one image per line; found none.")
    return names


def precomputed_splits(path):
    """Returns the splits for which a folder contains `<split>_caps.txt`."""
    names = split_names.splits_in_path(os.path.join(path, "{split}_caps.txt"))
    if not names:
        raise MissingFileError(
            "`path` must be a folder with <split>_ims.npy and "
            f"<split>_caps.txt. Received: path={path}. Check the path."
        )
    return names


def read_precomputed(folder, split):
    """Reads one split from a folder of features and captions (VSE++).

    `<split>_ims.npy` has one row per image, and the i-th block of lines in
    `<split>_caps.txt` contains the captions of image i. If the array has one
    row per caption, rows with the same id belong to one image. Without
    `<split>_ids.txt`, consecutive identical rows belong to one image, whose id
    is the number of its first row.
    """
    path = folder.path
    name = split_names.choose_split(split, precomputed_splits(path), path)
    base = os.path.join(path, name)
    file = CheckedFile(f"{base}_caps.txt", folder.problems)
    rows, ends_well = file.lines()
    try:
        features = open_array(f"{base}_ims.npy")
    except ValueError as error:
        file.report(f"its features cannot be read: {error}")
        return []
    images = len(features)
    if not rows or len(rows) % images:
        cut = "" if ends_well else " Copy the file again: its end is missing."
        file.report(
            f"expected an equal number of captions for each of the {images} "
            f"rows of {features.path}; found {len(rows)} captions.{cut}",
            len(rows),
        )
        return []
    each, twice = len(rows) // images, first_twice(features.ids)
    keys = [key for key in features.ids for _ in range(each)]
    if each == 1 and not features.has_ids:
        keys = map(str, first_equal_rows(features))
    if each > 1 and twice is not None:
        expected = f"unique ids, because each row has {each} captions"
        ids = CheckedFile(f"{base}_ids.txt", folder.problems)
        advice = "Put all captions of an image in one block."
        ids.refuse(expected, twice, None, advice)
        return []
    records = {}
    for key, row in zip(keys, rows):
        record = ImageRecord(key, [], name, key, features.has_ids)
        records.setdefault(key, record).captions.append(row.strip())
    return list(records.values())
