"""The mixture against its definition, and what EM promises."""

import numpy as np
import pytest

from tbnets.features.fisher import (
    SCALE_FLOOR,
    HybridMixture,
    gradient_terms,
    weighted_medians,
)
from tests import reference, refusals

TRUTH = {
    "weights": [0.6, 0.4],
    "locations": [[-6, 0, 3], [6, 1, -3]],
    "scales": [[1, 2, 0.5], [2, 1, 1.5]],
    "laplacian": [[False, True, False], [True, True, False]],
}


def log_likelihood(mixture, points):
    """`log p(x)` of each point."""
    return np.logaddexp.reduce(mixture.log_densities(points), axis=1)


def draw(number, seed=0):
    """Points of the mixture TRUTH."""
    generator = np.random.default_rng(seed)
    owners = generator.choice(2, number, p=TRUTH["weights"])
    truth = {key: np.array(value)[owners] for key, value in TRUTH.items()}
    shape = truth["locations"].shape
    noise = np.where(
        truth["laplacian"],
        generator.laplace(size=shape),
        generator.normal(size=shape),
    )
    return truth["locations"] + truth["scales"] * noise


def parameters(mixture):
    return (
        mixture.weights_,
        mixture.locations_,
        mixture.scales_,
        mixture.laplacian_,
    )


def make(**values):
    """A mixture of given parameters."""
    mixture = HybridMixture(len(values["weights"]))
    for name, value in values.items():
        setattr(mixture, f"{name}_", np.array(value))
    return mixture


def test_known_parameters_are_recovered():
    mixture = HybridMixture(2, tolerance=1e-9).fit(draw(20_000))
    order = np.argsort(mixture.locations_[:, 0])
    found = [each[order] for each in parameters(mixture)]
    np.testing.assert_allclose(found[0], TRUTH["weights"], atol=0.01)
    np.testing.assert_allclose(found[1], TRUTH["locations"], atol=0.08)
    np.testing.assert_allclose(found[2], TRUTH["scales"], rtol=0.05)
    np.testing.assert_array_equal(found[3], TRUTH["laplacian"])


@pytest.mark.parametrize("seed", range(4))
def test_the_likelihood_never_falls(seed):
    generator = np.random.default_rng(seed)
    points = generator.standard_t(3, (150, 4))
    points[:40] = np.round(points[:40])  # Ties, and words on one point.
    points[40:50] = points[40]
    mixture = HybridMixture(6, 60, tolerance=-1.0, seed=seed).fit(points)
    course = mixture.log_likelihoods_
    assert len(course) == 60 and np.diff(course).min() >= -1e-10
    assert course[-1] > course[0]


def test_log_likelihood_is_that_of_the_loop():
    mixture, points = make(**TRUTH), draw(20)
    expected = [
        reference.mixture_log_likelihood(point, *parameters(mixture))
        for point in points
    ]
    np.testing.assert_allclose(log_likelihood(mixture, points), expected)
    np.testing.assert_allclose(mixture.posteriors(points).sum(axis=1), 1)


@pytest.mark.parametrize("k", [0, 1])
def test_gradients_are_the_derivatives_of_the_log_likelihood(k):
    """d log p / d m and d log p / d s, over the root of the information.

    Fisher information of a point: w / s^2, but 2 w / s^2 for the scale of a
    Gaussian.
    """
    mixture, points = make(**TRUTH), draw(12, seed=3)
    owners = mixture.posteriors(points)[:, k]
    laplacian = mixture.laplacian_[k]
    terms = gradient_terms(
        points.astype(np.float32),
        mixture.locations_[k].astype(np.float32),
        mixture.scales_[k].astype(np.float32),
        laplacian,
    )
    found = terms * (owners / np.sqrt(mixture.weights_[k]))[:, None]
    step, expected = 1e-6, []
    for name in ("locations_", "scales_"):
        for d in range(3):
            sides = []
            for sign in (1, -1):
                moved = make(**TRUTH)
                values = getattr(moved, name).astype(np.float64)
                values[k, d] += sign * step
                setattr(moved, name, values)
                sides.append(log_likelihood(moved, points))
            slope = (sides[0] - sides[1]) / (2 * step)
            twice = name == "scales_" and not laplacian[d]
            information = mixture.weights_[k] * (2 if twice else 1)
            scale = mixture.scales_[k, d]
            expected.append(slope * scale / np.sqrt(information))
    np.testing.assert_allclose(found, np.transpose(expected), atol=2e-5)


def test_weighted_medians_by_hand():
    points = np.array([[1.0], [10.0], [2.0], [4.0]])
    weights = np.array([[1.0, 0.0], [1.0, 3.0], [1.0, 1.0], [1.0, 0.0]])
    order = np.argsort(points, axis=0)
    medians, deviations = weighted_medians(
        points, order, weights, weights.sum(axis=0)
    )
    # 1 2 | 4 10: half of the mass is reached at 2; |1-2| + |4-2| + |10-2| = 11.
    # 2 once, 10 three times: 10; |2 - 10| = 8 of mass 4.
    np.testing.assert_array_equal(medians, [[2], [10]])
    np.testing.assert_allclose(deviations, [[11 / 4], [8 / 4]])


def test_a_component_on_one_point_keeps_its_width():
    points = np.concatenate([np.zeros((30, 2)), draw(300)[:, :2]])
    mixture = HybridMixture(8).fit(points)
    floor = SCALE_FLOOR * points.std(axis=0)
    assert (mixture.scales_ >= floor * (1 - 1e-12)).all()
    assert np.isfinite(log_likelihood(mixture, points)).all()


@pytest.mark.filterwarnings("ignore:Number of distinct clusters")
@pytest.mark.parametrize("value", [0.0, 1e6])
def test_dimensions_without_variance_are_finite(value):
    points = draw(50)
    points[:, 1] = value
    for given in (points, np.full((5, 3), value)):
        mixture = HybridMixture(2).fit(given)
        for array in parameters(mixture):
            assert np.isfinite(array).all()
        assert np.isfinite(mixture.posteriors(given)).all()


def test_as_many_points_as_components():
    mixture = HybridMixture(5).fit(draw(5))
    assert np.isfinite(log_likelihood(mixture, draw(9, seed=1))).all()


def test_bad_input():
    for points in (draw(4), [[1.0], [np.nan]]):
        with refusals.of("points"):
            HybridMixture(5).fit(points)
    with refusals.of("num_components"):
        HybridMixture(0)
