"""Reads captions from JSON and JSON Lines files."""

import contextlib
import itertools

from tbnets.data import splits as split_names
from tbnets.data.archives import is_photo_name
from tbnets.data.caption_files import ImageRecord, Row, read_rows
from tbnets.data.layouts import UnknownColumns, find_layout
from tbnets.data.phrase_tables import (
    entries_of,
    key_of,
    published_reader,
    rows_of,
)
from tbnets.data.splits import WHOLE_FILE
from tbnets.files import parse_json, shown

_NAMED_ROWS = 100
"""Number of objects whose keys are the columns."""


def format_of(file):
    """Returns the name of the format of a JSON `CaptionFile`, or ""."""
    content = file.content
    if isinstance(content, list):
        return "phrases" if published_reader(content) else "records"
    if not isinstance(content, dict) or not content:
        return "records" if file.is_json_lines else ""
    lists = _lists_of_objects(content)
    first = {key: value[0] for key, value in lists.items()}
    if "images" in first and "caption" in first.get("annotations", ()):
        return "coco"
    if "sentences" in first.get("images", ()):
        return "karpathy"
    if _is_mapping(file, content):
        return "mapping"
    is_split = all(map(split_names.is_usual, content))
    is_list = len(lists) == 1 or _columns(file, content)
    return "records" if is_split or is_list else ""


def _is_mapping(file, content):
    """Returns whether all keys are names of photos."""
    is_named = all(map(is_photo_name, content))
    return is_named or file.has_photos(content, by_stem=True)


def _lists_of_objects(content):
    return {
        key: value
        for key, value in content.items()
        if isinstance(value, list) and value and isinstance(value[0], dict)
    }


def _columns(file, content):
    """Returns a list of columns, or None if the values are no columns.

    The values are lists of equal length or, as pandas writes them, objects with
    equal keys.
    """
    first, *others = content.values()
    kind = type(first)
    if kind not in (list, dict) or not all(type(x) is kind for x in others):
        return None
    try:
        find_layout([*content], file.columns)
    except UnknownColumns:
        return None
    if kind is dict:
        is_equal = all(value.keys() == first.keys() for value in others)
        columns = [[*value.values()] for value in content.values()]
    else:
        is_equal = all(len(value) == len(first) for value in others)
        columns = [*content.values()]
    return columns if is_equal else None


def read_records(file):
    """Reads a list of objects, or an object from photos to captions."""
    if file.is_json_lines:
        return read_rows(file, *_rows_of_lines(file))
    return read_rows(file, *_rows(file, file.content))


def _rows(file, content, split=None):
    """Returns the names of the columns, and an iterable of `Row`s."""
    part = WHOLE_FILE if split is None else split
    place = split or ""
    if isinstance(content, dict) and content:
        if split is None and all(map(split_names.is_usual, content)):
            parts = [_rows(file, content[name], name) for name in content]
            names = [name for names, _ in parts for name in names]
            rows = itertools.chain.from_iterable(rows for _, rows in parts)
            return [*dict.fromkeys(names)], rows
        if _is_mapping(file, content):
            return _rows_of_mapping(content, part)
        if lists := _lists_of_objects(content):
            place = "images" if "images" in lists else next(iter(lists))
            content = lists[place]
        elif columns := _columns(file, content):
            content = [dict(zip(content, row)) for row in zip(*columns)]
    if not isinstance(content, list):
        file.refuse("a list of objects", content, place or None)
        return [], []
    names = {
        key: 0 for x in content[:_NAMED_ROWS] if type(x) is dict for key in x
    }
    rows = (Row(x, row, part) for x, row in entries_of(file, content, place))
    return [*names], rows


def _rows_of_mapping(content, split):
    first, texts = next(iter(content.items()))
    has_paths = _ends_with(texts, first)

    def values(name, texts):
        if isinstance(texts, dict):
            return {"image": name, **texts}
        if has_paths:
            texts = texts[:-1] if _ends_with(texts, name) else None
        return {"image": name, "caption": texts}

    rows = (
        Row(f"[{shown(name)}]", values(name, texts), split)
        for name, texts in content.items()
    )
    return [*values(first, texts)], rows


def _ends_with(texts, name):
    # The last item of a list may be the path of the image.
    last = texts[-1] if isinstance(texts, list) and texts else ""
    return isinstance(last, str) and last.endswith(name)


def _rows_of_lines(file):
    names = {}
    for line in file.start.split("\n")[:_NAMED_ROWS]:
        with contextlib.suppress(ValueError):  # Reported later.
            row = parse_json(line)
            names |= dict.fromkeys(row if isinstance(row, dict) else ())
    return [*names], (Row(line, row) for line, row in file.json_rows(()))


def read_phrases(file):
    """Reads a file of phrases, and returns them as captions of their images."""
    rows = (
        Row(place, row | {"caption": row["phrase"]})
        for place, row in rows_of(file)
    )
    names = ["image", "caption"]
    first = next(rows, None)
    if first is None:
        return []
    names += ["split"] * ("split" in first.values)
    return read_rows(file, names, itertools.chain([first], rows))


def read_coco(file):
    """Reads a list of images and a list of captions, joined by image ids.

    This is the format of `captions_*.json` of MSCOCO. All images are in the
    split "all".
    """
    content, records = file.content, {}
    for place, image in entries_of(file, content["images"], "images"):
        key = key_of(file, image, "id", place)
        name = file.file_name(image.get("file_name"), place)
        if key in records:
            file.refuse("a unique 'id'", key, place)
        elif None not in (key, name):
            records[key] = ImageRecord(key, [], WHOLE_FILE, name)
    rows = entries_of(file, content["annotations"], "annotations")
    for place, row in rows:
        key = key_of(file, row, "image_id", place)
        caption = file.caption(row.get("caption"), place)
        if key is not None and key not in records:
            expected = f"an 'id' among the {len(records)} valid 'images'"
            file.refuse(expected, key, place)
        elif None not in (key, caption):
            records[key].captions.append(caption)
    return [*records.values()]
