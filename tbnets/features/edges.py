"""Edge maps for EdgeBoxes, by OpenCV (the extra `regions`).

An edge map is a pair (magnitudes, orientations), float32 `[height, width]`:
how strong an edge is, in [0, 1], and the direction across it, in [0, pi), 0
for an upright edge.
"""

import functools
import gzip

import numpy as np

from tbnets.checked_files import require_file
from tbnets.errors import InputError

SMOOTHING = 1.5
MOST_MODEL_BYTES = 1 << 29
LEAST_SIDE = 64
"""Smaller photos are padded to it: a model looks at patches of 32 pixels."""
MODEL_OPTIONS = {
    "stride": (1, 16),
    "shrinkNumber": (1, 8),
    "patchSize": (2, LEAST_SIDE),
    "patchInnerSize": (2, LEAST_SIDE),
    "numberOfGradientOrientations": (1, 32),
    "gradientSmoothingRadius": (0, 64),
    "regFeatureSmoothingRadius": (0, 64),
    "ssFeatureSmoothingRadius": (0, 64),
    "gradientNormalizationRadius": (0, 64),
    "selfsimilarityGridSize": (1, 16),
    "numberOfTrees": (1, 256),
    "numberOfTreesToEvaluate": (1, 256),
}
"""Option of a structured-edge model -> least and largest value."""


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


def sobel_edges(pixels, smoothing=SMOOTHING):
    """Finds edges by the gradient of the strongest colour channel.

    The stronger the step of colour the larger the magnitude; the strongest
    edge of the photo is 1. Edges are thinned to the crest of the gradient.

    Args:
        pixels: uint8 `[height, width, 3]`.
        smoothing: standard deviation of the Gaussian before it, in pixels.

    Returns:
        (magnitudes, orientations): float32 `[height, width]`; in [0, 1],
        and in [0, pi): the direction across the edge, 0 for an upright one.
    """
    cv2 = import_opencv()
    smooth = cv2.GaussianBlur(pixels.astype(np.float32), (0, 0), smoothing)
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


@functools.lru_cache(maxsize=2)
def structured_edges(path):
    """Opens a structured-edge model, as OpenCV distributes it.

    The options of the model are checked; its trees are left to OpenCV, so
    take it from where OpenCV's own documentation points to.

    Args:
        path: `.yml` or `.yml.gz` file.

    Returns:
        A function as `sobel_edges`.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: OpenCV can not read it.

    Source: Dollar & Zitnick 2013, "Structured Forests for Fast Edge
    Detection".
    """
    cv2 = import_opencv()
    require_file(path)
    try:
        _check_model_size(path)
        _check_model_options(cv2, path)
        detector = cv2.ximgproc.createStructuredEdgeDetection(str(path))
    except (cv2.error, SystemError, OSError, EOFError, ValueError) as error:
        raise InputError(
            "`edge_model` must be a structured-edge model of OpenCV. "
            f"Received: edge_model={path}, which can not be used: "
            f"{' '.join(str(error).split())}. Download it again, or leave "
            "--edge_model out."
        ) from error

    def edges(pixels):
        height, width = pixels.shape[:2]
        padded = cv2.copyMakeBorder(
            pixels.astype(np.float32) / 255,
            0,
            max(0, LEAST_SIDE - height),
            0,
            max(0, LEAST_SIDE - width),
            cv2.BORDER_REPLICATE,
        )
        found = detector.detectEdges(padded)
        orientations = detector.computeOrientation(found)
        thin = detector.edgesNms(found, orientations, isParallel=False)
        return tuple(
            np.ascontiguousarray(array[:height, :width])
            for array in (thin, orientations)
        )

    return edges


def _check_model_size(path):
    """Raises ValueError for what would take too much memory to read."""
    opener = gzip.open if str(path).endswith(".gz") else open
    size = 0
    with opener(path, "rb") as stream:
        while block := stream.read(1 << 20):
            size += len(block)
            if size > MOST_MODEL_BYTES:
                raise InputError(f"it holds more than {MOST_MODEL_BYTES} bytes")


def _check_model_options(cv2, path):
    """Raises ValueError for options that OpenCV would stumble over."""
    storage = cv2.FileStorage(str(path), cv2.FILE_STORAGE_READ)
    options = storage.getNode("options")
    for name, (least, most) in MODEL_OPTIONS.items():
        node = options.getNode(name) if options.isMap() else options
        value = node.real() if node.isInt() else None
        if value is None or not least <= value <= most:
            raise InputError(
                f"its option {name} should be a whole number from {least} to "
                f"{most} and is {value}"
            )
    for name in ("childs", "featureIds", "thresholds", "edgeBins"):
        if storage.getNode(name).empty():
            raise InputError(f"it has no {name}")
