"""Phrases and the boxes of the objects that they name, for localization.

    phrases = read_phrases("flickr8k/entities", images)
    phrases.phrases[0], phrases.boxes[0]

docs/data_formats.md describes the formats.
"""

import dataclasses
import functools
import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tbnets.checks import Path, first_twice, numbered, short_repr, text_ids
from tbnets.data.captions import CaptionedImages
from tbnets.data.entities import read_entities
from tbnets.data.phrase_tables import read_phrase_table
from tbnets.errors import InputError
from tbnets.evaluation.boxes import check_boxes

_WORDS = ("phrases", "phrase_ids", "types", "chains")
"""Names of the fields that contain strings."""
_COLUMNS = (
    "phrase_to_caption phrase_ids phrases spans chains types boxes".split()
)
"""Names of the fields with a value for each phrase."""


@dataclasses.dataclass(frozen=True, eq=False)  # `==` of arrays is an array.
class PhraseRegions:
    """Phrases of captions, with a box for each phrase.

    Args:
        images: `CaptionedImages`, including captions without phrases.
        image_sizes: int `[num_images, 2]`, width and height of the annotated
            images; 0, 0 if the annotated image is the photo on disk.
        phrases: num_phrases strings, with single spaces between words.
        phrase_ids: num_phrases unique strings, `IMAGE#CAPTION#PHRASE`. The
            numbers start at 0 and also count phrases without a box.
        phrase_to_caption: int `[num_phrases]`, row of the caption.
        spans: int `[num_phrases, 2]`, half-open range of words. Spaces separate
            the words of a caption.
        types: num_phrases tuples of names such as "people".
        chains: num_phrases names of coreference chains. Phrases of
            an image with equal chains refer to one object.
        boxes: float64 `[num_phrases, 4]`, x_min, y_min, x_max, y_max in pixels.
            A box encloses all objects that the phrase names.
        left_out: maps a reason, such as a missing box, to int `[num_images]`,
            the number of phrases per image that were left out for it.

    Raises:
        ValueError: the lengths of the arguments do not match, an id is
            repeated, or a box has no area or is not inside its image.

    Example:
        phrases = tbnets.read_phrases("scenes")
        phrases.phrases[0], phrases.boxes[0]  # "a red circle", [4 numbers]
        phrases.phrase_to_image  # (num_phrases,), rows of phrases.images
    """

    images: CaptionedImages
    image_sizes: np.ndarray
    phrases: list[str] | tuple[str, ...]
    phrase_ids: list[str] | tuple[str, ...]
    phrase_to_caption: np.ndarray
    spans: np.ndarray
    types: Sequence[tuple[str, ...]]
    chains: list[str] | tuple[str, ...]
    boxes: np.ndarray
    left_out: Mapping[str, np.ndarray] = dataclasses.field(default_factory=dict)

    __repr__ = short_repr("num_phrases", "images")

    def __post_init__(self):
        count = len(self.phrases)
        shapes = {
            "image_sizes": (self.images.num_images, 2),
            "phrase_to_caption": (count,),
            "spans": (count, 2),
        }
        for name, shape in shapes.items():
            array = np.array(getattr(self, name), np.int64)
            array = array if array.size else array.reshape(-1, *shape[1:])
            _require_shape(name, array, shape)
            object.__setattr__(self, name, _frozen(array))
        for name in _WORDS:
            values = tuple(getattr(self, name))
            _require_shape(name, np.empty(len(values)), (count,))
            object.__setattr__(self, name, values)
        boxes = check_boxes(self.boxes)
        _require_shape("boxes", boxes, (count, 4))
        object.__setattr__(self, "boxes", _frozen(boxes))
        if (twice := first_twice(self.phrase_ids)) is not None:
            raise InputError("phrase_ids", "be unique", f"{twice!r} twice")
        self._check_inside()

    @property
    def num_phrases(self) -> int:
        """The number of phrases."""
        return len(self.phrases)

    @functools.cached_property
    def phrase_to_image(self) -> np.ndarray:
        """The row of each phrase's image, int64 `[num_phrases]`."""
        return _frozen(self.images.caption_to_image[self.phrase_to_caption])

    @functools.cached_property
    def phrase_to_chain(self) -> np.ndarray:
        """The index of each phrase's object, int64 `[num_phrases]`."""
        keys = zip(self.phrase_to_image.tolist(), self.chains)
        return _frozen(numbered(keys))

    @functools.cached_property
    def phrase_to_text(self) -> np.ndarray:
        """The index of each phrase's text, int64 `[num_phrases]`.

        Texts that differ only in case have equal indices.
        """
        return _frozen(text_ids(self.phrases))

    def type_masks(self) -> dict[str, np.ndarray]:
        """Returns a dict that maps each type to a mask of its phrases."""
        return {
            name: np.array([name in names for names in self.types], bool)
            for name in sorted({name for names in self.types for name in names})
        }

    def fractions(self) -> np.ndarray:
        """Returns the boxes divided by the image sizes, `[num_phrases, 4]`.

        Raises ValueError if the size of an image is unknown.
        """
        unknown = np.flatnonzero((self.image_sizes == 0).any(axis=1))
        if unknown.size:
            received = f"0, 0 for {self.images.image_ids[unknown[0]]!r}"
            advice = "Call `in_photos` with sizes of `read_photo_sizes`."
            raise InputError("image_sizes", "be known", received, advice)
        return self.boxes / self._by_phrase(self.image_sizes)

    def in_photos(self, photo_sizes: np.ndarray) -> "PhraseRegions":
        """Returns a copy whose boxes are in pixels of the photos on disk.

        `photo_sizes`, int `[num_images, 2]`, contains the widths and heights of
        the upright photos. Raises ValueError if a box is not inside its photo.
        """
        sizes = np.asarray(photo_sizes)
        _require_shape("photo_sizes", sizes, self.image_sizes.shape)
        known = np.where(self.image_sizes > 0, self.image_sizes, sizes)
        boxes = self.boxes * self._by_phrase(sizes) / self._by_phrase(known)
        return dataclasses.replace(self, image_sizes=sizes, boxes=boxes)

    def as_captions(self) -> CaptionedImages:
        """Returns `CaptionedImages` whose captions are the phrases."""
        return dataclasses.replace(
            self.images,
            captions=self.phrases,
            caption_to_image=self.phrase_to_image,
        )

    def _by_phrase(self, sizes):
        # Returns `[width, height, width, height]` for each phrase.
        return np.tile(sizes[self.phrase_to_image], 2).astype(np.float64)

    def _check_inside(self):
        boxes, sizes = self.boxes, self.image_sizes
        limits = self._by_phrase(np.where(sizes > 0, sizes, np.inf))
        good = (boxes >= 0) & (boxes <= limits)
        good[:, :2] &= boxes[:, :2] < boxes[:, 2:]
        for row in np.flatnonzero(~good.all(axis=1)):
            size = sizes[self.phrase_to_image[row]].tolist()
            raise InputError(
                "boxes",
                "have an area and be inside their image",
                f"{boxes[row].tolist()} of {self.phrase_ids[row]!r} in {size}",
            )


