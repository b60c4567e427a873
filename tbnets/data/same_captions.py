"""Which caption is which, where two sources write down the same captions.

Who marks phrases writes captions in other ways than who collects them:
Flickr30K Entities has Flickr8k's in another order, with other blanks, and
`gray` for `grey`.
"""

import difflib
from typing import NamedTuple

import numpy as np

from tbnets.identity import letters


class SameCaptions(NamedTuple):
    """Where the captions of one source stand in another.

    Attributes:
        rows: int64 `[num_captions]`, row in the other source, -1 of none.
        is_exact: bool `[num_captions]`, whether both have the same letters.
    """

    rows: np.ndarray
    is_exact: np.ndarray


def same_captions(marked, own, photos):
    """Finds the captions of one source in another.

    Captions of one photo with the same letters are the same; of what is
    left, the most similar ones are. No caption is found twice.

    Args:
        marked: `CaptionedImages` whose captions are looked for.
        own: `CaptionedImages` they are looked for in.
        photos: int `[marked.num_images]`, row in `own` of each photo.

    Returns:
        `SameCaptions`, one for each caption of `marked`.
    """
    count = marked.num_captions
    found = SameCaptions(np.full(count, -1, np.int64), np.zeros(count, bool))
    captions = own.caption_rows()
    for photo, wanted in zip(photos, marked.caption_rows()):
        _pair_up(
            found,
            {int(row): letters(marked.captions[row]) for row in wanted},
            {int(row): letters(own.captions[row]) for row in captions[photo]},
        )
    return found


def _pair_up(found, wanted, free):
    """Enters the captions of one photo: row -> letters on both sides."""
    for row, text in wanted.items():
        if same := [other for other, has in free.items() if has == text]:
            found.rows[row], found.is_exact[row] = same[0], True
            del free[same[0]]
    likeness = [
        (difflib.SequenceMatcher(None, text, has).ratio(), row, other)
        for row, text in wanted.items()
        if not found.is_exact[row]
        for other, has in free.items()
    ]
    for _, row, other in sorted(likeness, reverse=True):
        if found.rows[row] < 0 and other in free:
            found.rows[row] = other
            del free[other]
