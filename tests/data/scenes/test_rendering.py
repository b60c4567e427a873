import dataclasses

import numpy as np
import pytest

from tbnets.data.scenes import rendering
from tbnets.data.scenes.layout import SHAPES, Scene, SceneObject


def one_object(shape, **changes):
    values = {
        "colour": "white",
        "size": "large",
        "texture": "plain",
        "x": 40.0,
        "y": 44.0,
        "radius": 16.0,
        **changes,
    }
    return SceneObject(shape, **values)


def draw(one, clutter=0.0, seed=0):
    scene = Scene(96, "grey", 0.0, (one,))
    rng = np.random.default_rng(seed)
    return rendering.render_scene(scene, rng, clutter)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("angle", [0.0, 7.5])
def test_boxes_are_tight_around_the_drawn_pixels(shape, angle):
    """White minus black shows the covered part of each pixel."""
    white, boxes = draw(one_object(shape, angle=angle))
    black, _ = draw(one_object(shape, angle=angle, colour="black"))
    # White is 248 and black 22 or 24: full cover is a difference of 226.
    cover = (white[..., 0].astype(int) - black[..., 0]) / 226
    rows = np.flatnonzero((cover >= 0.24).any(axis=1))
    columns = np.flatnonzero((cover >= 0.24).any(axis=0))
    expected = [columns[0], rows[0], columns[-1] + 1, rows[-1] + 1]
    assert boxes.tolist() == [expected]
    assert cover.max() > 0.95


def test_boxes_of_a_circle_are_centre_and_radius():
    _, boxes = draw(one_object("circle"))
    # 40 - 16, 44 - 16, 40 + 16, 44 + 16.
    assert np.abs(boxes - [[24, 28, 56, 60]]).max() <= 1


def test_ring_is_empty_inside():
    image, _ = draw(one_object("ring"))
    background = rendering.draw_background(Scene(96, "grey", 0.0, ()))
    assert image[44, 40].tolist() == np.rint(background[44, 40]).tolist()
    assert image[44, 26].tolist() == [248, 248, 248]


@pytest.mark.parametrize("texture", ["striped", "dotted", "checked"])
@pytest.mark.parametrize("radius", [9.0, 18.0])
def test_textures_show_two_colours(texture, radius):
    image, _ = draw(one_object("square", texture=texture, radius=radius))
    inside = image[44 - 5 : 44 + 6, 40 - 5 : 40 + 6].reshape(-1, 3)
    colours, counts = np.unique(inside, axis=0, return_counts=True)
    # The object's own 248 and, as it is light, 0.45 x 248 = 111.6.
    assert colours[:, 0].tolist() == [112, 248]
    assert counts.min() > 10


def test_background_is_lit_from_one_side():
    light = rendering.draw_background(Scene(96, "grey", 0.0, ()))
    assert light.shape == (96, 96, 3)
    # Grey is 140, 144, 148; a tenth less at the left, more at the right.
    assert light[0, 0, 0] == pytest.approx(126, abs=0.5)
    assert light[0, -1, 0] == pytest.approx(154, abs=0.5)
    np.testing.assert_allclose(light[0], light[-1])


def test_clutter_changes_pixels_but_no_boxes():
    clean, boxes = draw(one_object("star"))
    changes = []
    for clutter in (0.1, 1.0):
        image, same = draw(one_object("star"), clutter)
        assert same.tolist() == boxes.tolist()
        changes.append(np.abs(image.astype(int) - clean).mean())
    assert 0 < changes[0] < changes[1]


def test_every_shape_stays_in_its_patch_when_turned():
    """What is drawn does not reach the patch's rim, so nothing is cut."""
    for shape in SHAPES:
        for angle in (-8.0, 8.0):
            one = dataclasses.replace(one_object(shape), angle=angle)
            _, _, cover = rendering.draw_coverage(one)
            rim = [cover[0], cover[-1], cover[:, 0], cover[:, -1]]
            assert max(line.max() for line in rim) == 0
