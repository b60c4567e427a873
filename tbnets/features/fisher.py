"""Computes Fisher vectors of captions with a mixture model of word vectors."""

import concurrent.futures
import functools
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import keras
import numpy as np
from typing_extensions import Self

from tbnets.checks import per_cent, short_repr
from tbnets.errors import InputError, check_kind, import_extra
from tbnets.features.caption_encoder import CaptionEncoder, word_counts
from tbnets.layers.caption_vectors import FisherVectors
from tbnets.text.vocabulary import count_words
from tbnets.text.word_vectors import WordVectors

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


LEAST_WEIGHT = 1e-6


def gradient_terms(points, location, scale, laplacian):
    """Computes the Fisher gradients of one component at each point.

    In each dimension, the gradients are divided by the square root of the
    Fisher information per point::

        Gaussian:   z,        (z^2 - 1) / sqrt(2)
        Laplacian:  sign(z),  |z| - 1             with z = (x - m) / s

    At a Laplacian's median, the sign is 0 here but +1 in Klein's code. The
    points are float32 `[n, dim]`, and the other arguments are `[dim]`. Returns
    float32 `[n, 2 * dim]`: the gradients with respect to the location, then to
    the scale.

    Source: Klein et al. 2015, Sec. 3.3; Perronnin and Dance 2007.
    """
    n, dim = points.shape
    terms = np.empty((n, 2 * dim), np.float32)
    first, second = terms[:, :dim], terms[:, dim:]
    np.subtract(points, location, out=first)
    first /= scale
    gaussian = ~laplacian
    half = np.float32(np.sqrt(0.5))
    np.abs(first, out=second)
    second -= 1
    second[:, gaussian] = (np.square(first[:, gaussian]) - 1) * half
    first[:, laplacian] = np.sign(first[:, laplacian])
    return terms


TABLE_BYTES = 2**30
"""Maximum size in bytes of a cache of all words' gradients."""
_RANK_TOLERANCE = 1e-6
_MIXTURE_ARRAYS = ("weights_", "locations_", "scales_", "laplacian_")


