"""Makes image records from the rows of files of captions.

A row is a line of a table or a JSON object: a dict from columns to values.
"""

import collections
import contextlib
import functools
import itertools
import posixpath
import re
import urllib.parse
from typing import NamedTuple

from tbnets.data.layouts import (
    COLUMN_NAMES,
    Columns,
    Layout,
    UnknownColumns,
    column_key,
    find_layout,
)
from tbnets.data.photos import PhotoNames, find_photos
from tbnets.data.splits import WHOLE_FILE
from tbnets.errors import MissingFileError
from tbnets.files import CheckedFile, listed, shown

_HEAD_BYTES = 65536
_JSON = re.compile(r"\{\s*(?:\"|\}|$)|\[\s*(?:[\[{\"\]\d-]|$)")
_ADDRESS = re.compile(r"https?://\S")
_ANSWERS = ("gpt", "assistant", "model", "bot")
"""Names of the speakers whose turns in a conversation are captions."""
_TALKS = ("conversation", "message")
_NUMBER = re.compile(r"\s*[-+]?[\d.,]*\s*")


class ImageRecord(NamedTuple):
    """An image and some of its captions, which a reader yields.

    `has_id` is False if the id is only a row number within the split.
    `identity` identifies a person or object that several images may show; "" if
    the file has no identities.
    """

    image_id: str
    captions: list
    split: str
    file_name: str
    has_id: bool = True
    identity: str = ""


class Row(NamedTuple):
    """A row of a table, or an object of a JSON file.

    `place` is the line, or the name of the object in error messages. `split` is
    the split of rows without a column of splits.
    """

    place: int | str
    values: dict
    split: str = WHOLE_FILE


class CaptionFile(CheckedFile):
    """A caption file, the user's `Columns`, and the folder of the photos.

    A reader sets `used` to a description of the columns or keys that it read.
    """

    def __init__(
        self,
        path,
        problems=None,
        columns=Columns(),  # noqa: B008
        images="",
    ):
        super().__init__(path, problems)
        self.columns = columns
        self.images = images
        self.used = ""

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

    @functools.cached_property
    def is_json(self):
        """Whether the file begins like JSON or JSON Lines."""
        return bool(_JSON.match(self.start))

    @functools.cached_property
    def content(self):
        """The parsed JSON; None for JSON Lines and invalid JSON."""
        return None if self.is_json_lines else self.json()

    @functools.cached_property
    def is_json_lines(self):
        """Whether the file is in the JSON Lines format."""
        is_named = self.path.lower().endswith((".jsonl", ".ndjson"))
        if is_named or not self.start.startswith("{"):
            return is_named and self.start[:1] in ("", "{")
        lines = [line.strip() for line in self.start.split("\n", 2)[:2]]
        is_complete = all(line[:1] + line[-1:] == "{}" for line in lines)
        return is_complete and len(lines) > 1

    @functools.cached_property
    def photos(self):
        """The `PhotoNames` in the folder of images; none without a folder."""
        with contextlib.suppress(MissingFileError):
            found = find_photos(self.images) if self.images else ()
            return PhotoNames(name for name, _ in found)
        return PhotoNames(())

    def is_photo(self, value):
        """Returns whether a value is the path of a photo in the folder."""
        return isinstance(value, str) and value.strip() in self.photos

    def fits_photo(self, value):
        """Returns whether a value fits a photo, as in `PhotoNames`."""
        return isinstance(value, str) and bool(self.photos.find(value.strip()))


def known_layout(names, columns):
    """Returns the result of `find_layout`, or None if the names are unknown."""
    with contextlib.suppress(UnknownColumns):
        return find_layout(names, columns)
    return None


_NAMED_ROWS = 100
"""Number of rows whose keys are the columns."""


def read_rows(file, rows, names=(), archive=""):
    """Yields an `ImageRecord` for each row, which has the captions of the row.

    Args:
        file: `CaptionFile`.
        rows: an iterable of `Row`s, in the order of the file.
        names: the columns; () for the keys of the first rows.
        archive: path of the archive that contains the photos, or "".
    """
    rows = iter(rows)
    if not names:
        first = [*itertools.islice(rows, _NAMED_ROWS)]
        names = [*dict.fromkeys(name for row in first for name in row.values)]
        rows = itertools.chain(first, rows)
    if not names:
        return
    try:
        layout = find_layout(names, file.columns)
    except UnknownColumns as error:
        layout, rows = None, [*rows]
        if not any(file.columns):
            layout = _layout_of_photos(file, names, rows)
        if not layout:
            file.report(
                f"expected a column of images and a column of captions. {error}"
                " Name them with --image_column=NAME --caption_column=NAME, or "
                "add a header such as image,caption."
            )
            return
    used = layout.image, *layout.captions, layout.split, layout.identity
    kind = "keys" if file.is_json else "columns"
    file.used = f"{kind} {', '.join(filter(None, used))}"
    yield from _records(file, rows, layout, archive)


