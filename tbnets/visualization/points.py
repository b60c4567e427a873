"""Points of one space, with words and thumbnails, for whatever draws them."""

from typing import NamedTuple

import numpy as np

IMAGE, CAPTION, PHRASE = "image", "caption", "noun phrase"


class Points(NamedTuple):
    """Points in a space, and what is known of each.

    Args:
        vectors: float `[n, dim]`.
        columns: dict, name -> n strings; the first column names the points.
            A map (`visualization.space_map`) reads `text`; `kind`, which is
            `IMAGE`, `CAPTION` or `PHRASE`; and `image`, the image that each
            belongs to.
        thumbnails: uint8 `[n, side, side, 3]`, or None.
    """

    vectors: np.ndarray
    columns: dict
    thumbnails: np.ndarray | None = None


def joined(parts):
    """Returns the points of one space together; None where there are none.

    Args:
        parts: list of `Points`, all with the columns of the first; None among
            them is left out. Without thumbnails of the first there are none.
    """
    parts = [part for part in parts if part is not None]
    if not parts:
        return None
    vectors, columns, thumbnails = zip(*parts)
    merged = {k: sum((one[k] for one in columns), []) for k in columns[0]}
    pixels = None if thumbnails[0] is None else np.concatenate(thumbnails)
    return Points(np.concatenate(vectors), merged, pixels)
