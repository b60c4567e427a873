"""Proposes boxes in a photo that are likely to contain an object.

EdgeBoxes scores boxes by the contours that are wholly inside them. Selective
search merges similar neighbouring segments and proposes their boxes.
"""

import dataclasses

import numpy as np

from tbnets.checks import checked_number
from tbnets.errors import InputError, check_choice, import_extra
from tbnets.evaluation import boxes as box_math
from tbnets.files import shown

MOST_CANDIDATES = 2000
IOU_THRESHOLDS = {"edge_boxes": 0.6, "selective_search": 0.8}
"""For each method, the IoU above which the worse of two boxes is dropped."""
EDGE_BOXES = {
    "alpha": 0.65,
    "minScore": 0.01,
    "edgeMinMag": 0.1,
    "edgeMergeThr": 0.5,
    "clusterMinMag": 0.5,
    "gamma": 2.0,
    "kappa": 1.5,
}
"""Zitnick & Dollar 2014, Sec. 3. `Proposer` sets OpenCV's beta and eta."""
SMOOTHING = 1.5
"""Standard deviation, in pixels, of the blur before the gradient."""
_RANGES = (
    ("limit", 1, 1_000_000, True),
    ("iou_threshold", 0, 1, False),
    ("longest_side", 16, 10_000, True),
    ("min_area", 0, 1, False),
    ("iou_decay", 0.5, 1, False),
    ("max_aspect_ratio", 1, 100, False),
)
"""Argument, its minimum and maximum, and whether it is a whole number."""


@dataclasses.dataclass(frozen=True)
class Proposer:
    """Proposes boxes that may contain objects, deterministically.

    Selective search returns boxes in ranked order, but all their scores are 0.

    Args:
        method: a key of `IOU_THRESHOLDS`.
        limit: maximum number of boxes.
        iou_threshold: threshold of non-maximum suppression; None for
            `IOU_THRESHOLDS[method]`.
        longest_side: maximum side in pixels; larger photos are scaled down.
        min_area: minimum area of a box, as a fraction of the photo.
        iou_decay: factor by which EdgeBoxes multiplies `iou_threshold` after
            each kept box, while the threshold is above 0.5. Zitnick & Dollar
            2015 call it `eta` and use 0.9996.
        max_aspect_ratio: maximum ratio of a box's sides in EdgeBoxes.
        whole_photo: whether to append a box of the whole photo, with score 0.

    Example:
        >>> boxes, scores = Proposer("edge_boxes", limit=50)(pixels)
    """

    method: str = "edge_boxes"
    limit: int = 200
    iou_threshold: float | None = None
    longest_side: int = 500
    min_area: float = 0.005
    iou_decay: float = 1.0
    max_aspect_ratio: float = 3.0
    whole_photo: bool = False

    def __post_init__(self):
        check_choice("method", self.method, tuple(IOU_THRESHOLDS))
        for name, least, most, is_integer in _RANGES:
            value = getattr(self, name)
            if value is None and name == "iou_threshold":
                value = IOU_THRESHOLDS[self.method]
            value = checked_number(name, value, least, is_integer, most=most)
            object.__setattr__(self, name, value)
        if self.method != "edge_boxes" and self.iou_decay != 1:
            expected = "be 1 for selective_search"
            raise InputError("iou_decay", expected, self.iou_decay)

    def description(self) -> dict:
        """Returns the settings that affect boxes, for a store's manifest."""
        parts = dataclasses.asdict(self)
        parts["opencv"] = import_opencv().__version__
        parts["photo"] = "upright, RGB"
        if self.method == "edge_boxes":
            edges = {"sobel": {"smoothing": SMOOTHING}}
            parts |= {"edge_boxes": EDGE_BOXES, "edges": edges}
            parts["most_candidates"] = MOST_CANDIDATES
        return parts

    def __call__(self, pixels):
        """Proposes boxes for one photo.

        Args:
            pixels: uint8 `[height, width, 3]`, RGB, upright.

        Returns:
            (boxes, scores): float32 `[k, 4]` and float32 `[k]`, best first. k
            is at most `limit`, or `limit + 1` if `whole_photo` is true.
        """
        pixels = np.asarray(pixels)
        is_photo = pixels.ndim == 3 and pixels.shape[2] == 3 and pixels.size
        if not is_photo or pixels.dtype != np.uint8:
            raise InputError(
                "pixels",
                "be uint8 [height, width, 3] with at least one pixel",
                f"shape {pixels.shape} and dtype {pixels.dtype}",
            )
        height, width = pixels.shape[:2]
        scaled = _shrink(pixels, self.longest_side)
        boxes, scores = _METHODS[self.method](scaled, self)
        scale = [width / scaled.shape[1], height / scaled.shape[0]] * 2
        boxes = box_math.clip_boxes(boxes * scale, width, height)
        is_large = box_math.areas(boxes) >= self.min_area * width * height
        boxes, scores = boxes[is_large], scores[is_large]
        suppress = box_math.non_maximum_suppression
        best = suppress(boxes, scores, self.iou_threshold, self.limit)
        boxes, scores = boxes[best], scores[best]
        if self.whole_photo:
            boxes = np.append(boxes, [[0, 0, width, height]], axis=0)
            scores = np.append(scores, 0)
        return boxes.astype(np.float32), scores.astype(np.float32)


