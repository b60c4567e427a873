"""Tests of edge maps, proposals and the store they are written to."""

import numpy as np
import PIL.Image
import pytest

cv2 = pytest.importorskip("cv2", reason="needs the extra: tbnets[regions]")

from tbnets.evaluation import boxes as box_math  # noqa: E402
from tbnets.features import proposals  # noqa: E402
from tbnets.features.proposals import Proposer  # noqa: E402

METHODS = tuple(proposals.IOU_THRESHOLDS)
SQUARE = [12, 8, 36, 32]


def square_photo(width=60, height=44):
    """A bright square, at `SQUARE`, on a dark ground."""
    pixels = np.full((height, width, 3), 40, np.uint8)
    x_min, y_min, x_max, y_max = SQUARE
    pixels[y_min:y_max, x_min:x_max] = (200, 60, 60)
    return pixels


def noise(height, width, seed=0):
    random = np.random.default_rng(seed)
    small = random.integers(0, 256, (height // 4, width // 4, 3), np.uint8)
    return np.asarray(PIL.Image.fromarray(small).resize((width, height)))


# Edges.


def test_opencv_without_its_extra_modules_is_named(monkeypatch):
    modules = __import__("sys").modules
    monkeypatch.setitem(modules, "cv2.ximgproc", None)
    with pytest.raises(ImportError, match=r"tbnets\[regions\]"):
        Proposer()(square_photo())
    monkeypatch.setitem(modules, "cv2", None)
    with pytest.raises(ImportError, match=r"tbnets\[regions\]"):
        Proposer().description()


# Proposals.


@pytest.mark.parametrize("method", METHODS)
def test_proposals_find_the_square(method):
    boxes, scores = Proposer(method)(square_photo())
    overlaps = box_math.iou(boxes, [SQUARE])[:, 0]
    assert overlaps.max() > 0.7
    assert boxes.dtype == scores.dtype == np.float32
    assert len(boxes) == len(scores)
    assert (np.diff(scores) <= 0).all()
    assert (boxes >= 0).all() and (boxes <= [60, 44, 60, 44]).all()
    if method == "selective_search":
        assert not scores.any()
    else:
        assert scores[0] > scores[-1]


@pytest.mark.parametrize("method", METHODS)
def test_proposals_obey_their_limits(method):
    pixels = noise(80, 104)
    every, _ = Proposer(method, limit=1000, iou_threshold=1)(pixels)
    fewer, scores = Proposer(method, limit=7, iou_threshold=0.4)(pixels)
    assert len(every) > 7 and len(fewer) == len(scores) == 7
    overlaps = box_math.iou(fewer, fewer)
    assert (overlaps[~np.eye(7, dtype=bool)] <= 0.4 + 1e-6).all()
    rows = [every.tolist().index(row) for row in fewer.tolist()]
    assert rows == sorted(rows)  # In the same order as without limits.
    large, _ = Proposer(method, min_area=0.2)(pixels)
    assert (box_math.areas(large) >= 0.2 * 80 * 104 * (1 - 1e-6)).all()
    assert (box_math.areas(every) < 0.2 * 80 * 104).any()
    if method == "selective_search":  # It begins with large regions.
        first, second = np.array_split(box_math.areas(every), 2)
        assert first.mean() > second.mean()


def test_whole_photo_is_the_last_box():
    proposer = proposals.Proposer(limit=2, whole_photo=True)
    boxes, scores = proposer(square_photo())
    others = proposals.Proposer(limit=2)(square_photo())
    np.testing.assert_array_equal(boxes[:-1], others[0])
    np.testing.assert_array_equal(boxes[-1], [0, 0, 60, 44])
    np.testing.assert_array_equal(scores, np.append(others[1], 0))
    told = proposer.description()
    assert proposals.proposer_of(told) == proposer
    other = proposals.Proposer(limit=2).description()
    assert told == {**other, "whole_photo": True}


@pytest.mark.parametrize("method", METHODS)
def test_proposals_for_a_larger_photo_are_in_its_own_pixels(method):
    pixels = square_photo()
    large = pixels.repeat(4, axis=0).repeat(4, axis=1)
    boxes, _ = Proposer(method, longest_side=60)(large)
    small, _ = Proposer(method)(pixels)
    np.testing.assert_allclose(boxes, 4 * small, atol=1e-3)
    # Never scaled up.
    same, _ = Proposer(method, longest_side=5000)(pixels)
    np.testing.assert_array_equal(same, small)
