"""Phrases of captions and the boxes they name, as localization learns them."""

import dataclasses
import functools
from collections.abc import Mapping

import numpy as np

from tbnets.checked_files import CheckedFile, shown
from tbnets.data.captions import CaptionedImages
from tbnets.errors import InputError
from tbnets.identity import numbered, text_ids

_ARRAYS = {
    "image_sizes": np.int64,
    "phrase_to_caption": np.int64,
    "spans": np.int64,
    "boxes": np.float64,
}
_WORDS = ("phrases", "phrase_ids", "types", "chains")
"""What phrases have that is no array."""


@dataclasses.dataclass(frozen=True, eq=False)  # Arrays have no single ==.
class PhraseRegions:
    """Phrases of captions and the box of what each one names.

    Args:
        images: `CaptionedImages` of the captions that the phrases stand in,
            those without phrases too.
        image_sizes: int `[num_images, 2]`, width and height that `boxes`
            count in; 0, 0 where they are those of the photo as it lies on
            disk, whatever it is.
        phrases: num_phrases strings, words with single blanks between.
        phrase_ids: num_phrases unique strings, `IMAGE#CAPTION#PHRASE`, both
            numbers from 0 over all that the file marks, boxed or not.
        phrase_to_caption: int `[num_phrases]`, row of the caption.
        spans: int `[num_phrases, 2]`, numbers of the first word and of the
            word after the last in `caption.split()`.
        types: num_phrases tuples of names such as "people"; a phrase may
            have several, or none.
        chains: num_phrases names of coreference chains. Phrases of one image
            with one chain name the same thing; names of two images tell
            nothing of each other.
        boxes: `[num_phrases, 4]` float64, x_min, y_min, x_max, y_max in
            pixels, continuous as in `tbnets.boxes`: one box, around all that
            the phrase names.
        left_out: reason -> int `[num_images]`, how many phrases have no box.
    """

    images: CaptionedImages
    image_sizes: np.ndarray
    phrases: tuple[str, ...]
    phrase_ids: tuple[str, ...]
    phrase_to_caption: np.ndarray
    spans: np.ndarray
    types: tuple[tuple[str, ...], ...]
    chains: tuple[str, ...]
    boxes: np.ndarray
    left_out: Mapping[str, np.ndarray] = dataclasses.field(default_factory=dict)

    def __post_init__(self):
        for name, dtype in _ARRAYS.items():
            array = np.array(getattr(self, name), dtype)
            object.__setattr__(self, name, _frozen(array))
        for name in _WORDS:
            object.__setattr__(self, name, tuple(getattr(self, name)))

    @property
    def num_phrases(self) -> int:
        """The number of phrases."""
        return len(self.phrases)

    @functools.cached_property
    def phrase_to_image(self) -> np.ndarray:
        """Row of the image of each phrase, int64 `[num_phrases]`."""
        return _frozen(self.images.caption_to_image[self.phrase_to_caption])

    @functools.cached_property
    def phrase_to_chain(self) -> np.ndarray:
        """Which thing of which image each phrase names, `[num_phrases]`.

        int64 from 0: equal for two phrases of one image and one chain.
        """
        keys = zip(self.phrase_to_image.tolist(), self.chains)
        return _frozen(numbered(keys))

    @functools.cached_property
    def phrase_to_text(self) -> np.ndarray:
        """Which unique phrase each one is, int64 `[num_phrases]` from 0.

        Equal for phrases of the same words, in capitals or not.
        """
        return _frozen(text_ids(self.phrases))

    def type_masks(self) -> dict[str, np.ndarray]:
        """Returns for each type which phrases have it, bool `[num_phrases]`."""
        return {
            name: np.array([name in names for names in self.types], bool)
            for name in sorted({name for names in self.types for name in names})
        }

    def fractions(self) -> np.ndarray:
        """Returns the boxes as parts of their image, in [0, 1].

        Returns:
            float64 `[num_phrases, 4]`.

        Raises:
            ValueError: the size of an image is not known.
        """
        unknown = np.flatnonzero((self.image_sizes == 0).any(axis=1))
        if unknown.size:
            name = self.images.image_ids[unknown[0]]
            raise InputError(
                f"`image_sizes` must be known. Received: 0, 0 for {name!r}, one"
                f" of {unknown.size}. Give `in_photos` the photos' sizes "
                "(`images.read_photo_sizes`)."
            )
        return self.boxes / self._by_phrase(self.image_sizes)

    def in_photos(self, photo_sizes, problems=None) -> "PhraseRegions":
        """Returns the same with boxes in pixels of the photos on disk.

        An edge at the border of the annotated image is exactly at the border
        of the photo.

        Args:
            photo_sizes: int `[num_images, 2]`, width and height of the
                upright photos.
            problems: None, or a list to which a `Problem` is appended for
                each phrase whose box lies outside; it is then left out.

        Raises:
            ValueError: a size is not positive, or a box lies outside and
                `problems` is None.
        """
        sizes = np.asarray(photo_sizes)
        is_size = sizes.dtype.kind in "iu" and (sizes > 0).all()
        if not is_size or sizes.shape != self.image_sizes.shape:
            raise InputError(
                "`photo_sizes` must be whole numbers of at least 1, of shape "
                f"{self.image_sizes.shape}. Received: {shown(sizes.tolist())}. "
                "Give width and height of each photo."
            )
        known = np.where(self.image_sizes > 0, self.image_sizes, sizes)
        boxes = self.boxes * self._by_phrase(sizes) / self._by_phrase(known)
        good = (boxes >= 0) & (boxes <= self._by_phrase(sizes))
        good[:, :2] &= boxes[:, :2] < boxes[:, 2:]
        good = good.all(axis=1)
        file = CheckedFile(self.images.path, problems)
        for row in np.flatnonzero(~good):
            file.report(
                f"expected boxes inside of their image; found "
                f"{boxes[row].tolist()} of the phrase {self.phrase_ids[row]!r} "
                f"in an image of {sizes[self.phrase_to_image[row]].tolist()} "
                "pixels. Correct the box, or the size it was made for."
            )
        kept = np.flatnonzero(good)
        return dataclasses.replace(
            self,
            image_sizes=sizes,
            phrase_to_caption=self.phrase_to_caption[kept],
            spans=self.spans[kept],
            boxes=boxes[kept],
            **{
                key: [getattr(self, key)[row] for row in kept] for key in _WORDS
            },
        )

    def as_captions(self) -> CaptionedImages:
        """Returns the phrases as if they were the captions of their images.

        What reads captions (a vocabulary, a store of text features) reads
        phrases so.
        """
        return dataclasses.replace(
            self.images,
            captions=self.phrases,
            caption_to_image=self.phrase_to_image,
        )

    def _by_phrase(self, sizes):
        """Returns width, height, width, height for each phrase's box."""
        return np.tile(sizes[self.phrase_to_image], 2).astype(np.float64)


def _frozen(array):
    array.setflags(write=False)
    return array
