"""Finds copies of photos: equal files, near-copies, and similar pairs."""

import hashlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import numpy as np
import PIL.Image

from tbnets.data.images import BrokenImageError, read_content, read_photo
from tbnets.progress import progress_bar
from tbnets.startup import usable_cores

NEAR_COPY = 0.92
"""Minimum similarity of contours of near-copies. The largest similarity of two
different photos of Flickr8k is 0.79. A photo and its copy after resizing, JPEG
at quality 20, or a crop of 2 % on each side have at least 0.95."""
ALIKE = 0.4
"""Minimum similarity of contours of photos of one scene. About one pair of
Flickr8k in a thousand reaches it, so features decide."""
ONE_SCENE = 0.88
"""Minimum cosine of features of photos of one scene."""
_SIDE = 9
_TILE = 2048


class Look(NamedTuple):
    """The properties of a photo that are compared.

    `fault` is the reason why the file is not a photo, or None. `digest` is a
    hash of the content. `grey`, uint8 `[9, 9]`, has the averages of the cells.
    """

    fault: str | None
    digest: bytes
    grey: np.ndarray


def look_at(path) -> Look:
    """Decodes a photo once and returns its `Look`."""
    try:
        content = read_content(path)
        photo = PIL.Image.fromarray(read_photo(content)).convert("L")
    except BrokenImageError as error:
        return Look(error.reason, b"", np.zeros((_SIDE, _SIDE), np.uint8))
    grey = photo.resize((_SIDE, _SIDE), PIL.Image.Resampling.BOX)
    digest = hashlib.blake2b(content, digest_size=16).digest()
    return Look(None, digest, np.asarray(grey))


def look_at_all(paths) -> Iterator[Look]:
    """Yields the `Look` of each photo, computed in parallel."""
    with ThreadPoolExecutor(usable_cores()) as pool:
        with progress_bar(len(paths), "photos", "photo") as bar:
            for look in pool.map(look_at, paths):
                bar.update()
                yield look


def contours(greys) -> np.ndarray:
    """Describes small grey photos by differences of neighbouring cells.

    Returns float32 `[n, dim]`: signed square roots of the horizontal and
    vertical differences, L2-normalised, or 0 for flat photos.
    """
    greys = np.asarray(greys, np.float32)
    steps = [np.diff(greys, axis=axis) for axis in (1, 2)]
    steps = [step.reshape(len(greys), -1) for step in steps]
    return unit_roots(np.concatenate(steps, axis=1))


def unit_roots(rows) -> np.ndarray:
    """Returns the signed square roots of rows, L2-normalised; 0 stays 0."""
    roots = np.sqrt(np.abs(rows), dtype=np.float32)
    roots = np.copysign(roots, rows, out=roots)
    norms = np.sqrt(np.einsum("ij,ij->i", roots, roots))
    roots /= np.maximum(norms, 1e-12)[:, None]
    return roots


def similar_pairs(*limits) -> Iterator[tuple[np.ndarray, ...]]:
    """Yields the pairs of rows that are similar in all of several ways.

    Each of `limits` is (rows, least): float32 `[n, dim]`, L2-normalised, and
    the minimum inner product. Yields arrays (first, second, similarity) with
    first < second and the similarity in the last way. The memory does not
    depend on the number of pairs.
    """
    starts = range(0, len(limits[0][0]), _TILE)
    tiles = [(one, two) for one in starts for two in starts if one <= two]
    with progress_bar(len(tiles), "pairs of photos", "tile") as bar:
        for one, two in tiles:
            is_similar = True
            for rows, least in limits:
                products = rows[one : one + _TILE] @ rows[two : two + _TILE].T
                is_similar = is_similar & (products >= least)
                if not is_similar.any():
                    break
            first, second = np.nonzero(is_similar)
            later = first + one < second + two
            first, second = first[later], second[later]
            if len(first):
                yield first + one, second + two, products[first, second]
            bar.update()
