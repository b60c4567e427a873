"""Tests of maps: what lies near what, and what is drawn where."""

import numpy as np
import PIL.ImageColor
import pytest

from tbnets.visualization import plots
from tbnets.visualization.plots import CAPTION, IMAGE, PHRASE, Points

PURPLE = (90, 10, 160)
BLUE = PIL.ImageColor.getrgb(plots.INK[CAPTION])
ORANGE = PIL.ImageColor.getrgb(plots.INK[PHRASE])
LINE = PIL.ImageColor.getrgb(plots.LINE)


def test_neighbours_stay_neighbours_and_points_give_one_map():
    pytest.importorskip("sklearn", reason="needs the extra: tbnets[map]")
    generator = np.random.default_rng(0)
    groups = np.repeat(np.arange(3), 12)
    vectors = np.eye(8)[groups] + generator.normal(0, 0.1, (36, 8))
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    places = plots.lay_out(vectors)
    assert places.min() == 0 and places.max() == 1
    apart = np.linalg.norm(places[:, None] - places, axis=-1)
    nearest = np.argsort(apart, axis=1)[:, 1:6]
    assert (groups[nearest] == groups[:, None]).all()
    np.testing.assert_array_equal(plots.lay_out(vectors), places)


def test_few_points_and_collapsed_ones_have_places_too():
    pytest.importorskip("sklearn", reason="needs the extra: tbnets[map]")
    for vectors in (
        *(np.eye(7)[:number] for number in (0, 1, 2, 4, 7)),
        *(np.tile([0.6, 0.8], (9, 1)), np.ones((6, 1)), [[1.0], [-1]] * 4),
    ):
        places = plots.lay_out(vectors)
        assert places.shape == (len(vectors), 2)
        assert np.isfinite(places).all()
        assert ((places >= 0) & (places <= 1)).all()


def draw(monkeypatch, rows, thumbnails=None):
    """Draws (kind, text, image, place) of points."""
    kinds, texts, images, places = zip(*rows)
    columns = {"text": texts, "kind": kinds, "image": images}
    monkeypatch.setattr(plots, "lay_out", lambda _: np.array(places))
    points = Points(np.zeros((len(rows), 2)), columns, thumbnails)
    return np.asarray(plots.draw_map(points, "a run"))


def at(pixels, x, y):
    """Returns the colour of a place, from 0 to 1 across the map."""
    room = np.array([plots.WIDTH, plots.HEIGHT]) - 2 * plots.MARGIN
    column, row = np.round(plots.MARGIN + np.array([x, y]) * room)
    return tuple(pixels[int(row), int(column)].tolist())


def test_a_line_joins_a_sentence_to_its_photo(monkeypatch):
    thumbnails = np.full((3, 64, 64, 3), PURPLE, np.uint8)
    beside, free_box = [], plots._free_box

    def noted(place, *others):
        beside.append(tuple(place))
        return free_box(place, *others)

    monkeypatch.setattr(plots, "_free_box", noted)
    pixels = draw(
        monkeypatch,
        [
            (IMAGE, "a dog", "a.jpg", (0, 0.5)),
            (CAPTION, "a dog runs", "a.jpg", (1, 0.5)),
            (PHRASE, "a dog", "a.jpg", (0.5, 0)),
        ],
        thumbnails,
    )
    assert at(pixels, 0, 0.5) == PURPLE
    assert at(pixels, 1, 0.5) == BLUE
    assert at(pixels, 0.5, 0) == ORANGE
    assert at(pixels, 0.5, 0.5) == LINE
    assert at(pixels, 0.5, 0.25) == (255, 255, 255)
    assert len(set(beside)) == 2  # Words stand beside their own marks.
