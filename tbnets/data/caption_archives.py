"""Reads the captions in WebDataset shards and in parquet files.

A shard is a tar archive. The files of a sample share a key, which is the file
name up to the first dot. The photo is `KEY.jpg`, and its captions are in
`KEY.txt`, `KEY.json` or `KEY.cls`.
"""

import collections
import os
import posixpath
import re

from tbnets.data import archives
from tbnets.data.caption_files import (
    CaptionFile,
    ImageRecord,
    Row,
    read_rows,
    valid_captions,
)
from tbnets.data.layouts import caption_columns
from tbnets.data.splits import SPLIT_ORDER, WHOLE_FILE
from tbnets.files import CheckedFile, parse_json

_TEXTS = ("txt", "json", "cls")
"""Extensions of caption files. If a photo has several, the first is read."""
_CLASSES = ("classes.txt", "classnames.txt")
_PHOTO = "image"
"""Name of the column of photos in messages."""
_SHORT = {"training": "train", "testing": "test"}
_SHORT |= {"valid": "val", "validation": "val"}
"""Maps words in the names of archives to the splits that they name."""


def archive_splits(names):
    """Returns a list with the split of each archive.

    The split is the last word in the path that names a split, such as `train`
    or `val`. If any path names no split, or if every path names `train`, all
    archives are in the split "all".
    """
    words = "|".join(SPLIT_ORDER)
    found = []
    for name in names:
        matches = re.findall(rf"(?<![a-z])({words})(?![a-z])", name.lower())
        found.append(_SHORT.get(matches[-1], matches[-1]) if matches else None)
    is_split = None not in found and set(found) != {"train"}
    return found if is_split else [WHOLE_FILE] * len(found)


def read_shards(file):
    """Yields the `ImageRecord`s of the photos in shards, in order.

    An image's id is the name of its photo in the shard, after the path of the
    shard if several shards have a photo with this name. Each line of a `.txt`
    file is a caption. In a `.json` file, the captions are stored under one of
    the keys in `layouts.COLUMN_NAMES`. A `.cls` file contains the name of a
    class, or the index of a line in `classes.txt` next to the shards.
    """
    shards, repeated = _open_all(file, ".tar")
    file.used = f"{len(shards)} shards"
    classes = _read_classes(archives.photo_root(file.path))
    counts = collections.Counter()
    for before, archive, split in shards:
        shard = CheckedFile(archive.path, file.problems)
        for key, files in _samples(archive).items():
            photos = files.pop(_PHOTO, [])
            texts = next((files[kind] for kind in _TEXTS if kind in files), [])
            if len(photos) > 1:
                expected = f"one photo with the key {key!r}"
                advice = "A key ends at the first dot. Rename the photo."
                shard.refuse(expected, photos[-1], None, advice)
            elif photos:
                captions = []
                if texts:
                    content = archive.read(texts[0])
                    captions = _captions(shard, content, texts[0], classes)
                place = posixpath.join(before, photos[0])
                key = place if photos[0] in repeated else photos[0]
                yield ImageRecord(key, captions, split, place)
                counts["photos without a caption"] += not captions
            else:
                counts["captions without a photo"] += bool(texts)
    if lines := [f"{count} {what}" for what, count in counts.items() if count]:
        file.suspect(f"{' and '.join(lines)}.", None)


def _open_all(file, suffix):
    """Opens the archives of a caption file; reports damaged ones.

    Returns a list of (path below the root, archive, split), and the names of
    photos in several archives.
    """
    opened = archives.open_archives(file.path, (suffix,), file.problems)
    splits = archive_splits([name for name, _ in opened])
    triples = [(*pair, split) for pair, split in zip(opened, splits)]
    return triples, archives.repeated_names(opened)


def _samples(archive):
    """Returns a dict from each key in a shard to the names of its files.

    The names are in a dict from `_PHOTO` or the extension to lists.
    """
    samples = {}
    for name in archive.places:
        folder, base = posixpath.split(name)
        key = posixpath.join(folder, base.partition(".")[0])
        is_photo = archives.is_photo_name(name)
        kind = _PHOTO if is_photo else name.rpartition(".")[2].lower()
        samples.setdefault(key, {}).setdefault(kind, []).append(name)
    return samples


def _captions(shard, content, name, classes):
    is_json = name.lower().endswith("json")
    try:
        text = content.decode("utf-8-sig").strip()
        value = parse_json(text) if is_json else text
    except ValueError as error:  # Also a UnicodeDecodeError.
        expected = "JSON" if is_json else "UTF-8 text"
        shard.refuse(expected, content, name, f"{error}.")
        return []
    if is_json:
        texts = _texts_of(value)
    elif name.lower().endswith("txt"):
        texts = filter(None, map(str.strip, text.split("\n")))
    else:
        texts = [_class_name(shard, name, text, classes)]
    return valid_captions(shard, ((name, text) for text in texts))


def _texts_of(value):
    if isinstance(value, dict):
        value = [value[name] for name in caption_columns([*value])]
        value = value[0] if len(value) == 1 else value
    return value if isinstance(value, list) else [value]


def _class_name(shard, name, text, classes):
    if not text.isdecimal():
        return text
    number = int(text[:20])  # Python rejects numbers of thousands of digits.
    if number < len(classes):
        return classes[number]
    expected = f"the number of a line in {_CLASSES[0]} next to the shards"
    received = f"{text[:20]} and {len(classes)} lines"
    return shard.refuse(expected, received, name)


def _read_classes(root):
    folder = root if os.path.isdir(root) else os.path.dirname(root)
    for name in _CLASSES:
        if os.path.isfile(path := os.path.join(folder, name)):
            return CheckedFile(path).lines(may_be_cp1252=True)[0]
    return []


def read_parquet(file):
    """Yields an `ImageRecord` for each row of parquet files, in order.

    If a column contains photos, an image's id is the path stored with its
    photo. If there are no such paths, the id is the file name in another
    column, or contains the row number. If a name occurs in several files, the
    id begins with the path of the file.
    """
    files, repeated = _open_all(file, ".parquet")
    for before, archive, split in files:
        part = CaptionFile(
            archive.path, file.problems, file.columns, file.images
        )
        names, place = archive.columns, ""
        if archive.names:  # The column of photos is the column of images.
            part.columns = part.columns._replace(image=_PHOTO)
            names = [_PHOTO, *(name for name in names if name != _PHOTO)]
            place = before
        rows = _parquet_rows(archive, split)
        for record in read_rows(part, rows, names, place):
            is_repeated = record.image_id in repeated
            key = record.file_name if is_repeated else record.image_id
            yield record._replace(image_id=key)
        file.used = part.used


def _parquet_rows(archive, split):
    for number, row in enumerate(archive.rows(archive.columns)):
        for name, value in row.items():
            if value is None or isinstance(value, list):
                row[name] = [text for text in value or () if text is not None]
        if archive.names:
            row[_PHOTO] = archive.names[number]
        yield Row(f"row {number}", row, split)
