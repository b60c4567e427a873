"""Tests of maps: what lies near what, and what is drawn where."""

import numpy as np
import pytest

from tbnets.visualization import plots


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