class FisherFeatures(CaptionEncoder):
    """Computes Fisher vectors of captions with a hybrid mixture model.

    ::

        words -> vectors -> ICA -> hybrid mixture -> gradients of the caption's
        log-likelihood -> signed square root -> L2 -> PCA

    For each component, a vector contains the gradients with respect to the
    locations, followed by the gradients with respect to the scales. A caption
    without known words maps to zeros.

    Args:
        num_components: number of mixture components.
        pca_dim: maximum number of dimensions after PCA; 0 for no PCA. The
            papers reduce 18,000 to 6000.
        pca_captions: maximum number of training captions for PCA, drawn at
            random. Each needs 4 bytes of memory per dimension before PCA.
        seed: integer seed of ICA, the mixture and PCA.

    Attributes:
        vectors_: float32 `[len(words_), ica_dim]`, independent components.
        weights_: float32 `[K]`, weights of the mixture.
        locations_: float32 `[K, ica_dim]`.
        scales_: float32 `[K, ica_dim]`.
        laplacian_: bool `[K, ica_dim]`.
        pca_mean_: float32 `[2 K ica_dim]`, or `[0]` without PCA.
        pca_axes_: float32 `[pca_dim, 2 K ica_dim]`, or `[0, 0]` without PCA.

    Example:
        vectors = tbnets.read_word_vectors("glove.txt", words_of_all_splits)
        encoder = tbnets.FisherFeatures(30).fit(captions, vectors)
        encoder.transform(["two dogs run"]).shape  # (1, 2 * 30 * vectors.dim)

    Source: Klein et al. 2015; Wang et al. 2016, Sec. 3.1. Departures: ICA and
    the mixture are fitted on each distinct training word once.
    """

    kind = "fisher"
    parameters = ("num_components", "pca_dim", "pca_captions", "seed")

    weights_: np.ndarray
    locations_: np.ndarray
    scales_: np.ndarray
    laplacian_: np.ndarray

    def __init__(
        self,
        num_components: int = 30,
        pca_dim: int = 6000,
        pca_captions: int = 20_000,
        seed: int = 0,
    ) -> None:
        super().__init__()
        self.num_components = num_components
        self.pca_dim = pca_dim
        self.pca_captions = pca_captions
        self.seed = seed
        self.vectors_ = np.zeros((0, 0), np.float32)
        self._forget()

    def _forget(self):
        self.pca_mean_ = np.zeros(0, np.float32)
        self.pca_axes_ = np.zeros((0, 0), np.float32)
        for name in ("shares_", "_tables"):
            vars(self).pop(name, None)

    @property
    def full_dim(self) -> int:
        """The dimension of the vectors before PCA."""
        return 2 * self.num_components * self.vectors_.shape[1]

    @property
    def dim(self) -> int:
        """The dimension of the vectors."""
        return len(self.pca_axes_) or self.full_dim

    @functools.cached_property
    def shares_(self) -> np.ndarray:
        """The words' posteriors / sqrt(mixture weights), `[words, K]`."""
        mixture = HybridMixture(self.num_components)
        for name in _MIXTURE_ARRAYS:
            setattr(mixture, name, getattr(self, name).astype(np.float64))
        owners = mixture.posteriors(self.vectors_).astype(np.float32)
        weights = np.maximum(self.weights_, LEAST_WEIGHT)
        return owners / np.sqrt(weights, dtype=np.float32)

    @functools.cached_property
    def _tables(self):
        return self._word_terms(np.arange(len(self.words_)))

    def fit(
        self,
        captions: Sequence[str],
        vectors: WordVectors | None = None,
        progress: Callable[[str], object] = lambda line: None,
    ) -> Self:
        """Fits ICA, the mixture and PCA.

        Args:
            captions: strings from the training split only.
            vectors: `WordVectors` that cover at least `num_components` training
                words. `transform` uses all of the vectors.
            progress: function called with a line of text at each step.

        Raises:
            ValueError: If there are fewer words than components.
        """
        check_kind("vectors", vectors, WordVectors)
        self._forget()
        counts, _ = count_words(captions)
        training = np.array([word in counts for word in vectors.words])
        number = np.count_nonzero(training)
        if number < self.num_components:
            expected = f"be at most {number}, the number of words with a vector"
            raise InputError("num_components", expected, self.num_components)
        self.words_ = vectors.words
        progress(f"ICA of {number} words")
        unmix = independent_components(vectors.vectors[training], self.seed)
        points = unmix(vectors.vectors)
        mixture = HybridMixture(self.num_components, seed=self.seed)
        mixture.fit(
            points[training],
            lambda mean: progress(f"mixture, log-likelihood {mean:.3f}"),
        )
        self.vectors_ = points.astype(np.float32)
        for name in _MIXTURE_ARRAYS[:3]:
            setattr(self, name, getattr(mixture, name).astype(np.float32))
        self.laplacian_ = mixture.laplacian_
        if self.pca_dim and self.full_dim > self.pca_dim:
            progress(f"PCA of {self.full_dim} dimensions to {self.pca_dim}")
            self._fit_pca(captions)
        self.notes_ |= {
            "iterations": len(mixture.log_likelihoods_),
            "laplacian_share": float(self.laplacian_.mean()),
        }
        return self

    def _fit_pca(self, captions):
        PCA = import_extra("text", "sklearn.decomposition").PCA
        chosen = np.random.default_rng(self.seed).permutation(len(captions))
        chosen = np.sort(chosen[: self.pca_captions])
        rows = np.empty((len(chosen), self.full_dim), np.float32)
        for part, vectors in self.chunks([captions[i] for i in chosen]):
            rows[part] = vectors
        size = min(self.pca_dim, len(rows) - 1)
        pca = PCA(size, copy=False, random_state=self.seed).fit(rows)
        self.pca_mean_ = pca.mean_.astype(np.float32)
        self.pca_axes_ = pca.components_.astype(np.float32)

    def describe(self) -> str:
        """Returns the sizes and the percentage of Laplacian factors as text."""
        laplacian = per_cent(self.laplacian_.mean(), 0)
        line = (
            f"Fisher vectors of {len(self.words_)} words, "
            f"{self.vectors_.shape[1]} x {self.num_components} x 2 = "
            f"{self.full_dim}-d, {laplacian} % Laplacian"
        )
        return line + f", PCA to {self.dim}" * (self.dim != self.full_dim)

    def transform(self, captions: Sequence[str]) -> np.ndarray:
        """Returns Fisher vectors, float32 `[n, dim]`."""
        rows = self.encode_counts(word_counts(self.vocabulary, captions))
        if not len(self.pca_axes_):
            return rows
        has_words = rows.any(axis=1)
        rows -= self.pca_mean_
        rows[~has_words] = 0
        return rows @ self.pca_axes_.T

    def encode_counts(self, counts: Any) -> np.ndarray:
        """Returns Fisher vectors before PCA, float32 `[n, full_dim]`.

        `counts`, `[n, len(words_)]`, contains the number of times that each
        word occurs in each caption.
        """
        n, dim = counts.shape[0], 2 * self.vectors_.shape[1]
        result = np.empty((n, self.num_components, dim), np.float32)
        if len(self.words_) * self.full_dim * 4 <= TABLE_BYTES:
            tables = self._tables
        else:
            used = np.unique(counts.indices)
            counts, tables = counts[:, used], self._word_terms(used)

        def one(k):
            sums = counts @ tables[k]
            sizes = np.abs(sums)
            total = sizes.sum(axis=1)
            np.sqrt(sizes, out=sizes)
            np.copysign(sizes, sums, out=result[:, k])
            return total

        with concurrent.futures.ThreadPoolExecutor() as pool:
            lengths = np.sqrt(sum(pool.map(one, range(self.num_components))))
        # The squared norm after the square root is the sum of sizes before it.
        result *= (1 / np.where(lengths > 0, lengths, 1))[:, None, None]
        return result.reshape(n, self.full_dim)

    def _word_terms(self, rows):
        """Returns each word's Fisher vector, float32 `[K, words, 2 * dim]`."""
        shares, points = self.shares_[rows], self.vectors_[rows]
        shape = (self.num_components, len(rows), 2 * points.shape[1])
        terms = np.empty(shape, np.float32)
        components = zip(self.locations_, self.scales_, self.laplacian_)
        for k, component in enumerate(components):
            terms[k] = gradient_terms(points, *component)
            terms[k] *= shares[:, k, None]
        return terms

    def layer(self) -> keras.layers.Layer:
        """Returns the `FisherVectors` layer of the encoder."""
        sizes = self.vectors_.shape[1], self.num_components, len(self.pca_axes_)
        return FisherVectors(self.vocabulary.size, *sizes).fitted(self)

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Returns the shapes of the fitted arrays."""
        components = (self.num_components, self.vectors_.shape[-1])
        axes = len(self.pca_axes_)
        return {
            "vectors_": (len(self.words_), components[1]),
            "weights_": components[:1],
            "locations_": components,
            "scales_": components,
            "laplacian_": components,
            "pca_mean_": (self.full_dim,) if axes else (0,),
            "pca_axes_": (axes, self.full_dim) if axes else (0, 0),
        }

    def check(self) -> None:
        """Raises an error if the parameters do not form a valid mixture."""
        positive = (self.weights_ > 0).all() and (self.scales_ > 0).all()
        if self.laplacian_.dtype != bool or not positive:
            raise InputError("it is no valid mixture")


def independent_components(vectors, seed=0):
    """Fits ICA on `vectors` `[n, dim]` and returns a function that applies it.

    The function maps `[m, dim]` to float64 `[m, ica_dim]`. The components of
    `vectors` have mean 0 and variance 1. Directions without variance are left
    out.
    """
    FastICA = import_extra("text", "sklearn.decomposition").FastICA
    vectors = np.asarray(vectors, np.float64)
    mean = vectors.mean(axis=0)
    centred = vectors - mean
    values, axes = np.linalg.eigh(centred.T @ centred / len(vectors))
    is_kept = values > _RANK_TOLERANCE**2 * max(np.max(mean**2), values[-1], 0)
    whiten = (axes[:, is_kept] / np.sqrt(values[is_kept]))[:, ::-1]
    ica = FastICA(whiten=False, random_state=seed, max_iter=500, tol=1e-3)
    with warnings.catch_warnings():
        # The rotation is valid even if ICA has not converged.
        warnings.filterwarnings("ignore", message="FastICA did not converge")
        ica.fit(centred @ whiten)
    unmix = whiten @ ica.components_.T
    return lambda rows: (np.asarray(rows, np.float64) - mean) @ unmix
