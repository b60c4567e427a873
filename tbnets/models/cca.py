"""Canonical correlation analysis: two linear branches in closed form.

The memory use does not depend on the number of rows.
"""

from collections.abc import Mapping
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tbnets.checks import Batch, Tensors, checked_dict, checked_number
from tbnets.errors import InputError
from tbnets.losses import replicas
from tbnets.losses.positives import positive_masks
from tbnets.losses.replicas import gather, num_replicas
from tbnets.models.embedding_network import EmbeddingNetwork
from tbnets.models.two_branch import IDS, INPUTS

NO_CORRELATION = 1e-6
# Relative accuracy of variances that are sums of float32 products.
ROUNDING = 1e-6


def cholesky_factor(covariance, regularization, name):
    """Regularises a covariance matrix, and returns its Cholesky factor.

    Args:
        covariance: float64 `[n, n]`; overwritten to save memory.
        regularization: fraction of the mean variance that is added to each
            variance.
        name: "image" or "text", for error messages.
    """
    mean_variance = np.trace(covariance) / len(covariance)
    if not 0 < mean_variance < np.inf:
        raise InputError(
            f"The {name} features must be finite and differ between rows. "
            f"Received: a mean variance of {mean_variance}."
        )
    diagonal = np.einsum("ii->i", covariance)
    diagonal += regularization * mean_variance
    try:
        factor = np.linalg.cholesky(covariance)
        # Fraction of each variance that earlier dimensions do not explain.
        shares = np.einsum("ii->i", factor) ** 2 / diagonal
    except np.linalg.LinAlgError:
        shares = np.zeros(1)
    if shares.min() <= ROUNDING:
        raise InputError(
            "regularization",
            "be larger, because the covariance is singular",
            f"{regularization:g} for {len(covariance)} {name} features",
        )
    return factor


def solve_cca(left, right, between, dim):
    """Computes the directions in which two views correlate most.

    The correlations are the singular values of `left^-1 between right^-T`.

    Args:
        left: float64 `[n, n]`, Cholesky factor of the image covariance.
        right: float64 `[m, m]`, Cholesky factor of the text covariance.
        between: float64 `[n, m]`, covariance of images with texts.
        dim: number of directions, at most `min(n, m)`.

    Returns:
        (image_directions, text_directions, correlations): float64 arrays of
        shape `[n, dim]`, `[m, dim]` and `[dim]`, by descending correlation.

    Source: Hotelling 1936; Gong et al. 2014, Sec. 3.3. Departure: here the
    regularization is relative to the mean variance; Gong et al. add a constant.
    """
    # Solving first with the texts' factor, the larger one, saves memory.
    whitened = np.linalg.solve(left, np.linalg.solve(right, between.T).T)
    transposed = len(left) > len(right)
    inner = whitened.T if transposed else whitened
    squares, vectors = np.linalg.eigh(inner @ inner.T)
    order = np.argsort(squares, kind="stable")[::-1][:dim]
    correlations = np.sqrt(np.clip(squares[order], 0, 1))
    is_correlated = correlations > NO_CORRELATION
    vectors = vectors[:, order] * is_correlated
    other_vectors = inner.T @ vectors / np.where(is_correlated, correlations, 1)
    if transposed:
        vectors, other_vectors = other_vectors, vectors
    return (
        np.linalg.solve(left.T, vectors),
        np.linalg.solve(right.T, other_vectors),
        correlations * is_correlated,
    )


def with_background(mean, images, between, background, share):
    """Adds background regions, which have no text, to pair statistics.

    The text of a pair becomes `[text - mean text; 1]`. The text of a background
    region is `[0; 0]`.

    Args:
        mean: float64 `[n]`, mean of the pairs' images.
        images: float64 `[n, n]`, covariance of the images; overwritten.
        between: float64 `[n, m]`, covariance of images and texts.
        background: `PairSums` with the background regions as images.
        share: fraction of the rows that are pairs.

    Returns:
        (mean, images, between) over all rows; `between` is `[n, m + 1]`.
    """
    background_mean = background.means()[0]
    gap = mean - background_mean
    spread = share * (1 - share)
    between = np.column_stack([share * between, spread * gap])
    images *= share
    images += (1 - share) * background.covariance(0, 0)
    images += np.outer(spread * gap, gap)
    return share * mean + (1 - share) * background_mean, images, between


