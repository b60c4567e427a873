"""Opens feature files and feature stores.

`open_features` does not read the features. To compute with them, use
`load_features`, which also checks that the files are unchanged and that all
values are finite.
"""

import os

import numpy as np

from tbnets.checks import Path
from tbnets.data.store.features import (
    Features,
    check_finite,
    ids_file,
    open_array,
)
from tbnets.data.store.manifest import read_manifest
from tbnets.data.store.reader import open_store
from tbnets.errors import InputError

SIDE_BY_SIDE = "side_by_side"
"""Key in `made_by` of the list that contains the `made_by` of each source."""


class SideBySide(Features):
    """Features from several sources, concatenated by id.

    Contains only the ids common to all sources, in the first source's order.
    """

    parts: tuple = ()

    def __init__(self, parts):
        for part in parts:
            if not part.has_ids:
                raise InputError(
                    f"{part.path}: expected ids, by which features are "
                    f"concatenated; found no file {ids_file(part.path)}. "
                    "Write one id per row to this file."
                )
        row_of_id = parts[0].row_of_id
        common = sorted(row_of_id, key=row_of_id.get)
        for part in parts:
            missing = set(part.missing(common))
            common = [key for key in common if key not in missing]
        if not common:
            looks = "; ".join(f"in {p.path} {p.looks()}" for p in parts)
            raise InputError(
                "parts",
                "be features with common ids",
                looks,
                "Use matching ids.",
            )
        path = ", ".join(part.path for part in parts)
        super().__init__(common, sum(part.dim for part in parts), path)
        self.parts = tuple(parts)
        self._part_rows = [part.rows(self.ids) for part in parts]
        self.failed = {k: v for part in parts for k, v in part.failed.items()}
        self.made_by = joined_made_by([part.made_by for part in parts])

    def rows(self, image_ids) -> np.ndarray:
        """Returns the rows of images. Errors name the source without an id."""
        for part in self.parts:
            part.rows(image_ids)
        return super().rows(image_ids)

    def _read(self, rows):
        pairs = zip(self.parts, self._part_rows)
        arrays = [part.take(own_rows[rows]) for part, own_rows in pairs]
        return np.concatenate(arrays, axis=1)

    def verify(self):
        """Compares the files with their checksums, if there are any."""
        for part in self.parts:
            part.verify()


def joined_made_by(parts) -> dict:
    """Returns the `made_by` of features concatenated from several parts."""
    if len(parts) == 1:
        return parts[0]
    return {SIDE_BY_SIDE: list(parts)} if any(parts) else {}


_checked = set()
"""(path, inode, size, time) of each file that `check_features` accepted."""


def open_features(*paths: Path) -> Features:
    """Opens features in any format without reading them.

    Args:
        *paths: folders of feature stores, or `.npy` files with `*_ids.txt`. If
            several paths are given, rows with equal ids are concatenated.

    Returns:
        `Features`: a `FeatureStore`, a `FeatureArray` or, for several paths, a
        `SideBySide`.

    Raises:
        FileNotFoundError: a path does not exist, or is a folder without a
            manifest.
        ValueError: the features are damaged, the store is incomplete, or the
            paths share no id.

    Example:
        features = tbnets.open_features("features/vgg19")
        features.take(features.rows(["1000268201.jpg"])).shape  # (1, 4096)
    """
    parts = []
    for path in paths:
        if isinstance(path, Features):
            parts.append(path)
            continue
        open_one = open_store if os.path.isdir(path) else open_array
        parts.append(open_one(path))
    return parts[0] if len(parts) == 1 else SideBySide(parts)


def load_features(paths, image_ids=None):
    """Opens features and checks that they are unchanged and finite.

    Each process checks a file only once unless the file changes.

    Returns (features, rows): the `Features` in the list `paths`, and the row of
    each id in `image_ids`. If `image_ids` is None, `rows` contains all rows.
    """
    features = open_features(*paths)
    rows = range(len(features))
    if image_ids is not None:
        rows = features.rows(image_ids)
    for part in features.parts:
        check_features(part)
    return features, rows


def check_features(part):
    """Checks that features of one source are unchanged and finite."""
    states = [(os.path.realpath(path), os.stat(path)) for path in part.files]
    key = tuple(
        (path, state.st_ino, state.st_size, state.st_mtime_ns)
        for path, state in states
    )
    if key not in _checked:
        part.verify()
        check_finite(part)
        _checked.add(key)


def read_made_by(*paths) -> dict:
    """Returns `Features.made_by` for `paths`, but reads only the manifests."""

    def made_by(path):
        return read_manifest(path).made_by if os.path.isdir(path) else {}

    return joined_made_by([made_by(path) for path in paths])
