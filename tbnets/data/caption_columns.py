"""Finds the columns of captions files, and makes image records from rows."""

import contextlib
import functools
import posixpath
import re
import urllib.parse
from collections.abc import Iterable
from typing import NamedTuple

from tbnets.data import splits as split_names
from tbnets.data.layouts import COLUMN_NAMES, bare
from tbnets.data.splits import WHOLE_FILE
from tbnets.errors import UserError
from tbnets.files import CheckedFile, listed, shown

SAMPLE_ROWS = 100
"""Number of rows or records that are used to identify the columns."""
IDENTITIES = ("identity", "person_id", "pid", "id")
_HEAD_BYTES = 65536
_LONGEST = 4096
"""Maximum length of a path, in characters."""
_ADDRESS = re.compile(r"https?://\S+")
_PHOTO = re.compile(
    r"[^\t\n]*[^\s/\\]\.(?:jpe?g|png|webp|gif|bmp|tiff?|avif|hei[cf])", re.I
)
_ID = re.compile(r"(?=\D*\d)[\w./-]+")
_LETTER = re.compile(r"[^\W\d_]")
_WITHOUT_SPACES = re.compile(r"[\u3040-\u9fff]{4}|[\u0e00-\u0e7f]{8}")


class Columns(NamedTuple):
    """Columns or JSON keys that the user chose. Empty ones are detected."""

    image: str = ""
    caption: tuple[str, ...] = ()
    split: str = ""


class ImageRecord(NamedTuple):
    """An image and its captions, as returned by a reader.

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


class OtherFormat(UserError):
    """A file is not in a reader's format. The message is the reason."""


class CaptionFile(CheckedFile):
    """A caption file, and the `Columns` that the user chose.

    A reader sets `used` to a description of the columns or keys that it read.
    """

    def __init__(self, path, problems=None, columns=Columns()):  # noqa: B008
        super().__init__(path, problems)
        self.columns = columns
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

    @property
    def first_lines(self):
        """The lines in `head`, without a last line that is cut off."""
        lines = self.start.split("\n")
        is_cut = len(self.head) == _HEAD_BYTES and len(lines) > 1
        return lines[:-1] if is_cut or not lines[-1] else lines

    @functools.cached_property
    def content(self):
        """The parsed content of the file; None if it is not valid JSON."""
        is_json = self.start[:1] in ("{", "[")
        return CheckedFile(self.path, []).json() if is_json else None


class Chosen(NamedTuple):
    """Positions of the columns to read; `split` is None if none has splits."""

    image: int
    captions: list[int]
    split: int | None

    def listed(self, names):
        """Returns the comma-separated names of the columns to read."""
        split = [] if self.split is None else [self.split]
        return ", ".join(names[i] for i in (self.image, *self.captions, *split))


def choose_columns(names, values, columns):
    """Identifies the columns of images, captions and splits.

    If the file has no header, all `names` are "". `values` contains a list of
    values for each column. Returns `Chosen`. Raises `OtherFormat` if no column,
    or more than one, may contain the images or the captions.
    """
    names_there = [bare(name) for name in names]
    there = f"The columns are {listed([*map(str, names)], 12)}."
    lowered = [name.strip().lower() for name in names]
    wanted = (columns.image, *columns.caption, columns.split)
    for name in filter(None, wanted):
        if name.lower() not in lowered:
            raise OtherFormat(f"no column is named {name}. {there}")

    def positions(kind):
        chosen = getattr(columns, kind)
        chosen = [chosen] if isinstance(chosen, str) and chosen else chosen
        if chosen:
            return [lowered.index(name.lower()) for name in chosen]
        named = [name for name in COLUMN_NAMES[kind] if name in names_there]
        return [
            i for i, name in enumerate(names_there) if name == (*named, None)[0]
        ]

    images = positions("image")
    named = positions("caption") or _numbered_captions(names_there)
    splits = positions("split") or [
        i for i, some in enumerate(values) if _share(some, _is_split) == 1
    ]
    taken = {*named, *splits}
    images = images or _image_columns(values, taken, any(names_there))
    taken = {*images, *splits}
    captions = named or [
        i
        for i, some in enumerate(values)
        if i not in taken and _share(some, is_sentence) >= 0.5
    ]
    for kind, found in (("image", images), ("caption", captions)):
        if not found:
            raise OtherFormat(f"no column is known to hold {kind}s. {there}")
        if len(found) > 1 and found != named:
            raise OtherFormat(f"{len(found)} columns may hold {kind}s. {there}")
    return Chosen(images[0], captions, splits[0] if splits else None)


