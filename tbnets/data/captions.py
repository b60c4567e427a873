"""Images with captions, from any of the formats they are published in.

    images = read_captions("karpathy", "dataset_flickr8k.json", "train")
    images.captions[0], images.image_ids[images.caption_to_image[0]]

The formats are shown in docs/data_formats.md, and `tools/describe_data.py`
prints what a file holds and what is wrong with it.
"""

import dataclasses
import os
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from tbnets.checked_files import CheckedFile, Problem
from tbnets.checked_numbers import checked_rows
from tbnets.data import caption_readers, caption_tables
from tbnets.data import splits as split_names
from tbnets.data.format_guess import refuse_other_format
from tbnets.errors import InputError, MissingFileError, check_choice
from tbnets.identity import rows_by, spelling

__all__ = [
    "READERS",
    "CaptionedImages",
    "Problem",
    "list_splits",
    "read_captions",
]


EMPTY = "[EMPTY]"


def caption_key(caption):
    """Returns the id under which a store has the features of a caption.

    It is the caption itself with single spaces between its words, and
    `[EMPTY]` for one without any.
    """
    return spelling(caption) or EMPTY


@dataclasses.dataclass(frozen=True, eq=False)  # Arrays have no single ==.
class CaptionedImages:
    """Images with their captions: any number for each image, none included.

    Args:
        image_ids: num_images unique strings, as the source writes them.
        captions: num_captions raw strings without outer blanks; "" is an
            empty caption.
        caption_to_image: `[num_captions]` int64, the row of the image.
        split: the name of the split, as it was asked for.
        path: the file or folder that was read.
        file_names: num_images file names relative to an images folder; ()
            where the image ids are the file names.
        has_ids: False if the ids are but row numbers, which say nothing
            beyond their split.

    Raises:
        ValueError: the lengths do not fit, an id occurs twice, or a caption
            belongs to no image.
    """

    image_ids: tuple[str, ...]
    captions: tuple[str, ...]
    caption_to_image: np.ndarray
    split: str
    path: str
    file_names: tuple[str, ...] = ()
    has_ids: bool = True

    def __post_init__(self):
        rows = checked_rows(
            "caption_to_image",
            self.caption_to_image,
            self.num_images,
            len(self.captions),
        )
        if len(set(self.image_ids)) != self.num_images:
            seen = set()
            twice = [i for i in self.image_ids if i in seen or seen.add(i)]
            raise InputError(
                "`image_ids` must be unique. Received: image_ids with "
                f"{twice[0]!r} twice. Join the captions of one image."
            )
        if self.file_names and len(self.file_names) != self.num_images:
            raise InputError(
                "`file_names` must be empty or one for each image. Received: "
                f"file_names of length {len(self.file_names)}, "
                f"{self.num_images} images. Leave it out if the ids are the "
                "file names."
            )
        rows.setflags(write=False)
        object.__setattr__(self, "image_ids", tuple(self.image_ids))
        object.__setattr__(self, "captions", tuple(self.captions))
        object.__setattr__(self, "file_names", tuple(self.file_names))
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
        """How many captions each image has, `[num_images]` int64."""
        return np.bincount(
            self.caption_to_image, minlength=self.num_images
        ).astype(np.int64)

    def caption_rows(self) -> list[np.ndarray]:
        """Returns the rows of the captions of each image, int64 each."""
        return rows_by(self.caption_to_image, self.num_images)

    def file_name(self, row: int) -> str:
        """Returns the file name of an image, relative to the images folder."""
        return (self.file_names or self.image_ids)[row]

    def common_ids(self, others) -> list[str]:
        """Returns the ids of images that others have too, if both have ids."""
        known = {*others.image_ids} if self.has_ids and others.has_ids else ()
        return [key for key in self.image_ids if key in known]

    def subset(self, image_rows) -> "CaptionedImages":
        """Returns some images, in the order asked for, with their captions.

        Args:
            image_rows: `[n]` rows of images, each at most once.

        Returns:
            CaptionedImages; the captions of an image keep their order.
        """
        image_rows = checked_rows("image_rows", image_rows, self.num_images)
        groups = self.caption_rows()
        kept = [groups[row] for row in image_rows]
        sizes = np.asarray([len(group) for group in kept], dtype=np.int64)
        names = self.file_names
        return CaptionedImages(
            image_ids=tuple(self.image_ids[row] for row in image_rows),
            captions=tuple(self.captions[r] for group in kept for r in group),
            caption_to_image=np.repeat(np.arange(len(kept)), sizes),
            split=self.split,
            path=self.path,
            file_names=tuple(names[row] for row in image_rows if names),
            has_ids=self.has_ids,
        )


