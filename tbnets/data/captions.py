"""Reads images with captions from published and custom formats.

    images = read_captions("dataset_flickr8k.json", "train")
    images.captions[0], images.image_ids[images.caption_to_image[0]]

docs/data_formats.md describes the formats.
"""

import dataclasses
import difflib
import functools
import itertools
import os
from collections.abc import Sequence
from typing import Any

import numpy as np

from tbnets.checks import (
    Integers,
    Path,
    checked_rows,
    first_twice,
    letters,
    numbered,
    refuse_single,
    rows_by,
    short_repr,
    spelling,
)
from tbnets.data import splits as split_names
from tbnets.data.archives import list_archives, photo_root, stamp
from tbnets.data.caption_files import CaptionFile
from tbnets.data.caption_formats import read_file
from tbnets.data.layouts import Columns
from tbnets.data.photos import listed_rows, match_names
from tbnets.errors import InputError
from tbnets.files import ProblemError

# Matching the captions of two sources. Flickr30K Entities, for example, has the
# captions of Flickr8k in a different order, with different spaces, and with
# `gray` instead of `grey`.


def same_captions(marked, searched, photos):
    """Matches each caption of `marked` to a caption of `searched`.

    `photos` contains, for each image of `marked`, its row in `searched`. Within
    a photo, captions with identical letters are matched first, then all others
    in order of decreasing similarity. Each caption is matched at most once.

    Returns (rows, is_exact), arrays with a value per caption of `marked`. The
    int64 `rows` contains the row of the matched caption, or -1. `is_exact` is
    True if the letters are identical.
    """
    rows = np.full(marked.num_captions, -1, np.int64)
    is_exact = np.zeros(marked.num_captions, bool)
    captions = searched.caption_rows()
    for photo, of_photo in zip(photos, marked.caption_rows()):
        texts = {int(row): letters(marked.captions[row]) for row in of_photo}
        rows_there = captions[photo]
        free = {int(row): letters(searched.captions[row]) for row in rows_there}
        for row, text in texts.items():
            if same := [match for match, has in free.items() if has == text]:
                rows[row], is_exact[row] = same[0], True
                del free[same[0]]
        likeness = [
            (difflib.SequenceMatcher(None, text, has).ratio(), row, candidate)
            for row, text in texts.items()
            if not is_exact[row]
            for candidate, has in free.items()
        ]
        for _, row, candidate in sorted(likeness, reverse=True):
            if rows[row] < 0 and candidate in free:
                rows[row] = candidate
                del free[candidate]
    return rows, is_exact


EMPTY = "[EMPTY]"


def caption_key(caption):
    """Returns the id of a caption in a store of text features.

    The id is the caption with single spaces between its words, or `[EMPTY]` if
    it has no words.
    """
    return spelling(caption) or EMPTY


