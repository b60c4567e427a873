"""Declares where the files of captions have images, captions and splits.

`PUBLISHED` lists the layouts of public data sets whose columns or keys have
unusual names. All other names are looked up in `COLUMN_NAMES`.
"""

import re
from typing import NamedTuple

from tbnets.errors import UserError
from tbnets.files import listed

COLUMN_NAMES = {
    "image": "image image_name file_name filename filepath file_path "
    "image_path path img img_path img_name image_file photo image_id url "
    "image_url".split(),
    "caption": "caption text title sentence description comment alt_text raw "
    "caption_str reference_str conversation message".split(),
    "split": "split set subset".split(),
    "identity": "identity person_id pid".split(),
}
"""Maps each kind of column to the names that it may have, preferred first.

Names are compared in the form that `column_key` returns.
"""
MOST_LISTED = 12
"""Maximum number of columns in an error message."""


class Columns(NamedTuple):
    """Columns or JSON keys that the user chose. Empty ones are looked up."""

    image: str = ""
    caption: tuple[str, ...] = ()
    split: str = ""


class Layout(NamedTuple):
    """The columns of a table, or the keys of JSON objects.

    Args:
        image: the names of photos.
        captions: the captions of each photo.
        split: the names of splits; "" if there are none.
        identity: the ids of persons or objects, which photos may share; "" if
            there are none.
        folder: the folders of the photos; "" if `image` has paths.
        may_lack: whether a blank value is a missing caption.
        where: (column, value): only rows with this value have a photo; () for
            all rows.
    """

    image: str
    captions: tuple[str, ...]
    split: str = ""
    identity: str = ""
    folder: str = ""
    may_lack: bool = False
    where: tuple[str, ...] = ()


_WIT = "caption_reference_description"
_CAPTIONS = ("captions",)
PUBLISHED = {
    # Karpathy's files of Flickr8k, Flickr30k and COCO; RSICD, UCM, Sydney.
    ("filename", "sentences"): Layout(
        "filename", ("sentences",), "split", folder="filepath"
    ),
    # CUHK-PEDES and ICFG-PEDES; RSTPReid.
    ("id", "file_path", "captions"): Layout(
        "file_path", _CAPTIONS, "split", "id"
    ),
    ("id", "img_path", "captions"): Layout(
        "img_path", _CAPTIONS, "split", "id"
    ),
    # Wikipedia (WIT): most images lack some of their captions.
    ("page_url", "image_url", _WIT): Layout(
        "image_url", (_WIT,), may_lack=True
    ),
    # img2dataset: the photo of a row is named by its key.
    ("url", "key", "status", "caption"): Layout(
        "key", ("caption",), where=("status", "success")
    ),
}
"""Maps names that all must be in a header or in objects to the `Layout`."""


class UnknownColumns(UserError):
    """No column is known to hold images or captions. The text is the reason."""


def find_layout(names, columns=Columns()):  # noqa: B008
    """Returns the `Layout` of columns or keys with these names.

    `columns` are the `Columns` that the user chose. Raises `UnknownColumns` if
    no column, or more than one, may contain the images or the captions.
    """
    if not any(columns):
        for needed, layout in PUBLISHED.items():
            if all(name in names for name in needed):
                split = layout.split if layout.split in names else ""
                folder = layout.folder if layout.folder in names else ""
                return layout._replace(split=split, folder=folder)
    images, splits, identities = (
        _chosen(names, [chosen]) or named_columns(names, COLUMN_NAMES[kind])
        for kind, chosen in (
            ("image", columns.image),
            ("split", columns.split),
            ("identity", ""),
        )
    )
    captions = _chosen(names, columns.caption) or caption_columns(names)
    there = f"The columns are {listed([*map(str, names)], MOST_LISTED)}."
    for kind, found in (("image", images), ("caption", captions)):
        if not found:
            raise UnknownColumns(f"No column is known to hold {kind}s. {there}")
    if len(images) > 1:
        raise UnknownColumns(f"{len(images)} columns may hold images. {there}")
    split, identity = next(iter(splits), ""), next(iter(identities), "")
    used = [*images, *captions, split, identity]
    if twice := [name for name in used if name and names.count(name) > 1]:
        raise UnknownColumns(f"Several columns are named {twice[0]}.")
    may_lack = len(captions) > 1
    return Layout(images[0], tuple(captions), split, identity, "", may_lack)


def _chosen(names, chosen):
    """Returns the columns that the user chose. Case and spaces are ignored."""
    lowered = {name.strip().lower(): name for name in reversed(names)}
    for name in filter(None, chosen):
        if name.lower() not in lowered:
            there = listed([*map(str, names)], MOST_LISTED)
            raise UnknownColumns(f"No column is named {name}, only {there}.")
    return [lowered[name.lower()] for name in chosen if name]


def named_columns(names, usual_names):
    """Returns the columns with the first usual name that a column has."""
    keys = [*map(column_key, names)]
    usual = next((name for name in usual_names if name in keys), None)
    return [name for name, key in zip(names, keys) if key == usual]


def caption_columns(names):
    """Returns the columns of captions: one, or caption_0, caption_1, ..."""
    if found := named_columns(names, COLUMN_NAMES["caption"]):
        return found
    keys = map(column_key, names)
    stems = [re.sub(r"s?_?\d+$", "", key) for key in keys]
    known = [stem for stem in stems if stem in COLUMN_NAMES["caption"]]
    return [name for name, stem in zip(names, stems) if stem in known[:1]]


def column_key(name):
    """Returns a column's name in lower case, with underscores, without an s."""
    name = name.strip().lower()[:100]  # Longer names are not usual.
    return re.sub(r"[\s-]+", "_", name).removesuffix("s")