def proposer_of(description) -> Proposer:
    """Builds a `Proposer` from the result of its `description` method."""
    try:
        names = "method", "whole_photo", *(name for name, *_ in _RANGES)
        return Proposer(**{name: description[name] for name in names})
    except (InputError, KeyError, TypeError) as error:
        raise InputError(
            "description",
            "have the settings of the proposals",
            f"{shown(description)} ({error})",
            "Extract region features again, or pass your own boxes.",
        ) from error


def import_opencv():
    """Imports `cv2`, or raises an error with installation instructions."""
    import_extra("regions", "cv2.ximgproc")
    return import_extra("regions", "cv2")


def sobel_edges(pixels):
    """Finds edges, the local maxima of the strongest channel's gradient.

    `pixels` is uint8 `[height, width, 3]`. Returns (magnitudes, orientations),
    two float32 arrays of shape `[height, width]`. Magnitudes are in [0, 1], and
    0 outside edges. Orientations are in [0, pi), and 0 for a vertical edge.
    """
    cv2 = import_opencv()
    smooth = cv2.GaussianBlur(pixels.astype(np.float32), (0, 0), SMOOTHING)
    along = [cv2.Sobel(smooth, -1, x, 1 - x, ksize=3) for x in (1, 0)]
    strength = np.hypot(*along)
    channel = strength.argmax(axis=2)[..., None]
    planes = np.stack([*along, strength])
    x, y, strength = np.take_along_axis(planes, channel[None], axis=3)[..., 0]
    # A step of one grey level has a strength of about 1. Rounding errors are at
    # most 1e-4.
    strength /= max(float(strength.max()), 1e-2)
    angles = np.arctan2(y, x)
    crest = np.ones(strength.shape, bool)
    rows, columns = np.indices(strength.shape, np.float32)
    for side in (-1, 1):
        maps = columns + side * np.cos(angles), rows + side * np.sin(angles)
        crest &= strength >= cv2.remap(
            strength, *maps, cv2.INTER_LINEAR, borderMode=cv2.BORDER_REPLICATE
        )
    orientations = np.mod(angles, np.float32(np.pi))
    # A tiny negative angle plus pi rounds to pi itself.
    orientations[orientations >= np.float32(np.pi)] = 0
    return np.where(crest, strength, 0).astype(np.float32), orientations


def _edge_boxes(pixels, proposer):
    # OpenCV's boxes are one pixel larger than their contours. Without this
    # pixel, 92 instead of 85 % of the objects in the training scenes are found
    # at an overlap of 0.7.
    cv2 = import_opencv()
    finder = cv2.ximgproc.createEdgeBoxes(
        beta=proposer.iou_threshold,
        eta=proposer.iou_decay,
        maxAspectRatio=proposer.max_aspect_ratio,
        maxBoxes=MOST_CANDIDATES,
        minBoxArea=proposer.min_area * pixels.shape[0] * pixels.shape[1],
        **EDGE_BOXES,
    )
    rectangles, scores = finder.getBoundingBoxes(*sobel_edges(pixels))
    if not len(rectangles):  # OpenCV then returns None as scores.
        return np.zeros((0, 4)), np.zeros(0)
    boxes, scores = _corners(rectangles), np.array(scores, np.float64).ravel()
    # If there are no edges, OpenCV's scores are 0 or not finite.
    is_scored = np.isfinite(scores) & (scores > 0)
    boxes[:, 2:] = np.maximum(boxes[:, 2:] - 1, boxes[:, :2] + 1)
    return boxes[is_scored], scores[is_scored]


def _selective_search(pixels, _):
    # A box's rank is a random number times its position in the hierarchy
    # (Uijlings et al. 2013, Sec. 4.1). OpenCV does not return positions, so the
    # rank by descending area replaces them.
    cv2 = import_opencv()
    search = cv2.ximgproc.segmentation.createSelectiveSearchSegmentation()
    search.setBaseImage(np.ascontiguousarray(pixels[:, :, ::-1]))
    search.switchToSelectiveSearchFast()
    boxes = np.unique(_corners(search.process()), axis=0)
    size_ranks = np.empty(len(boxes))
    by_area = np.argsort(-box_math.areas(boxes), kind="stable")
    size_ranks[by_area] = np.arange(1, len(boxes) + 1)
    ranks = np.random.default_rng(0).random(len(boxes)) * size_ranks
    return boxes[np.argsort(ranks, kind="stable")], np.zeros(len(boxes))


_METHODS = {"edge_boxes": _edge_boxes, "selective_search": _selective_search}


def _corners(rectangles):
    corners = np.array(rectangles, np.float64).reshape(-1, 4)
    corners[:, 2:] += corners[:, :2]
    return corners


def _shrink(pixels, longest_side):
    height, width = pixels.shape[:2]
    scale = longest_side / max(height, width)
    if scale >= 1:
        return pixels
    cv2 = import_opencv()
    size = [max(1, round(scale * side)) for side in (width, height)]
    return cv2.resize(pixels, size, interpolation=cv2.INTER_AREA)