def _frozen(array):
    array.setflags(write=False)
    return array


def _require_shape(name, array, shape):
    if array.shape != shape:
        raise InputError(name, f"have the shape {shape}", f"{array.shape}")


def read_phrases(
    path: Path,
    images: CaptionedImages | None = None,
    problems: list[Any] | None = None,
) -> PhraseRegions:
    """Reads phrases and their boxes.

    Args:
        path: a folder with `Sentences` and `Annotations`, a table in JSON Lines
            or JSON, or a JSON file of Visual Genome or RefCOCO.
        images: the images to read, in this order; None for all images, sorted
            by name. Captions in `images` are ignored, because `path` contains
            captions.
        problems: a list to which each `Problem` is added; the invalid data
            are skipped. If None, the first problem raises an error.

    Returns:
        PhraseRegions with the phrases that have a box.

    Raises:
        FileNotFoundError: the file or folder does not exist.
        ValueError: the data are invalid and `problems` is None.

    Example:
        images = tbnets.read_captions("scenes/dataset.json", "test")
        phrases = tbnets.read_phrases("scenes", images)
        phrases.boxes.shape  # (num_phrases, 4)

    Source: Plummer et al. 2015, "Flickr30k Entities"; one box per phrase as in
    Wang et al. 2018, Sec. 4, note 2.
    """
    names, split = None, "all"
    if images is not None:
        names, split = dict(zip(images.image_ids, images.names)), images.split
    path = os.fspath(path)
    reader = read_entities if os.path.isdir(path) else read_phrase_table
    return _joined(reader(path, names, problems), split, path)


def _joined(records, split, path):
    captions, caption_to_image, rows = [], [], []
    for image, record in enumerate(records):
        boxes = {key: _around(group) for key, group in record.boxes.items()}
        for number, text, phrases in record.captions:
            for place, phrase in enumerate(phrases):
                if phrase.chain in boxes:
                    key = f"{record.image_id}#{number}#{place}"
                    box = boxes[phrase.chain]
                    rows.append((len(captions), key, *phrase, box))
            captions.append(text)
            caption_to_image.append(image)
    ids = [record.image_id for record in records]
    names = [record.file_name for record in records]
    images = CaptionedImages(
        image_ids=ids,
        captions=captions,
        caption_to_image=np.array(caption_to_image, np.int64),
        split=split,
        path=path,
        file_names=() if names == ids else names,
    )
    columns = dict(zip(_COLUMNS, zip(*rows))) or dict.fromkeys(_COLUMNS, ())
    reasons = sorted({key for record in records for key in record.left_out})
    return PhraseRegions(
        images=images,
        image_sizes=[record.size for record in records],
        **columns,
        left_out={
            reason: np.array([record.left_out[reason] for record in records])
            for reason in reasons
        },
    )


def _around(boxes):
    boxes = np.array(boxes, np.float64)
    return *boxes[:, :2].min(axis=0), *boxes[:, 2:].max(axis=0)
