"""Which caption is which, where two sources write down the same captions.

Who marks phrases writes captions in other ways than who collects them:
Flickr30K Entities has Flickr8k's in another order, with other blanks, and
`gray` for `grey`.
"""

import difflib

import numpy as np

from tbnets.identity import letters


def same_captions(marked, own, photos):
    """Finds the captions of one source in another.

    Captions of one photo with the same letters are the same; of what is
    left, the most similar ones are. No caption is found twice.

    Args:
        marked: `CaptionedImages` whose captions are looked for.
        own: `CaptionedImages` they are looked for in.
        photos: int `[marked.num_images]`, row in `own` of each photo.

    Returns:
        (rows, is_exact) of the captions of `marked`: int64 `[num_captions]`,
        their row in `own`, -1 of none; and bool `[num_captions]`, whether
        both have the same letters.
    """
    rows = np.full(marked.num_captions, -1, np.int64)
    is_exact = np.zeros(marked.num_captions, bool)
    captions = own.caption_rows()
    for photo, of_photo in zip(photos, marked.caption_rows()):
        wanted = {int(row): letters(marked.captions[row]) for row in of_photo}
        free = {int(row): letters(own.captions[row]) for row in captions[photo]}
        for row, text in wanted.items():
            if same := [other for other, has in free.items() if has == text]:
                rows[row], is_exact[row] = same[0], True
                del free[same[0]]
        likeness = [
            (difflib.SequenceMatcher(None, text, has).ratio(), row, other)
            for row, text in wanted.items()
            if not is_exact[row]
            for other, has in free.items()
        ]
        for _, row, other in sorted(likeness, reverse=True):
            if rows[row] < 0 and other in free:
                rows[row] = other
                del free[other]
    return rows, is_exact