@dataclasses.dataclass(frozen=True, eq=False)  # `==` of arrays is an array.
class CaptionedImages:
    """Images with their captions. An image may have no caption.

    Args:
        image_ids: num_images unique strings, as in the source.
        captions: num_captions strings, which may be "".
        caption_to_image: int64 `[num_captions]`, row of each caption's image.
        split: name of the split, as requested.
        path: the file or folder that was read.
        file_names: num_images file names relative to an images folder; () if
            the image ids are the file names.
        has_ids: False if the ids are only row numbers, which cannot be compared
            between splits.
        read_as: format of the file and the columns that were read.
        identities: num_images strings; () if each image has its own. Images
            that share an identity, such as photos of one person, match each
            other's captions in losses and metrics.

    Raises:
        ValueError: an id is repeated, or the arguments are inconsistent.

    Example:
        records = tbnets.CaptionedImages(
            ["dog.jpg", "cat.jpg"], ["A dog.", "It sleeps.", "It runs."],
            np.array([0, 1, 0]), split="train", path="made up")
        records.captions_per_image, records.caption_rows()[0]  # [2, 1], [0, 2]
    """

    image_ids: list[str] | tuple[str, ...]
    captions: list[str] | tuple[str, ...]
    caption_to_image: np.ndarray
    split: str
    path: str
    file_names: list[str] | tuple[str, ...] = ()
    has_ids: bool = True
    read_as: str = ""
    identities: list[str] | tuple[str, ...] = ()

    __repr__ = short_repr("num_images", "num_captions", "split", "path")

    def __post_init__(self):
        counts = self.num_images, len(self.captions)
        rows = checked_rows("caption_to_image", self.caption_to_image, *counts)
        refuse_single("image_ids", self.image_ids)
        refuse_single("captions", self.captions)
        if (twice := first_twice(self.image_ids)) is not None:
            raise InputError("image_ids", "be unique", f"{twice!r} twice")
        for name in ("file_names", "identities"):
            if (count := len(getattr(self, name))) not in (0, self.num_images):
                expected = f"be empty or have {self.num_images} values"
                raise InputError(name, expected, f"{count} values")
        rows.setflags(write=False)
        for name in ("image_ids", "captions", "file_names", "identities"):
            object.__setattr__(self, name, tuple(getattr(self, name)))
        object.__setattr__(self, "caption_to_image", rows)

    @property
    def num_images(self) -> int:
        """The number of images."""
        return len(self.image_ids)

    @property
    def num_captions(self) -> int:
        """The number of captions."""
        return len(self.captions)

    @property
    def captions_per_image(self) -> np.ndarray:
        """The number of captions per image, int64 `[num_images]`."""
        return np.bincount(self.caption_to_image, minlength=self.num_images)

    @functools.cached_property
    def image_groups(self) -> np.ndarray:
        """The identity of each image as an integer, int64 `[num_images]`."""
        groups = numbered(self.identities or self.image_ids)
        groups.setflags(write=False)
        return groups

    def caption_rows(self) -> list[np.ndarray]:
        """Returns each image's caption rows as a list of int64 arrays."""
        return rows_by(self.caption_to_image, self.num_images)

    @property
    def names(self) -> tuple[str, ...]:
        """The file names of the images."""
        return tuple(self.file_names or self.image_ids)

    def file_name(self, row: int) -> str:
        """Returns the file name of the image at index `row`."""
        return self.names[row]

    def subset(self, image_rows: Integers) -> "CaptionedImages":
        """Returns the images in `image_rows`, with their captions.

        The rows must be unique. Images are in the order of the rows, and the
        captions of an image keep their order.
        """
        image_rows = checked_rows("image_rows", image_rows, self.num_images)
        groups = self.caption_rows()
        groups = [groups[row] for row in image_rows]
        names, identities = self.file_names, self.identities
        return dataclasses.replace(
            self,
            image_ids=[self.image_ids[row] for row in image_rows],
            captions=[self.captions[row] for group in groups for row in group],
            caption_to_image=_repeated(map(len, groups)),
            file_names=[names[row] for row in image_rows if names],
            identities=[identities[row] for row in image_rows if identities],
        )


def _repeated(sizes):
    sizes = np.fromiter(sizes, np.int64)
    return np.repeat(np.arange(len(sizes)), sizes)


def common_images(splits):
    """Yields (name, name, shared ids) for each pair of overlapping splits.

    `splits` maps names to `CaptionedImages`. Splits without image ids are
    skipped.
    """
    with_ids = [name for name, images in splits.items() if images.has_ids]
    for first, second in itertools.combinations(with_ids, 2):
        known = set(splits[second].image_ids)
        if shared := [key for key in splits[first].image_ids if key in known]:
            yield first, second, shared


def summary(splits):
    """Returns text with the format and the numbers of images and captions."""
    splits = list(splits)
    num_images = sum(images.num_images for images in splits)
    num_captions = sum(images.num_captions for images in splits)
    read_as = next((images.read_as for images in splits), "")
    text = f"{read_as}, {num_images:,} images, {num_captions:,} captions"
    identities = {key for images in splits for key in images.identities}
    return text + f", {len(identities):,} identities" * bool(identities)


def read_captions(
    path: Path,
    split: str,
    problems: list[Any] | None = None,
    *,
    image_column: str = "",
    caption_column: Sequence[str] = (),
    split_column: str = "",
) -> CaptionedImages:
    """Reads one split of a caption file or folder.

    Args:
        path: path of the file or folder. `{split}` is replaced with the name of
            the split.
        split: name of the split. "val", "dev" and "validation" are equivalent.
            "train+restval" concatenates two splits.
        problems: None to raise an error at the first bad row, or a list to
            which a `Problem` is added for each bad row. All other rows are
            still read.
        image_column: name of the image column or JSON key; "" for a usual name
            (`layouts.COLUMN_NAMES`) or the layout of a public data set
            (`layouts.PUBLISHED`).
        caption_column: names of the caption columns; () for usual names.
        split_column: name of the split column; "" for a usual name.

    Returns:
        `CaptionedImages`, in the order of the file.

    Raises:
        FileNotFoundError: the file does not exist.
        ValueError: the split does not exist, or a row is bad and `problems` is
            None.

    Example:
        images = tbnets.read_captions("my_{split}.csv", "train")
        images.num_images, images.captions_per_image
    """
    columns = Columns(image_column, tuple(caption_column), split_column)
    return CaptionSource(path, columns).read(split, problems)


