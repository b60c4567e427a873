"""Edge maps for EdgeBoxes, by OpenCV (the extra `regions`).

An edge map is a pair (magnitudes, orientations), float32 `[height, width]`:
how strong an edge is, in [0, 1], and the direction across it, in [0, pi), 0
for an upright edge.
"""

import numpy as np

from tbnets.errors import InputError

SMOOTHING = 1.5
"""Standard deviation of the Gaussian before the gradient, in pixels."""


def import_opencv():
    """Returns `cv2` with `ximgproc`, or says how to install it."""
    try:
        import cv2

        cv2.ximgproc.createEdgeBoxes  # noqa: B018 - is it there?
    except (ImportError, AttributeError) as error:
        raise InputError(
            "`method` must be one whose library is installed. Received: "
            f"OpenCV without ximgproc ({error}). Install the extra: pip "
            'install "tbnets[regions]".'
        ) from error
    return cv2


def sobel_edges(pixels):
    """Finds edges by the gradient of the strongest colour channel.

    The stronger the step of colour the larger the magnitude; the strongest
    edge of the photo is 1. Edges are thinned to the crest of the gradient.

    Args:
        pixels: uint8 `[height, width, 3]`.

    Returns:
        (magnitudes, orientations): float32 `[height, width]`; in [0, 1],
        and in [0, pi): the direction across the edge, 0 for an upright one.
    """
    cv2 = import_opencv()
    smooth = cv2.GaussianBlur(pixels.astype(np.float32), (0, 0), SMOOTHING)
    along = [cv2.Sobel(smooth, -1, x, 1 - x, ksize=3) for x in (1, 0)]
    strength = np.hypot(*along)
    channel = strength.argmax(axis=2)[..., None]
    x, y, strength = (
        np.take_along_axis(array, channel, axis=2)[..., 0]
        for array in (*along, strength)
    )
    strength /= max(float(strength.max()), 1e-6)
    angles = np.arctan2(y, x)
    crest = np.ones(strength.shape, bool)
    rows, columns = np.indices(strength.shape, np.float32)
    for side in (-1, 1):
        neighbour = cv2.remap(
            strength,
            columns + side * np.cos(angles),
            rows + side * np.sin(angles),
            cv2.INTER_LINEAR,
            borderMode=cv2.BORDER_REPLICATE,
        )
        crest &= strength >= neighbour
    orientations = np.mod(angles, np.float32(np.pi))
    # A tiny negative angle plus pi rounds to pi itself.
    orientations[orientations >= np.float32(np.pi)] = 0
    return np.where(crest, strength, 0).astype(np.float32), orientations