def with_indicator(factor, share):
    """Adds a column for the pair indicator to the texts' Cholesky factor.

    The indicator is 1 for a matching pair and 0 for a background region. It is
    uncorrelated with the words and not regularised. `share` is its mean.
    """
    factor = np.pad(np.sqrt(share) * factor, (0, 1))
    factor[-1, -1] = np.sqrt(share * (1 - share))
    return factor


class PairSums:
    """Accumulates means and covariances over matching pairs."""

    # Features are shifted by the first batch's mean, because a large mean would
    # make the variance inaccurate.
    #
    # A plain object, so that Keras does not count its variables as weights.
    def __init__(self, num_images, num_texts):
        sizes = num_images, num_texts
        self.count = _zeros(is_known=True)
        self.shifts = [_zeros(size, is_known=True) for size in sizes]
        self.sums = [_zeros(size) for size in sizes]
        kinds = (0, 0), (1, 1), (0, 1)
        self.products = {(i, j): _zeros(sizes[i], sizes[j]) for i, j in kinds}

    def add(self, images, texts, pairs):
        """Adds images `[n, image_dim]` and texts `[m, text_dim]`, float32.

        `pairs` is float32 `[n, m]`: 1 if the image and the text match, else 0.
        """
        rows, sides, is_first = [], (images, texts), self.count == 0
        uses = tf.reduce_sum(pairs, 1), tf.reduce_sum(pairs, 0)
        totals = [tf.linalg.matvec(*side, True) for side in zip(sides, uses)]
        *totals, count = replicas.summed([*totals, tf.reduce_sum(pairs)])
        for i, features in enumerate(sides):
            mean = totals[i] / tf.maximum(count, 1)
            shift = tf.where(is_first, _wide(mean), self.shifts[i])
            self.shifts[i].assign(shift)
            rows.append(features - tf.cast(shift, tf.float32))
            used = rows[i] * uses[i][:, None]
            self.sums[i].assign_add(_wide(tf.reduce_sum(used, 0)))
            squares = tf.matmul(rows[i], used, transpose_a=True)
            self.products[i, i].assign_add(_wide(squares))
        texts_of_images = tf.matmul(pairs, rows[1])
        between = tf.matmul(rows[0], texts_of_images, transpose_a=True)
        self.products[0, 1].assign_add(_wide(between))
        self.count.assign_add(_wide(count))

    def means(self):
        """Returns the means of images and of texts over the pairs, float64."""
        count = _read(self.count)
        sides = zip(self.shifts, self.sums)
        return [_read(shift) + _read(total) / count for shift, total in sides]

    def covariance(self, *sides):
        """Returns the covariance of two sides; 0 is images, 1 is texts.

        Each covariance can be read only once, because reading deletes its sum.
        """
        count = _read(self.count)
        covariance = _read(self.products.pop(sides))
        covariance /= count
        left, right = [_read(self.sums[side]) / count for side in sides]
        covariance -= np.outer(left, right)
        return covariance


def _zeros(*shape, is_known=False):
    """Creates a variable that is summed over replicas unless `is_known`."""
    kinds = tf.VariableAggregation
    return tf.Variable(
        tf.zeros(shape, tf.float64),
        trainable=False,
        synchronization=tf.VariableSynchronization.ON_READ,
        aggregation=kinds.ONLY_FIRST_REPLICA if is_known else kinds.SUM,
    )


def _read(variable):
    return tf.convert_to_tensor(variable).numpy()


def _wide(values):
    return tf.cast(values, tf.float64)


class _Solving(keras.callbacks.Callback):
    def on_epoch_end(self, epoch, logs=None):
        if epoch + 1 == self.params["epochs"]:
            loss = self.model.solve()
            if logs is not None:
                logs["loss"] = loss


