"""Fits a mixture of components whose factors are Gaussian or Laplacian."""

from collections.abc import Callable

import numpy as np
from typing_extensions import Self

from tbnets.checks import short_repr
from tbnets.errors import InputError, import_extra

SCALE_FLOOR = 0.05
"""Minimum scale, as a multiple of the dimension's standard deviation."""
_ROWS = 512  # Number of points that fit into the CPU's cache.


class HybridMixture:
    """A hybrid Gaussian-Laplacian mixture, fitted by EM in float64.

    Each component is a product of one factor per dimension. Each factor is a
    Gaussian or a Laplacian, whichever fits the component's points better::

        p(x) = sum_k w_k prod_d f_kd(x_d)
        f_kd = exp(-z^2 / 2) / (sqrt(2 pi) s_kd)    or    exp(-|z|) / (2 s_kd)
        z    = (x_d - m_kd) / s_kd

    Args:
        num_components: K, the number of components.
        max_iterations: maximum number of EM iterations.
        tolerance: EM ends when an iteration increases the mean log-likelihood
            by less than this value.
        seed: integer seed of k-means.

    Attributes:
        weights_: float64 `[K]`, summing to 1.
        locations_: float64 `[K, dim]`, means of Gaussians and medians of
            Laplacians.
        scales_: float64 `[K, dim]`, standard deviations of Gaussians and mean
            absolute deviations of Laplacians.
        laplacian_: bool `[K, dim]`.
        log_likelihoods_: mean log-likelihood per iteration.

    Example:
        mixture = tbnets.HybridMixture(num_components=2).fit(vectors.vectors)
        mixture.posteriors(vectors.vectors).shape  # (num_words, 2)

    Source: Klein et al. 2015, "Fisher vectors derived from hybrid
    Gaussian-Laplacian mixture models". Departures: scales have a minimum.
    k-means initialises the mixture.
    """

    weights_: np.ndarray
    locations_: np.ndarray
    scales_: np.ndarray
    laplacian_: np.ndarray
    log_likelihoods_: list[float]

    def __init__(
        self,
        num_components: int = 30,
        max_iterations: int = 100,
        tolerance: float = 1e-3,
        seed: int = 0,
    ) -> None:
        self.num_components = num_components
        self.max_iterations = max_iterations
        self.tolerance = tolerance
        self.seed = seed

    __repr__ = short_repr("num_components", "weights_", "locations_")

    def fit(
        self,
        points: np.ndarray,
        progress: Callable[[float], object] = lambda likelihood: None,
    ) -> Self:
        """Fits the mixture and returns it.

        Args:
            points: finite numbers `[n, dim]`, where n >= `num_components`.
            progress: called with the mean log-likelihood in each iteration.

        Raises:
            ValueError: If there are too few points, or a number is not finite.
        """
        points = np.asarray(points, np.float64)
        too_few = points.ndim != 2 or len(points) < self.num_components
        if too_few or not np.isfinite(points).all():
            raise InputError(
                "points",
                "be finite and have at least one row per component",
                f"shape {points.shape}, num_components={self.num_components}",
                "Pass more points or lower `num_components`.",
            )
        order = np.argsort(points, axis=0, kind="stable")
        owners = self._begin(points)
        self._maximise(points, order, owners)
        self.log_likelihoods_ = []
        for _ in range(self.max_iterations):
            owners, likelihood = self._expect(points)
            self.log_likelihoods_.append(likelihood)
            progress(likelihood)
            if np.any(np.diff(self.log_likelihoods_[-2:]) < self.tolerance):
                break
            self._maximise(points, order, owners)
        return self

    def _begin(self, points):
        KMeans = import_extra("text", "sklearn.cluster").KMeans
        count, deviation = self.num_components, points.std(axis=0)
        is_constant = deviation <= 1e-12 * np.abs(points).max(axis=0)
        self._floor = np.where(is_constant, 1.0, SCALE_FLOOR * deviation)
        deviation = np.where(is_constant, 1.0, deviation)
        self.weights_ = np.full(count, 1 / count)
        self.locations_ = np.tile(points.mean(axis=0), (count, 1))
        self.scales_ = np.tile(deviation, (count, 1))
        self.laplacian_ = np.zeros(self.scales_.shape, bool)
        means = KMeans(count, n_init=1, random_state=self.seed).fit(points)
        return np.eye(count)[means.labels_]

    def _expect(self, points):
        """Returns the posteriors `[n, K]` and the mean log-likelihood."""
        densities = self.log_densities(points)
        highest = densities.max(axis=1, keepdims=True)
        totals = np.exp(densities - highest).sum(axis=1, keepdims=True)
        totals = highest + np.log(totals)
        return np.exp(densities - totals), float(totals.mean())

    def _maximise(self, points, order, owners):
        masses = owners.sum(axis=0)
        alive = masses > 1e-9
        self.weights_ = np.where(alive, masses, 1e-9) / masses.sum()
        self.weights_ /= self.weights_.sum()
        masses = np.where(alive, masses, 1.0)
        mean = owners.T @ points / masses[:, None]
        squares = owners.T @ np.square(points) / masses[:, None]
        variance = np.maximum(squares - np.square(mean), 0)
        median, spread = weighted_medians(points, order, owners, masses)
        deviation = np.maximum(np.sqrt(variance), self._floor)
        scale = np.maximum(spread, self._floor)
        # The mean log-density of a component's points in each family.
        gaussian = -np.log(np.sqrt(2 * np.pi) * deviation)
        gaussian -= variance / (2 * np.square(deviation))
        laplacian = -np.log(2 * scale) - spread / scale
        chosen, rows = laplacian > gaussian, alive[:, None]
        location = np.where(chosen, median, mean)
        scale = np.where(chosen, scale, deviation)
        self.laplacian_ = np.where(rows, chosen, self.laplacian_)
        self.locations_ = np.where(rows, location, self.locations_)
        self.scales_ = np.where(rows, scale, self.scales_)

    def log_densities(self, points: np.ndarray) -> np.ndarray:
        """Returns `log(w_k prod_d f_kd(x_d))`, float64 `[n, K]`."""
        points = np.asarray(points, np.float64)
        heights = np.where(self.laplacian_, 2.0, np.sqrt(2 * np.pi))
        heights = -np.log(heights * self.scales_).sum(axis=1)
        result = np.empty((len(points), self.num_components))
        for start in range(0, len(points), _ROWS):
            block = points[start : start + _ROWS]
            for k in range(self.num_components):
                z = np.abs(block - self.locations_[k]) / self.scales_[k]
                z = np.where(self.laplacian_[k], z, z * z / 2)
                result[start : start + len(block), k] = -z.sum(axis=1)
        return result + heights + np.log(self.weights_)

    def posteriors(self, points: np.ndarray) -> np.ndarray:
        """Returns each component's posterior probability, float64 `[n, K]`."""
        return self._expect(points)[0]


def weighted_medians(points, order, weights, masses):
    """Returns weighted medians and the mean absolute deviations from them.

    `points` is float64 `[n, dim]`, and `order` contains the row indices that
    sort each column. `weights` is float64 `[n, K]`, >= 0. `masses` contains the
    sum of each component's weights, > 0. Both results are float64 `[K, dim]`.
    """
    shape = (weights.shape[1], points.shape[1])
    medians, deviations = np.empty(shape), np.empty(shape)
    components = np.arange(shape[0])
    for d in range(shape[1]):
        column = points[order[:, d], d]
        below = weights[order[:, d]]
        moments = np.cumsum(below * column[:, None], axis=0)
        below = np.cumsum(below, axis=0)
        row = (below < below[-1] / 2).sum(axis=0)
        median = column[row]
        # The sum of w (x - m) above the median m minus the sum below it.
        above = moments[-1] - moments[row, components] * 2
        counts = below[-1] - below[row, components] * 2
        medians[:, d] = median
        deviations[:, d] = np.maximum(above - median * counts, 0) / masses
    return medians, deviations
