"""Splits: their names in files and in paths, and those that are drawn.

Captions that tell no splits have them drawn by image, from its id alone. An
id is hashed to a place in [0, 1). What lies below a first cut is the test
split, below a second one dev, and the rest is learned from. So the order of
the file does not count, all captions of an image are in one split, and who
keeps the two cuts knows the split of every image, of later ones too.
"""

import dataclasses
import glob
import hashlib
import os
import re
from typing import NamedTuple

import numpy as np

from tbnets.errors import InputError

# The batches of an epoch -> the share that each replica has of them.
#
# A batch is shared in even parts: of its images, of its captions, and of
# whatever else it holds, the first part to the first replica. Every worker
# draws all batches, which costs little, and reads what its own replicas have.


class Share(NamedTuple):
    """A replica's part of things that stand in a row.

    Attributes:
        place: of the replica, from 0.
        count: replicas that share.
    """

    place: int = 0
    count: int = 1

    def of(self, num_rows):
        """Returns the slice of so many rows."""
        bounds = (self.place + i for i in range(2))
        return slice(*(bound * num_rows // self.count for bound in bounds))

    def read(self, source, rows):
        """Reads its part of rows as they stand in the batch of them all.

        Args:
            source: of `batch(rows)`; where rows have `lengths`, they are as
                wide as in the whole batch.
            rows: int64 `[n]`, those of the whole batch.
        """
        if hasattr(source, "lengths"):
            return source.batch(rows)[self.of(len(rows))]
        return source.batch(rows[self.of(len(rows))])


WHOLE = Share()


def distributed(strategy, batches):
    """Returns what an epoch holds for the replicas of a strategy.

    Args:
        strategy: a `tf.distribute.Strategy`.
        batches: of an epoch, with `dataset_of(shares)`; `smallest`, if not
            None, is the fewest photos of a batch, of which a network that
            looks at pixels needs one for each replica.

    Returns:
        `tf.distribute.DistributedDataset` of `num_batches`.

    Raises:
        ValueError: a batch has no photo for some replica.
    """
    count = strategy.num_replicas_in_sync
    if batches.smallest is not None and batches.smallest < count:
        raise InputError(
            "Batches must hold a photo for each replica. Received: one of "
            f"{batches.smallest} for {count} replicas. Take another "
            "`images_per_batch`, or fewer replicas."
        )

    def own(context):
        per_worker = count // context.num_input_pipelines
        first = context.input_pipeline_id * per_worker
        places = range(first, first + per_worker)
        return batches.dataset_of([Share(place, count) for place in places])

    return strategy.distribute_datasets_from_function(own)


SPLIT_FIELD = "{split}"
WHOLE_FILE = "all"
SAME_SPLIT = ("val", "dev", "validation")
SPLIT_ORDER = ("train", "restval", *SAME_SPLIT, "test")
SHARE = 0.1
"""Of the images, for dev and for test."""
ENOUGH = 10
"""Images that dev and test have at least where a fifth of all are as many."""
FEWEST = 5
"""Images from which splits can be drawn: 3, 1 and 1."""
DRAWN = ("train", "dev", "test")
_NAMES = {"train": "train", "test": "test", **dict.fromkeys(SAME_SPLIT, "dev")}


class NoSuchSplit(InputError):
    """A source has no split of a name.

    Args:
        split: the name asked for.
        names: the names of those it has.
        path: the source.
        argument: what named the split: this argument or flag.
    """

    def __init__(self, split, names, path, argument="split"):
        known = ", ".join(map(repr, names)) or "no split"
        advice = "Ask for one of these, or give images that split."
        if tuple(names) == (WHOLE_FILE,):
            advice = (
                "The file does not tell splits apart: ask for 'all', give its "
                "rows a split, or keep one file a split, {split} in its path."
            )
        super().__init__(
            f"`{argument}` must be a split that {path} has: {known}. "
            f"Received: {argument}={split}. {advice}"
        )
        self.split = split
        self.names = tuple(names)
        self.path = path


def choose_split(split, names, path):
    """Returns the name under which a source knows a split.

    "val", "dev" and "validation" are three names of one split.

    Args:
        split: the name asked for.
        names: the names the source has.
        path: the file, for the error message.

    Returns:
        One of `names`.

    Raises:
        NoSuchSplit: the message lists those it has.
    """
    if split in names:
        return split
    for name in SAME_SPLIT if split in SAME_SPLIT else ():
        if name in names:
            return name
    raise NoSuchSplit(split, names, path)


def ordered_splits(names):
    """Returns names without repeats: train, restval, val, test, others."""
    names = set(names)
    first = [name for name in SPLIT_ORDER if name in names]
    return (*first, *sorted(names.difference(first)))


def splits_in_path(pattern):
    """Returns the values of `{split}` for which a path exists."""
    pattern = os.fspath(pattern)
    pieces = pattern.split(SPLIT_FIELD)
    expression = re.escape(pieces[0]) + "(?P<split>[^/]+)"
    expression += "(?P=split)".join(map(re.escape, pieces[1:]))
    paths = glob.glob("*".join(map(glob.escape, pieces)))
    matches = [re.fullmatch(expression, path) for path in paths]
    return ordered_splits(match["split"] for match in matches if match)


def fill_split(pattern, split):
    """Returns a path with `{split}` replaced by a split that exists.

    Args:
        pattern: a path; without `{split}` it is returned as it is.
        split: the name asked for; its other names are tried as well, so
            "val" finds `dev_ims.npy`.

    Returns:
        The path of the split.

    Raises:
        NoSuchSplit: no file of that split exists; those that do are listed.
    """
    pattern = os.fspath(pattern)
    if SPLIT_FIELD not in pattern:
        return pattern
    name = choose_split(split, splits_in_path(pattern), pattern)
    return pattern.replace(SPLIT_FIELD, name)


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
            "--captions",
            f"tell splits apart, or name {FEWEST} images to draw them from",
            f"{len(places)} in {path}",
            "Add photos with captions, or give its rows a split.",
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
    splits = [split_of(image_id, cuts) for image_id in records.image_ids]
    rows = [row for row, name in enumerate(splits) if name in wanted]
    return dataclasses.replace(records.subset(rows), split=split)
