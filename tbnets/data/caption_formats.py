"""Recognises the format of a caption file, and reads its images and captions.

The structure of a JSON file, the first line of a text file or the suffix of its
name defines the format. A reader returns an `ImageRecord` for each image and
split, in the order of the file.
"""

import glob
import os
import re

from tbnets.checks import first_twice
from tbnets.data import caption_archives, caption_json, caption_tables
from tbnets.data import splits as split_names
from tbnets.data.archives import list_archives
from tbnets.data.caption_files import ImageRecord, Row, read_rows
from tbnets.data.splits import WHOLE_FILE
from tbnets.data.store.features import first_equal_rows, open_array
from tbnets.errors import InputError
from tbnets.files import CheckedFile, listed, require_file, shown

_PACKED = {
    b"\x1f\x8b": "a gzip file. Decompress it first with gunzip",
    b"PK\3\4": "a zip file. Unpack it, or save a spreadsheet as CSV",
}
"""Maps the first bytes of a compressed file to advice."""
_TOKEN_START = re.compile(r"[^\t\n]+#\d+ *\t")
_TOKEN_ROW = re.compile(r"([^\t]+)#\d+ *\t(.*)", re.DOTALL)


def read_flickr(file):
    """Reads a token file, the format of Flickr8k.

    Each line is `<image>#<number><TAB><caption>`. In its folder,
    `*.<split>Images.txt` or `<split>.txt` lists the images of a split, with or
    without file extensions. If there are no lists, all images are in the split
    "all".
    """
    records = read_rows(file, ["image", "caption"], _token_rows(file))
    by_name = {record.image_id: record for record in records}
    lists = _split_lists(file.path)
    return [
        by_name[name]._replace(split=split)
        for split, path in lists.items()
        for name in _listed(path, by_name, file)
    ] or records * (not lists)


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
    for line, row in enumerate(file.lines(may_be_cp1252=True)[0], 1):
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
        ids = CheckedFile(f"{base}_ids.txt", file.problems)
        advice = "Put all captions of an image in one block."
        ids.refuse(expected, twice, None, advice)
        return []
    records = {}
    for key, row in zip(keys, rows):
        record = ImageRecord(key, [], WHOLE_FILE, key, features.has_ids)
        records.setdefault(key, record).captions.append(row.strip())
    return list(records.values())


READERS = {
    "precomputed": read_precomputed,
    "flickr": read_flickr,
    "phrases": caption_json.read_phrases,
    "karpathy": caption_json.read_records,
    "coco": caption_json.read_coco,
    "records": caption_json.read_records,
    "mapping": caption_json.read_records,
    "webdataset": caption_archives.read_shards,
    "parquet": caption_archives.read_parquet,
    "table": caption_tables.read_table,
}
"""Maps each format to its reader."""
OF_SEVERAL_FILES = ("precomputed", "flickr")
"""Formats whose readers also read other files in the folder."""


def read_file(file):
    """Returns the `ImageRecord`s of a `CaptionFile`, and text on its format.

    The text names the format and the columns. Reports a problem and returns
    ([], "") if the file has no known format or no columns of captions.
    """
    before = len(file.problems or ())
    if name := _format_of(file):
        records = READERS[name](file)
        if not records and len(file.problems or ()) == before:
            file.report("expected captions; found none.")
        if file.used:
            return records, f"{name} ({file.used})"
        return records, name if records else ""
    if len(file.problems or ()) == before:  # Else it is damaged.
        _report_unknown(file)
    return [], ""


def _format_of(file):
    """Returns the format of a file, or "" if it has none."""
    for suffix, name in ((".tar", "webdataset"), (".parquet", "parquet")):
        if list_archives(file.path, (suffix,))[1]:
            return name
    require_file(file.path)
    if file.path.endswith("_caps.txt"):
        return "precomputed"
    if any(map(file.head.startswith, _PACKED)):
        return ""
    if file.is_json:
        return caption_json.format_of(file)
    return "flickr" if _TOKEN_START.match(file.start) else "table"


def _report_unknown(file):
    found = shown(file.start.partition("\n")[0])
    for magic, packed in _PACKED.items():
        found = packed if file.head.startswith(magic) else found
    if file.is_json and isinstance(file.content, dict):
        found = f"an object with the keys {listed([*file.content], 12)}"
    advice = "docs/bring_your_data.md shows the files that can be read."
    file.report(f"expected captions; found {found}. {advice}")