class Reader(NamedTuple):
    """How a format is read.

    Args:
        read: (path, split, problems) -> list of `ImageRecord`.
        splits: path -> names of the splits, where that is cheaper than
            reading; or None.
    """

    read: Callable
    splits: Callable | None = None


READERS = {
    "karpathy": Reader(caption_readers.read_karpathy),
    "flickr": Reader(
        caption_readers.read_flickr, caption_readers.flickr_splits
    ),
    "coco": Reader(caption_readers.read_coco),
    "precomputed": Reader(
        caption_readers.read_precomputed, caption_readers.precomputed_splits
    ),
    "table": Reader(caption_tables.read_table),
    "flickr30k_json": Reader(caption_readers.read_flickr30k_json),
}


def read_captions(
    format: str, path, split: str, problems: list | None = None
) -> CaptionedImages:
    """Reads one split of a caption file or folder.

    Args:
        format: one of `READERS`.
        path: the file (or the folder, for "precomputed"); `{split}` in it
            stands for the name of the split.
        split: the split; "val", "dev" and "validation" are the same, and
            names joined by "+" are read one after the other
            ("train+restval").
        problems: None to raise at the first bad row; or a list to which a
            `Problem` is appended for each, while the good rows are read.

    Returns:
        CaptionedImages in the order of the file.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: there is no such split (the message lists those there
            are), or a row is bad and `problems` is None.

    Example:
        >>> images = read_captions("table", "my_{split}.csv", "train")
        >>> images.num_images, images.captions_per_image
    """
    check_choice("format", format, READERS)
    records = []
    for name in split.split("+"):
        records += _read_split(format, os.fspath(path), name, problems)
    if len({record.image_id for record in records}) < len(records):
        raise InputError(
            "`split` must join splits without common images. Received: "
            f"split={split!r} of {path}. Read them one by one."
        )
    names = tuple(record.file_name for record in records)
    ids = tuple(record.image_id for record in records)
    sizes = [len(record.captions) for record in records]
    return CaptionedImages(
        image_ids=ids,
        captions=tuple(text for record in records for text in record.captions),
        caption_to_image=np.repeat(
            np.arange(len(records)), np.asarray(sizes, dtype=np.int64)
        ),
        split=split,
        path=os.fspath(path),
        file_names=() if names == ids else names,
        has_ids=all(record.has_id for record in records),
    )


def list_splits(format: str, path) -> tuple[str, ...]:
    """Returns the splits of a caption file, folder or `{split}` path.

    Args:
        format: one of `READERS`.
        path: as for `read_captions`.

    Returns:
        The names in the order train, restval, val, test, others; ("all",)
        for a file that does not tell splits apart.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: the file cannot be read at all.
    """
    check_choice("format", format, READERS)
    reader = READERS[format]
    path = os.fspath(path)
    if split_names.SPLIT_FIELD in path:
        names = split_names.splits_in_path(path)
        if not names:
            raise MissingFileError(
                "`path` must fit at least one file. Received: "
                f"path={path}, which fits none. Check the folder and the "
                "name around {split}."
            )
        return names
    refuse_other_format(format, path, CheckedFile(path))
    if reader.splits:
        return reader.splits(path)
    problems = []
    records = reader.read(path, None, problems)
    if problems and not records:
        raise InputError(str(problems[0]))
    return caption_readers.record_splits(records)


def _read_split(format, path, split, problems):
    """Returns the records of one split, its name as in the file."""
    file_path = split_names.fill_split(path, split)
    file = CheckedFile(file_path, problems)
    if refuse_other_format(format, file_path, file):
        return []
    before = len(problems or ())
    records = READERS[format].read(file_path, split, problems)
    if not records and len(problems or ()) > before:
        return []
    names = caption_readers.record_splits(records)
    if file_path != path and names == (split_names.WHOLE_FILE,):
        return records
    name = split_names.choose_split(split, names, file_path)
    return [record for record in records if record.split == name]
