"""Compares names of splits, and draws splits at random by image id.

An image's id is hashed to a number in [0, 1). The image is in test if the
number is below a first cut, in dev if it is below a second cut, and otherwise
in train. So, in large data sets, images keep their splits when others are
added.
"""

import dataclasses
import glob
import hashlib
import os
import re

import numpy as np

from tbnets.errors import InputError, MissingFileError

SPLIT_FIELD = "{split}"
WHOLE_FILE = "all"
_SAME = {
    "train": ("train", "training"),
    "dev": ("val", "dev", "validation", "valid"),
    "test": ("test", "testing"),
}
SPLIT_ORDER = (*_SAME["train"], "restval", *_SAME["dev"], *_SAME["test"])
SHARE = 0.1
"""Fraction of the images that are drawn for each of dev and test."""
ENOUGH = 10
"""Minimum number of images in dev and in test, but at most 20 % of all."""
FEWEST = 5
"""Minimum number of images to draw splits from: 3 train, 1 dev and 1 test."""
DRAWN = ("train", "dev", "test")
_NAMES = {name: key for key, names in _SAME.items() for name in names}


class NoSuchSplit(InputError):
    """A file or folder has no split with the requested name.

    `names` lists the existing splits in `path`.
    """

    def __init__(self, split, names, path, argument="split"):
        self.split, self.names, self.path = split, tuple(names), path
        advice = ""
        if self.names == (WHOLE_FILE,):
            advice = "Add a split to its rows, or put {split} into the path."
        known = ", ".join(map(repr, names))
        super().__init__(
            argument,
            f"be a split of {path}: {known}",
            f"{argument}={split}",
            advice,
        )


def choose_split(split, names, path):
    """Returns the name in `names` that is equivalent to `split`.

    For example, "val", "dev" and "validation" are equivalent, and so are "Test"
    and "test". Raises NoSuchSplit if there is no such name.
    """
    if split in names:
        return split
    lowered = {name.lower(): name for name in reversed(names)}
    for name in (split.lower(), *_SAME.get(usual_name(split), ())):
        if name in lowered:
            return lowered[name]
    raise NoSuchSplit(split, names, path)


def usual_name(split):
    """Returns "train", "dev" or "test" for names such as "Training"."""
    return _NAMES.get(split.lower(), split)


def is_usual(name):
    """Returns whether a name is a usual name of a split, such as "Train"."""
    return name.lower() in SPLIT_ORDER


def ordered_splits(names):
    """Sorts distinct split names: train, restval, val, test, then others."""
    names = set(names)
    first = [name for name in SPLIT_ORDER if name in names]
    return (*first, *sorted(names.difference(first)))


def splits_in_path(pattern):
    """Returns the values of `{split}` in `pattern` for which a path exists."""
    pattern = os.fspath(pattern)
    pieces = pattern.split(SPLIT_FIELD)
    expression = re.escape(pieces[0]) + "(?P<split>[^/]+)"
    expression += "(?P=split)".join(map(re.escape, pieces[1:]))
    paths = glob.glob("*".join(map(glob.escape, pieces)))
    matches = [re.fullmatch(expression, path) for path in paths]
    return ordered_splits(match["split"] for match in matches if match)


def fill_split(pattern, split):
    """Replaces `{split}` in a path with an existing split.

    Equivalent names are tried, too: "val" matches `dev_ims.npy`. Raises
    FileNotFoundError if no path matches, and NoSuchSplit if only paths of other
    splits match.
    """
    pattern = os.fspath(pattern)
    if SPLIT_FIELD not in pattern:
        return pattern
    name = choose_split(split, require_splits(pattern), pattern)
    return pattern.replace(SPLIT_FIELD, name)


def require_splits(pattern):
    """Returns `splits_in_path`; raises FileNotFoundError if there are none."""
    if names := splits_in_path(pattern):
        return names
    received = f"path={pattern}"
    raise MissingFileError("path", "match at least one file", received)


def place_of(image_id):
    """Hashes an id to a number in [0, 1)."""
    digest = hashlib.sha256(image_id.encode()).digest()
    return int.from_bytes(digest[:6], "big") / 2**48


def draw_cuts(image_ids, path):
    """Returns the two cuts that divide images into test, dev and train.

    Dev and test each contain about 10 % of the images, or `ENOUGH` images if
    this is more, but never more than 20 %. Raises ValueError if the caption
    file `path` contains fewer than `FEWEST` images.
    """
    places = np.sort([place_of(image_id) for image_id in image_ids])
    if len(places) < FEWEST:
        expected = f"have splits, or {FEWEST} images to draw splits from"
        received = f"{len(places)} images in {path}"
        raise InputError("--captions", expected, received)
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
    """Returns the split of an image: `train`, `dev` or `test`."""
    place = place_of(image_id)
    if place < cuts[0]:
        return "test"
    return "dev" if place < cuts[1] else "train"


def can_be_drawn(split):
    """Returns whether all splits in a name can be drawn at random.

    `split` is a name such as `train+dev`.
    """
    return all(usual_name(name) in DRAWN for name in split.split("+"))


def drawn_split(records, split, cuts):
    """Returns the images of `records` in a drawn split, keeping their order."""
    drawn_names = {usual_name(name) for name in split.split("+")}
    keys = records.identities or records.image_ids
    splits = [split_of(key, cuts) for key in keys]
    rows = [row for row, name in enumerate(splits) if name in drawn_names]
    return dataclasses.replace(records.subset(rows), split=split)