@dataclasses.dataclass(frozen=True)
class CaptionSource:
    """A file or folder of captions, and the names of its columns.

    `images` is the folder of the photos; "" if unknown. `path` and `columns`
    are arguments of `read_captions`. In a table without usual names, the column
    whose values are all photos in `images` has the images, and the only other
    column with texts has the captions. Names that are not paths in `images` are
    matched with its photos (`photos.match_names`). `lists` is a path with
    `{split}` of lists of images, which replace the splits of the file; "" for
    none.
    """

    path: Path
    columns: Columns = Columns()
    images: Path = ""
    lists: Path = ""

    def splits(self) -> tuple[str, ...]:
        """Returns the splits of the file, in the order of `ordered_splits`.

        If there are no splits, returns ("all",).
        """
        if pattern := self.pattern():
            return split_names.require_splits(pattern)
        problems: list[Any] = []
        records, _ = self._read_file(os.fspath(self.path), problems)
        if problems and not records:
            raise ProblemError(problems[0])
        return split_names.ordered_splits(record.split for record in records)

    @functools.cached_property
    def matches(self) -> dict[str, str]:
        """The photos that names without a photo match; {} without `images`."""
        if not self.images:
            return {}
        parts = (self._read_split(name, [])[0] for name in self.splits())
        names = [record.file_name for records in parts for record in records]
        return match_names(self.images, names)

    def read(self, split, problems=None) -> CaptionedImages:
        """Reads a split. For the arguments, see `read_captions`."""
        records, read_as = [], ""
        for name in self.splits() if self.lists else split.split("+"):
            more, read_as = self._read_split(name, problems)
            records += more
        names = [
            self.matches.get(record.file_name, record.file_name)
            for record in records
        ]
        ids = [record.image_id for record in records]
        identities = [record.identity for record in records]
        if len(set(ids)) < len(ids):
            expected = "name splits without common images"
            raise InputError("split", expected, f"{split!r} of {self.path}")
        sizes = (len(record.captions) for record in records)
        images = CaptionedImages(
            image_ids=ids,
            captions=[text for record in records for text in record.captions],
            caption_to_image=_repeated(sizes),
            split=split,
            path=os.fspath(self.path),
            file_names=() if names == ids else names,
            has_ids=all(record.has_id for record in records),
            read_as=read_as,
            identities=identities if all(identities) else (),
        )
        return self._listed(images) if self.lists else images

    def _listed(self, images):
        if split_names.SPLIT_FIELD not in os.fspath(self.lists):
            expected = "contain {split}, so that splits differ"
            raise InputError("lists", expected, f"lists={self.lists}")
        path = split_names.fill_split(self.lists, images.split)
        return images.subset(listed_rows(images.image_ids, path))

    def pattern(self):
        """Returns a path with `{split}` if each split has a file, else ""."""
        path = os.fspath(self.path)
        if os.path.isdir(path):
            pattern = os.path.join(path, f"{split_names.SPLIT_FIELD}_caps.txt")
            if split_names.splits_in_path(pattern):
                return pattern
        # The splits of archives are in their names.
        has_field = split_names.SPLIT_FIELD in path
        return path if has_field and not list_archives(path) else ""

    def _read_split(self, name, problems):
        before, pattern = len(problems or ()), self.pattern()
        path = os.fspath(self.path)
        path = split_names.fill_split(pattern, name) if pattern else path
        records, read_as = self._read_file(path, problems)
        if not records and len(problems or ()) > before:
            return [], read_as
        names = split_names.ordered_splits(record.split for record in records)
        if pattern and names == (split_names.WHOLE_FILE,):
            return records, read_as
        name = split_names.choose_split(name, names, path)
        return [record for record in records if record.split == name], read_as

    def _read_file(self, path, problems):
        """Reads all splits of a file; returns the result of `read_file`."""
        files = [*(list_archives(path) or [path]), *_files_beside(path)]
        stamps = tuple(stamp(file) for file in files if os.path.isfile(file))
        records, read_as, found = _read(path, self.columns, self.images, stamps)
        for problem in found:
            problem.raise_or_add_to(problems)
        return records, read_as


_BESIDE = ".json", ".npy", ".txt"
"""Suffixes of other files of a data set that readers of captions read."""


def _files_beside(path):
    root = photo_root(path)
    folder = root if root.is_dir() else root.parent
    names = sorted(os.listdir(folder)) if folder.is_dir() else ()
    return [folder / name for name in names if name.endswith(_BESIDE)]


@functools.lru_cache(maxsize=1)
def _read(path, columns, images, stamps):
    # Other `stamps` of the files invalidate the cache.
    file = CaptionFile(path, [], columns, images)
    return *read_file(file), file.problems
