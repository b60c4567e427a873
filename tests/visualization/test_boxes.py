"""Tests of photos with boxes and labels."""

import numpy as np
import PIL.ImageColor
import pytest

from tbnets.visualization import boxes as pictures
from tbnets.visualization.boxes import PhraseBox, draw_boxes, draw_side_by_side

RGB = [PIL.ImageColor.getrgb(colour) for colour in pictures.COLOURS]
PHOTO = np.full((50, 100, 3), 90, np.uint8)
BOX = [10, 10, 60, 40]


def is_colour(pixels, number):
    return (pixels == RGB[number]).all(axis=-1)


def test_a_box_is_drawn_at_its_place():
    # 100 x 50 drawn 400 wide: 4 times as large, from 40 to 240 and to 160.
    drawn = draw_boxes(PHOTO, [PhraseBox(BOX, "", 4)], side=400)
    assert drawn.shape == (200, 400, 3) and drawn.dtype == np.uint8
    for y, x in ((100, 40), (100, 239), (159, 200)):
        assert is_colour(drawn[y, x], 4)
    assert (drawn[100, 43] == 0).all()  # Lines of 3 pixels in lines of 7.
    assert (drawn[100, 45] == 90).all() and (drawn[100, 35] == 90).all()


def test_wrong_boxes_are_dashed():
    def line(is_right):
        box = PhraseBox(BOX, "", 0, is_right)
        return is_colour(draw_boxes(PHOTO, [box], 400)[159, 44:236], 0)

    assert line(None).all() and line(True).all()
    assert 0.4 < line(False).mean() < 0.7


@pytest.mark.parametrize("shape", [(1, 1), (1, 900), (900, 1), (3, 2)])
def test_photos_of_any_shape_are_drawn(shape):
    photo = np.zeros((*shape, 3), np.uint8)
    box = PhraseBox([0, 0, shape[1], shape[0]], "x\n\x1b[1m" + "long " * 999)
    drawn = draw_boxes(photo, [box, PhraseBox([5, 5, 999, 999], "")])
    assert max(drawn.shape) == pictures.SIDE
    assert is_colour(drawn, 0).any()


def test_a_photo_without_boxes_is_unchanged():
    assert (draw_boxes(PHOTO, [], 400) == 90).all()
    with pytest.raises(ValueError, match="`boxes` must be finite"):
        draw_boxes(PHOTO, [PhraseBox([5, 5, 1, 1], "")])


def test_true_and_found_boxes_are_side_by_side():
    drawn = draw_side_by_side(
        PHOTO, [PhraseBox(BOX, "", 1)], [PhraseBox(BOX, "", 2, True)], 300
    )
    assert drawn.shape == (150 + pictures.HEADING, 600 + pictures.GAP, 3)
    left, right = drawn[:, :300], drawn[:, 300 + pictures.GAP :]
    assert is_colour(left, 1).any() and not is_colour(left, 2).any()
    assert is_colour(right, 2).any() and not is_colour(right, 1).any()
