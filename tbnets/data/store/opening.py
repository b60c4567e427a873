"""From paths to features: the way in for everybody who reads them.

`open_features` opens whatever lies there and reads no features yet. Who
computes with them takes `load_features`, which finds the rows of images and
refuses files that were changed and numbers that are not finite.
"""

import os

import numpy as np

from tbnets.checks import Path
from tbnets.data.store.arrays import (
    Features,
    check_finite,
    ids_file,
    open_array,
)
from tbnets.data.store.manifest import read_manifest
from tbnets.data.store.shards import open_store
from tbnets.errors import InputError, check_kind

# Features of several sources put side by side, joined by id.

SIDE_BY_SIDE = "side_by_side"
"""Where `made_by` tells what made each part, in their order."""


class SideBySide(Features):
    """Features of several sources in one row, joined by id.

    It has the ids that all sources have, in the order of the first.

    Args:
        parts: `Features`, whose rows are put side by side in this order.

    Raises:
        ValueError: one has no ids, or no id is in all of them.
    """

    parts: tuple = ()

    def __init__(self, parts):
        for part in parts:
            if not part.has_ids:
                raise InputError(
                    f"{part.path}: expected ids, by which features are put "
                    f"side by side; found no file {ids_file(part.path)}. "
                    "Write the id of each row to it, one a line."
                )
        common = list(dict.fromkeys(parts[0].ids))
        for part in parts:
            missing = set(part.missing(common))
            common = [key for key in common if key not in missing]
        if not common:
            looks = "; ".join(f"in {p.path} {p.looks()}" for p in parts)
            raise InputError(
                "parts",
                "be features with ids in common",
                f"{looks}",
                "Write the ids alike.",
            )
        path = ", ".join(part.path for part in parts)
        super().__init__(common, sum(part.dim for part in parts), path)
        self.parts = tuple(parts)
        self._part_rows = [part.rows(self.ids) for part in parts]
        self.failed = {k: v for part in parts for k, v in part.failed.items()}
        self.made_by = joined_made_by([part.made_by for part in parts])

    def rows(self, image_ids) -> np.ndarray:
        """Returns the rows of images; the error names the part without."""
        for part in self.parts:
            part.rows(image_ids)
        return super().rows(image_ids)

    def _read(self, rows):
        pairs = zip(self.parts, self._part_rows)
        taken = [part.take(own_rows[rows]) for part, own_rows in pairs]
        return np.concatenate(taken, axis=1)

    def verify(self):
        """Compares what is on disk with its checksums, where it has any."""
        for part in self.parts:
            part.verify()


def joined_made_by(parts) -> dict:
    """Returns the `made_by` of features put side by side.

    Args:
        parts: `Features.made_by` of each.
    """
    if len(parts) == 1:
        return parts[0]
    return {SIDE_BY_SIDE: list(parts)} if any(parts) else {}


_checked = set()
"""States of files that were found to be good; see `_check`."""


def open_features(*paths: Path) -> Features:
    """Opens features without reading them, whichever way they are stored.

    Args:
        *paths: each the folder of a feature store, or a `.npy` file with its
            ids beside it (see `arrays.open_array`). The rows of several are
            put side by side, joined by id.

    Returns:
        A `FeatureStore`, a `FeatureArray` or, of several, a `SideBySide`:
        all are `Features`.

    Raises:
        FileNotFoundError: there is nothing, or a folder without manifest.
        ValueError: it is damaged, the store is not complete, or several
            can not be joined.

    Example:
        features = tbnets.open_features("features/vgg19")
        features.take(features.rows(["1000268201.jpg"])).shape  # (1, 4096)
    """
    if not paths:
        raise InputError(
            "paths",
            "name features",
            "none",
            "Give a store's folder or a .npy file.",
        )
    parts = []
    for path in paths:
        advice = "Give a store's folder or a .npy file; arrays are open."
        check_kind("paths", path, (str, os.PathLike), advice)
        open_one = open_store if os.path.isdir(path) else open_array
        parts.append(open_one(path))
    return parts[0] if len(parts) == 1 else SideBySide(parts)


def load_features(paths, image_ids=None):
    """Opens features to compute with: they are there, whole and finite.

    Files that were checked in this process and not written since, are not
    read again: the splits of one store cost what one of them costs.

    Args:
        paths: list of paths as `open_features` takes them.
        image_ids: n strings; None for all rows in order.

    Returns:
        (features, rows): the `Features`, and int `[n]`.

    Raises:
        FileNotFoundError, ValueError: as `open_features`; or features of
            images are missing, a file was changed since the extraction, or a
            number is not finite. The message names the place.
    """
    features = open_features(*paths)
    rows = range(len(features))
    if image_ids is not None:
        rows = features.rows(image_ids)
    for part in features.parts:
        _check(part)
    return features, rows


def _check(part):
    """Compares a part with its checksums and reads its numbers, once."""
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
    """Returns `Features.made_by` of what `open_features` would open.

    Of a store, the manifest alone is read.
    """

    def made_by(path):
        return read_manifest(path).made_by if os.path.isdir(path) else {}

    return joined_made_by([made_by(path) for path in paths])
