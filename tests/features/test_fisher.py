"""Fisher vectors, mean vectors and their mixture against loops."""

import numpy as np
import pytest

from tbnets.features import fisher
from tbnets.features.fisher import (
    SCALE_FLOOR,
    FisherFeatures,
    HybridMixture,
    gradient_terms,
    independent_components,
)
from tbnets.text.word_vectors import WordVectors
from tests import reference

WORDS = tuple(f"w{i}" for i in range(60))
generator = np.random.default_rng(0)
VECTORS = WordVectors(
    WORDS, generator.laplace(size=(60, 6)).astype("float32"), "vectors.bin"
)


def sentences(number, seed=0, words=WORDS[:50]):
    generator = np.random.default_rng(seed)
    return [
        " ".join(generator.choice(words, generator.integers(1, 9)))
        for _ in range(number)
    ]


@pytest.fixture(scope="module")
def encoder():
    return FisherFeatures(4).fit(sentences(40), VECTORS)


def loop(encoder, captions):
    """Fisher vectors of captions, a sentence at a time."""
    places = {word: row for row, word in enumerate(encoder.words_)}
    return [
        reference.fisher_vector(
            encoder.vectors_[
                [places[word] for word in caption.split() if word in places]
            ].astype(np.float64),
            encoder.weights_,
            encoder.locations_,
            encoder.scales_,
            encoder.laplacian_,
        )
        for caption in captions
    ]


CAPTIONS = [*sentences(20, 1, WORDS), "w1 w1 w1", "w1 zebra", "", "zebra"]


@pytest.mark.parametrize("table_bytes", [0, 2**30])
def test_fisher_vectors_equal_the_loop(encoder, monkeypatch, table_bytes):
    monkeypatch.setattr(fisher, "TABLE_BYTES", table_bytes)
    vars(encoder).pop("_tables", None)
    found = encoder.transform(CAPTIONS)
    assert found.shape == (24, 6 * 4 * 2) and found.dtype == np.float32
    expected = np.array(loop(encoder, CAPTIONS))
    # Sums that cancel leave 1e-10 or so, of which the root makes 1e-5: where
    # numbers are small, what stands before the root is compared.
    near = np.abs(found - expected) < 1e-5
    assert near[np.abs(expected) > 1e-3].all() and near.mean() > 0.99
    np.testing.assert_allclose(
        found * np.abs(found), expected * np.abs(expected), atol=1e-7
    )
    assert ("_tables" in vars(encoder)) == bool(table_bytes)


def test_unseen_words_count_and_fitting_twice_is_deterministic(encoder):
    assert encoder.transform([]).shape == (0, encoder.dim)
    [row] = encoder.transform(["w55"])
    np.testing.assert_allclose(np.linalg.norm(row), 1, rtol=1e-5)
    again = FisherFeatures(4).fit(sentences(40), VECTORS)
    assert again.digest() == encoder.digest()


def test_pca_keeps_directions_with_variance(encoder):
    captions = sentences(40)
    full = encoder.transform(captions)
    reduced = FisherFeatures(4, pca_dim=30).fit(captions, VECTORS)
    rows = reduced.transform(captions)
    assert reduced.dim == 30 and reduced.full_dim == 48
    centred = full - full.mean(axis=0)
    kept = np.square(rows).sum() / np.square(centred).sum()
    # 40 captions vary in 39 directions at most; 30 hold nearly all of it.
    assert 0.95 < kept <= 1.0001
    assert not FisherFeatures(4, 48).fit(captions, VECTORS).pca_axes_.size
    # It has no more axes than captions.
    encoder = FisherFeatures(4, pca_dim=40, pca_captions=9)
    assert encoder.fit(captions, VECTORS).dim == 8


def test_ica_recovers_mixed_white_components():
    sources = np.random.default_rng(1).laplace(size=(4000, 3))
    mixed = sources @ [[1, 2, 0], [0, 1, 1], [3, 0, 1]] + 5
    found = independent_components(mixed)(mixed)
    np.testing.assert_allclose(found.mean(axis=0), 0, atol=1e-9)
    np.testing.assert_allclose(found.T @ found / 4000, np.eye(3), atol=1e-3)
    matches = np.abs(np.corrcoef(found.T, sources.T)[:3, 3:])
    np.testing.assert_allclose(np.sort(matches.max(axis=0)), 1, atol=0.02)


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
    _, locations, scales, laplacian = (
        np.array(value)[owners] for value in TRUTH.values()
    )
    both = generator.laplace(size=(2, *scales.shape))
    both[1] = generator.normal(size=scales.shape)
    return locations + scales * np.where(laplacian, *both)


def parameters(mixture):
    return [getattr(mixture, f"{name}_") for name in TRUTH]


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
def test_em_never_lowers_the_likelihood(seed):
    generator = np.random.default_rng(seed)
    points = generator.standard_t(3, (150, 4))
    points[:40] = np.round(points[:40])  # Ties, and words on one point.
    points[40:50] = points[40]
    mixture = HybridMixture(6, 60, tolerance=-1.0, seed=seed).fit(points)
    course = mixture.log_likelihoods_
    assert len(course) == 60 and np.diff(course).min() >= -1e-10
    assert course[-1] > course[0]


def test_log_likelihood_equals_the_loop():
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


def test_a_component_on_one_point_keeps_its_width():
    points = np.concatenate([np.zeros((30, 2)), draw(300)[:, :2]])
    mixture = HybridMixture(8).fit(points)
    floor = SCALE_FLOOR * points.std(axis=0)
    assert (mixture.scales_ >= floor * (1 - 1e-12)).all()
    assert np.isfinite(log_likelihood(mixture, points)).all()