def _layout_of_photos(file, names, rows):
    """Returns the `Layout` of a table with one column of photos and one text.

    Returns None if the values of no column, or of several, are photos in the
    folder of images, or if not exactly one other column has texts.
    """
    columns = {
        name: [_image_of(row.values.get(name)) for row in rows]
        for name in names
    }
    for is_photo in (file.is_photo, file.fits_photo):
        images = [name for name in names if all(map(is_photo, columns[name]))]
        others = [name for name in columns if name not in images]
        texts = [name for name in others if any(map(_is_text, columns[name]))]
        if images:
            found = len(images) == len(texts) == 1
            return Layout(images[0], (texts[0],)) if found else None
    return None


def _is_text(value):
    if isinstance(value, list):
        return any(map(_is_text, value))
    return isinstance(value, str) and not _NUMBER.fullmatch(value)


def _records(file, rows, layout, archive):
    spelled, identities, left_out = {}, {}, collections.Counter()
    for place, values, split in rows:
        value = values.get(layout.image)
        if layout.where and values.get(layout.where[0]) != layout.where[1]:
            left_out[f"rows whose {' is not '.join(layout.where)}"] += 1
            continue
        if not value and column_key(layout.captions[0]) in _TALKS:
            left_out["conversations without an image"] += 1
            continue
        if all(values.get(key) is None for key in layout.captions):
            file.refuse(f"the keys {listed(layout.captions)}", values, place)
            continue
        image = _image_of(value)
        folder = layout.folder and values.get(layout.folder)
        has_folder = folder and isinstance(image, str)
        path = f"{folder}/{image}" if has_folder else image
        name = file.file_name(path, place)
        captions = valid_captions(file, _texts(values, layout, place))
        split = values.get(layout.split) if layout.split else split
        if not isinstance(split, str) or not split.strip():
            file.refuse("the name of a split, in all rows", split, place)
        elif name:
            written = value.strip() if isinstance(value, str) else image
            before = spelled.setdefault(_normal(name), written)
            if written != before:  # Another path or URL of a file.
                expected = f"one name for a file, {shown(before)} as before"
                file.refuse(expected, written, place)
                continue
            identity = _identity(file, values, layout, place, identities)
            name = posixpath.join(archive, name)
            yield ImageRecord(
                image, captions, split.strip(), name, identity=identity
            )
    for reason, count in left_out.items():
        file.suspect(f"left out {count} {reason}.", None)


def valid_captions(file, texts):
    """Returns the captions in (place, text) pairs; reports other values."""
    captions = [file.caption(text, place) for place, text in texts]
    return [caption for caption in captions if caption is not None]


def _image_of(value):
    """Returns the name of a photo; of a URL, the last component of the path."""
    if isinstance(value, list) and len(value) == 1:
        value = value[0]
    value = str(value) if type(value) is int else value
    value = value.strip() if isinstance(value, str) else value
    if not isinstance(value, str) or not _ADDRESS.match(value):
        return value
    path = re.sub(r"(?s)[?#].*", "", value)
    return urllib.parse.unquote(path.split("/", 3)[-1].rpartition("/")[2])


def _texts(values, layout, place):
    """Yields (place, text) for each caption of a row."""
    for key in layout.captions:
        value = values.get(key)
        if value is None or layout.may_lack and not str(value).strip():
            continue
        items = value if isinstance(value, list) else [value]
        for number, item in enumerate(items):
            if not isinstance(item, dict):
                yield place, item
                continue
            where = place
            if isinstance(place, str) and items is value:
                where = f"{place}.{key}[{number}]"
            speaker = item.get("from", item.get("role"))
            if speaker is None:
                names = [
                    name for name in COLUMN_NAMES["caption"] if name in item
                ]
                yield where, item[names[0]] if names else item
            elif speaker in _ANSWERS:
                text = item.get("value", item.get("content"))
                if isinstance(text, str):
                    text = text.replace("<image>", " ").strip()
                yield where, text


def _normal(name):
    path = posixpath.normpath(name)
    return name if name == path else path  # Equal strings would take memory.


def _identity(file, values, layout, place, identities):
    if not layout.identity:
        return ""
    value, image = values.get(layout.identity), values[layout.image]
    if type(value) not in (int, str) or not str(value).strip():
        expected = "the id of a person or object, in all rows"
        return file.refuse(expected, value, place) or ""
    before = identities.setdefault(str(image), str(value))
    if before != str(value):
        file.refuse(f"{before!r}, as in other rows", value, place)
    return before
