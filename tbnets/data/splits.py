"""Names of splits, in files and in paths."""

import glob
import os
import re

from tbnets.errors import InputError

SPLIT_FIELD = "{split}"


WHOLE_FILE = "all"


SAME_SPLIT = ("val", "dev", "validation")


SPLIT_ORDER = ("train", "restval", *SAME_SPLIT, "test")


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
