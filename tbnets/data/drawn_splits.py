"""Splits for captions that tell none: drawn by image, from its id alone.

An id is hashed to a place in [0, 1). What lies below a first cut is the test
split, below a second one dev, and the rest is learned from. So the order of
the file does not count, all captions of an image are in one split, and who
keeps the two cuts knows the split of every image, of later ones too.
"""

import dataclasses
import hashlib

import numpy as np

from tbnets.data.splits import SAME_SPLIT
from tbnets.errors import InputError

SHARE = 0.1
"""Of the images, for dev and for test."""
ENOUGH = 10
"""Images that dev and test have at least where a fifth of all are as many."""
FEWEST = 5
"""Images from which splits can be drawn: 3, 1 and 1."""
_NAMES = {"train": "train", "test": "test", **dict.fromkeys(SAME_SPLIT, "dev")}


def place_of(image_id):
    """Returns where an id lies in [0, 1)."""
    digest = hashlib.sha256(image_id.encode()).digest()
    return int.from_bytes(digest[:6], "big") / 2**48


def draw_cuts(image_ids, path):
    """Returns the cuts of images that are seen for the first time.

    Dev and test get a tenth of the images each, as chance has it; but no
    fewer than `ENOUGH` or a fifth of all, and no more than a fifth. From some
    150 images on, these bounds hardly ever hold, and an image keeps its split
    however many are added.

    Args:
        image_ids: n unique strings.
        path: the file of the captions, for the error message.

    Returns:
        list of two floats: test lies below the first, dev between them.

    Raises:
        ValueError: there are too few images.
    """
    places = np.sort([place_of(image_id) for image_id in image_ids])
    if len(places) < FEWEST:
        raise InputError(
            f"`--captions` must tell splits apart, or name {FEWEST} images to "
            f"draw them from. Received: {len(places)} in {path}. Add photos "
            "with captions, or give its rows a split."
        )
    fifth = len(places) // 5
    cuts, start = [], 0
    for _ in ("test", "dev"):
        cut = (cuts[-1] if cuts else 0.0) + SHARE
        drawn = int(np.searchsorted(places, cut)) - start
        size = min(max(drawn, min(ENOUGH, fifth)), fifth)
        start += size
        if size != drawn:
            cut = float(places[start - 1] + places[start]) / 2
        cuts.append(cut)
    return cuts


def split_of(image_id, cuts):
    """Returns `train`, `dev` or `test`."""
    place = place_of(image_id)
    if place < cuts[0]:
        return "test"
    return "dev" if place < cuts[1] else "train"


def can_be_drawn(split):
    """Tells whether a name, or names joined by `+`, are of drawn splits."""
    return all(name in _NAMES for name in split.split("+"))


def drawn_split(records, split, cuts):
    """Returns the images of a drawn split, in the order of the file.

    Args:
        records: `CaptionedImages` of the whole file.
        split: name for which `can_be_drawn` holds.
        cuts: what `draw_cuts` returned.
    """
    wanted = {_NAMES[name] for name in split.split("+")}
    rows = [
        row
        for row, image_id in enumerate(records.image_ids)
        if split_of(image_id, cuts) in wanted
    ]
    return dataclasses.replace(records.subset(rows), split=split)