@keras.saving.register_keras_serializable(package="tbnets")
class CCA(EmbeddingNetwork):
    """Linear branches fitted with regularised canonical correlation analysis.

    ::

        images -> [image_encoder ->] (x - mean) W_x diag(s) -> unit vectors
        texts  -> [text_encoder  ->] (y - mean) W_y diag(s) -> unit vectors

    `W_x` and `W_y` contain the directions in which matching images and texts
    correlate most, and `s = (1 + correlation) ** power` contains their weights.
    Images and texts with equal ids match. An image counts once for each
    matching text in the batch.

    In phrase localization, most regions have no phrase. If `background` is
    above 0, the batch's candidate regions (`data.candidate_mining`) are
    added as rows without a text. An extra text dimension distinguishes these
    rows from pairs, and becomes the bias of the text branch.

    Args:
        image_branch: `CanonicalProjection` of the images.
        text_branch: `CanonicalProjection` of the texts, of equal output size.
        image_encoder: layer that turns images into features, or None. It must
            not have trainable weights.
        text_encoder: as `image_encoder`, for texts.
        regularization: fraction of the mean variance of a view that is added to
            each of its variances.
        power: exponent of the weights (Gong et al. 2014: 4). With 0, all
            weights are 1.
        background: total weight of the candidates, relative to the pairs; 0
            omits the candidates. If above 0, `text_branch` must have a bias.

    Attributes:
        correlations: float64 `[dim]`, one per direction; None before `fit`.

    Example:
        network = tbnets.CCA(
            tbnets.CanonicalProjection(32), tbnets.CanonicalProjection(32))
        network.compile()
        network.fit({**pairs, "captions": text_features})

    Source: Gong et al. 2014, Sec. 3.3 and 4; the CCA rows of Wang et al. 2016,
    Table 1. Departures: `background`.
    """

    loss_kind = type(None)
    correlations: np.ndarray | None = None
    pair_sums = background_sums = None

    def __init__(  # noqa: PLR0913  (numbers by name)
        self,
        image_branch: keras.layers.Layer,
        text_branch: keras.layers.Layer,
        image_encoder: keras.layers.Layer | None = None,
        text_encoder: keras.layers.Layer | None = None,
        regularization: float = 0.5,
        power: float = 4.0,
        background: float = 0.0,
        **kwargs: Any,
    ) -> None:
        sides = image_branch, text_branch, image_encoder, text_encoder
        super().__init__(*sides, **kwargs)
        checked_number("regularization", regularization, 0)
        checked_number("power", power, 0)
        checked_number("background", background, 0)
        if background and not self.text_branch.use_bias:
            raise InputError(
                "text_branch",
                "have use_bias=True if `background` is above 0",
                f"background={background}",
            )
        self.regularization, self.power = regularization, power
        self.background = background

    def compile(self, **kwargs: Any) -> None:
        """Prepares the model for `fit`, which does not use an optimizer."""
        kwargs = {"optimizer": "sgd", "loss": None, **kwargs}
        super().compile(**kwargs)

    @property
    def metrics(self) -> list[keras.metrics.Metric]:
        """An empty list, because `fit` has no values to average."""
        return []

    def build(self, input_shape: Mapping[str, Any]) -> None:
        """Builds the layers; raises ValueError for an unsupported layer."""
        super().build(input_shape)
        for side in ("image", "text"):
            encoder = getattr(self, f"{side}_encoder")
            if encoder is not None and encoder.trainable_weights:
                raise InputError(
                    f"{side}_encoder",
                    "have no trainable weights, because CCA has no gradient",
                    type(encoder).__name__,
                )
        sizes = [branch.mean.shape[0] for branch in self._branches]
        if self.embedding_dim > min(sizes):
            raise InputError(
                "output_dim",
                f"be at most {min(sizes)}, the number of features of a side",
                self.embedding_dim,
            )

    @property
    def _branches(self):
        return self.image_branch, self.text_branch

    def fit(self, *args: Any, **kwargs: Any) -> keras.callbacks.History:
        """Sums covariances over the batches, then computes the projections.

        The arguments are as in `keras.Model.fit`; one epoch is enough. The
        `loss` in the history is 1 minus the mean correlation.

        Raises:
            ValueError: If there are fewer than two pairs, or a covariance is
                singular.
        """
        self.pair_sums, self.train_function = None, None
        if self.built:
            with self.distribute_strategy.scope():
                self._start({})
        history = super().fit(*args, **kwargs)
        if self.pair_sums is not None or self.correlations is None:
            self.solve()  # A callback stopped training before its last epoch.
        loss = float(1 - self.correlations.mean())
        history.history["loss"] = [loss] * len(history.history["loss"])
        return history

    def own_callbacks(self) -> list[keras.callbacks.Callback]:
        """Returns callbacks that run before all others in `fit`."""
        return [*super().own_callbacks(), _Solving()]

    def train_step(self, batch: Batch) -> Tensors:
        """Adds a batch to the covariances."""
        batch = checked_dict("batch", batch, INPUTS + IDS)
        if self.pair_sums is None:
            with tf.init_scope():
                self._start({name: batch[name].shape for name in INPUTS})
        texts = _features(self.text_encoder, batch["captions"])
        image_ids, text_ids = (batch[name] for name in IDS)
        # Each replica adds the pairs of its own images.
        texts, text_ids = gather(texts, text_ids)
        pairs = positive_masks(image_ids, text_ids).image_to_text
        if num_replicas() > 1:
            is_used = tf.reduce_any(pairs, axis=0)
            texts = tf.boolean_mask(texts, is_used)
            pairs = tf.boolean_mask(pairs, is_used, axis=1)
        images = _features(self.image_encoder, batch["images"])
        self.pair_sums.add(images, texts, tf.cast(pairs, tf.float32))
        if self.background and "candidates" in batch:
            # Each candidate forms a pair with a text of 0 features.
            rows = _features(self.image_encoder, batch["candidates"])
            ones = tf.ones([tf.shape(rows)[0], 1])
            self.background_sums.add(rows, tf.zeros([1, 0]), ones)
        return {"loss": tf.constant(1.0)}

    def _start(self, shapes):
        if not self.built:
            self.build(shapes)
        sizes = [branch.mean.shape[0] for branch in self._branches]
        self.pair_sums = PairSums(*sizes)
        if self.background:
            self.background_sums = PairSums(sizes[0], 0)

    def solve(self) -> float:
        """Sets the branches' weights; returns 1 minus the mean correlation."""
        sums, self.pair_sums, self.train_function = self.pair_sums, None, None
        background_sums, self.background_sums = self.background_sums, None
        count = int(sums.count.numpy()) if sums else 0
        if count < 2:
            raise InputError("batches", "have two matching pairs", count)
        if background_sums and not background_sums.count.numpy():
            reason = "if `background` is above 0"
            raise InputError("batches", f"have candidates {reason}", "none")
        means, images = sums.means(), sums.covariance(0, 0)
        between, share = sums.covariance(0, 1), 1 / (1 + self.background)
        if background_sums:
            means[0], images, between = with_background(
                means[0], images, between, background_sums, share
            )
        left = cholesky_factor(images, self.regularization, "image")
        texts = sums.covariance(1, 1)
        right = cholesky_factor(texts, self.regularization, "text")
        if background_sums:
            right = with_indicator(right, share)
        *directions, self.correlations = solve_cca(
            left, right, between, self.embedding_dim
        )
        weights = (1 + self.correlations) ** self.power
        if background_sums:
            # A text's last entry is 1; its mean over all rows is `share`.
            bias = (1 - share) * directions[1][-1]
            self.text_branch.bias.assign((bias * weights).astype(np.float32))
            directions[1] = directions[1][:-1]
        for branch, mean, directed in zip(self._branches, means, directions):
            branch.mean.assign(mean.astype(np.float32))
            branch.projection.assign((directed * weights).astype(np.float32))
        return float(1 - self.correlations.mean())


def _features(encoder, inputs):
    if encoder is not None:
        inputs = encoder(inputs, training=False)
    return tf.cast(inputs, tf.float32)
