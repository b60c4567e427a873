"""Points of one space, with words and thumbnails, for whatever draws them."""

from typing import NamedTuple

import numpy as np

IMAGE, CAPTION, PHRASE = "image", "caption", "noun phrase"


class Points(NamedTuple):
    """Points in a space, and what is known of each.

    Args:
        vectors: float `[n, dim]`.
        columns: dict, name -> n strings; the first column names the points.
            A map (`pictures.space_map`) reads `text`; `kind`, which is
            `IMAGE`, `CAPTION` or `PHRASE`; and `image`, the image that each
            belongs to.
        thumbnails: uint8 `[n, side, side, 3]`, or None.
    """

    vectors: np.ndarray
    columns: dict
    thumbnails: np.ndarray | None = None
