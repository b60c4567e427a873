import numpy as np
import pytest

from tbnets.data.scenes import dataset
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
    return dataset.render_scene(scene, rng, clutter)


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