def _numbered_captions(names):
    # The columns caption_0, caption_1, ... or caption1, caption2, ...
    matches = [re.fullmatch(r"(.*?)s?_?\d+", name) for name in names]
    stems = [match[1] if match else "" for match in matches]
    first = next(
        (stem for stem in stems if stem in COLUMN_NAMES["caption"]), None
    )
    return [i for i, stem in enumerate(stems) if stem == first]


def _image_columns(values, taken, is_named):
    free = [i for i in range(len(values)) if i not in taken]
    if found := [i for i in free if _share(values[i], is_image) >= 0.8]:
        return found
    if is_named or len(free) != 2:
        return []
    # Without a header: ids beside sentences.
    ids = [i for i in free if _share(values[i], is_id) == 1]
    texts = [i for i in free if _share(values[i], is_sentence) >= 0.8]
    return ids if len(ids) == len(texts) == 1 and ids != texts else []


def _share(values, test):
    values = [value for value in values if value not in ("", None)]
    return sum(map(test, values)) / len(values) if values else 0.0


def is_image(value):
    """Returns whether a value looks like a photo's file name, or like a URL."""
    value = value.strip() if isinstance(value, str) else ""
    if len(value) > _LONGEST:
        return False
    return bool(_PHOTO.fullmatch(value) or _ADDRESS.fullmatch(value))


def is_id(value):
    """Returns whether a value is one word that contains a digit."""
    return isinstance(value, str) and bool(_ID.fullmatch(value.strip()))


def is_sentence(value):
    """Returns whether a value, or each item of a list, has several words."""
    if isinstance(value, list):
        return bool(value) and all(map(is_sentence, value))
    if not isinstance(value, str) or is_image(value):
        return False
    value = value[:_LONGEST]
    num_words = sum(map(bool, map(_LETTER.search, value.split())))
    return num_words > 1 or bool(_WITHOUT_SPACES.search(value))


def _is_split(value):
    return isinstance(value, str) and split_names.is_usual(value.strip())


class Row(NamedTuple):
    """A row of a table, or a record of a JSON file.

    `texts` contains a (place, text) pair for each caption; messages name the
    place. `split` is None if the file has no splits. `folder` is the image's
    folder if `image` is only a file name.
    """

    place: int | str
    image: object
    texts: list
    split: object
    folder: object = None
    identity: object = None


def images_of(file, rows: Iterable[Row], archive=""):
    """Returns `ImageRecord`s, merging rows with the same image and split.

    `archive` is the path of the archive that contains the photos, or "".
    """
    records, spelled, addresses, identities = {}, {}, {}, {}
    for place, image, texts, split, folder, identity in rows:
        image = str(image) if type(image) is int else image
        image = image.strip() if isinstance(image, str) else image
        name = _photo_name(file, image, place, addresses)
        if name and folder:
            name = file.file_name(f"{folder}/{name}", place)
        captions = [file.caption(text, where) for where, text in texts]
        captions = [text for text in captions if text is not None]
        part = WHOLE_FILE if split is None else split
        if not isinstance(part, str) or not part.strip():
            advice = "Write it in all rows or in no row."
            file.refuse("the name of a split", part, place, advice)
        elif (
            name
            and (captions or not texts)
            and _is_spelled(file, place, image, spelled)
        ):
            key = (image, part.strip())
            name = posixpath.join(archive, name)
            record = ImageRecord(image, [], part.strip(), name)
            records.setdefault(key, record).captions.extend(captions)
            identities.setdefault(image, set()).add(identity)
    return _identified(list(records.values()), identities)


def _identified(records, identities):
    """Adds the identities if every image has one and some images share one."""
    distinct = set().union(*identities.values())
    each_has_one = all(len(found) == 1 for found in identities.values())
    if None in distinct or not each_has_one:
        return records
    if not 1 < len(distinct) < len(identities):
        return records
    return [
        record._replace(identity=str(*identities[record.image_id]))
        for record in records
    ]


def _photo_name(file, image, place, addresses):
    if not isinstance(image, str) or not _ADDRESS.match(image):
        return file.file_name(image, place)
    path = re.sub(r"[?#].*", "", image)
    name = urllib.parse.unquote(path.split("/", 3)[-1].rpartition("/")[2])
    if addresses.setdefault(name, image) != image:
        advice = (
            "Photos are looked up by the last part of their address. Give each "
            "photo its own file name, and list these names instead."
        )
        first = addresses[name]
        expected = f"a file name other than that of {shown(first)}"
        return file.refuse(expected, image, place, advice)
    return file.file_name(name, place)


def _is_spelled(file, place, name, spelled):
    # Reports a path that an earlier row spells differently.
    before = spelled.setdefault(posixpath.normpath(name), name)
    if name != before:
        advice = "Both names refer to one file. Use one name in all rows."
        file.refuse(f"{shown(before)} as before", name, place, advice)
    return name == before
