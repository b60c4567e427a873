"""Canonical correlation analysis: two linear branches, solved for.

No gradient is taken. `fit` goes over the batches, `train_step` adds each to
the covariances of images and texts, and at the end the projections are solved
for. Memory is that of the covariances, whatever the number of rows.
"""

import keras
import numpy as np
import tensorflow as tf

from tbnets.models.embedding_network import IDS
from tbnets.models.embedding_network import INPUTS
from tbnets.models.embedding_network import EmbeddingNetwork
from tbnets.models.two_branch import checked_dict

NO_CORRELATION = 1e-6
# What sums of float32 products know of a variance.
ROUNDING = 1e-6


def cholesky_factor(covariance, regularization, name):
    """Returns the Cholesky factor of a regularised covariance.

    Args:
        covariance: float64 `[n, n]`; overwritten, so that big ones need less
            memory.
        regularization: share of the mean variance that is added to each
            variance; larger is smoother.
        name: what the features are of, for the error.

    Returns:
        float64 `[n, n]`, lower triangular.

    Raises:
        ValueError: features never change, or the covariance is singular.
    """
    mean_variance = np.trace(covariance) / len(covariance)
    if not mean_variance > 0:
        raise ValueError(
            f"The {name} features must differ from row to row. Received: "
            f"{len(covariance)} dimensions that never change. Extract them "
            "again."
        )
    diagonal = np.einsum("ii->i", covariance)
    diagonal += regularization * mean_variance
    try:
        factor = np.linalg.cholesky(covariance)
        # The share of a variance that the dimensions before leave open.
        shares = np.einsum("ii->i", factor) ** 2 / diagonal
    except np.linalg.LinAlgError:
        shares = np.zeros(1)
    if shares.min() <= ROUNDING:
        raise ValueError(
            "`regularization` must be larger where dimensions depend on each "
            f"other. Received: regularization={regularization:g}, with which "
            f"the covariance of the {len(covariance)} {name} features can not "
            "be inverted: some never change, some are sums of others, or "
            "there are fewer rows than features. Raise --cca_regularization, "
            "for example to 0.5."
        )
    return factor


def solve_cca(left, right, between, dim):
    """Solves for the directions in which two views correlate most.

    The left and right singular vectors of `L_x^-1 C_xy L_y^-T` are the
    directions of whitened features, its singular values the correlations.

    Args:
        left: float64 `[n, n]`, `cholesky_factor` of the images.
        right: float64 `[m, m]`, of the texts.
        between: float64 `[n, m]`, covariance of images with texts.
        dim: directions to keep, at most `min(n, m)`.

    Returns:
        (image_directions float64 `[n, dim]`, text_directions `[m, dim]`,
        correlations `[dim]`, falling). A direction is scaled to a regularised
        variance of 1; it is 0 where no correlation is left.

    Source: Hotelling 1936; Gong et al. 2014, Sec. 3.3, whose constant on the
    diagonal is not relative to the features' scale.
    """
    # The larger factor, of the texts, comes first: least memory at once.
    whitened = np.linalg.solve(left, np.linalg.solve(right, between.T).T)
    turned = len(left) > len(right)
    inner = whitened.T if turned else whitened
    squares, vectors = np.linalg.eigh(inner @ inner.T)
    order = np.argsort(squares, kind="stable")[::-1][:dim]
    correlations = np.sqrt(np.clip(squares[order], 0, 1))
    kept = correlations > NO_CORRELATION
    vectors = vectors[:, order] * kept
    others = inner.T @ vectors / np.where(kept, correlations, 1)
    if turned:
        vectors, others = others, vectors
    return (
        np.linalg.solve(left.T, vectors),
        np.linalg.solve(right.T, others),
        correlations * kept,
    )


class _Sums:
    """Sums over matching pairs, from which their covariances come.

    A plain object, so that Keras counts none of it among a model's weights.
    Features are shifted by the mean of the first batch, so that a mean far
    from 0 swallows no variance; batches are multiplied in float32 and summed
    in float64.

    Args:
        num_images: size of image features.
        num_texts: size of text features.
    """

    def __init__(self, num_images, num_texts):
        def zeros(*shape):
            return tf.Variable(tf.zeros(shape, tf.float64), trainable=False)

        self.count = zeros()
        self.shifts = zeros(num_images), zeros(num_texts)
        self.sums = zeros(num_images), zeros(num_texts)
        self.products = {
            (0, 0): zeros(num_images, num_images),
            (1, 1): zeros(num_texts, num_texts),
            (0, 1): zeros(num_images, num_texts),
        }

    def add(self, images, texts, pairs):
        """Adds a batch.

        Args:
            images: float32 `[n, num_images]`.
            texts: float32 `[m, num_texts]`.
            pairs: float32 `[n, m]`, 1 where image and text match, else 0.
        """
        rows, is_first = [], self.count == 0
        uses = tf.reduce_sum(pairs, 1), tf.reduce_sum(pairs, 0)
        total = tf.maximum(tf.reduce_sum(pairs), 1)
        for i, features in enumerate((images, texts)):
            mean = tf.linalg.matvec(features, uses[i], True) / total
            shift = tf.where(is_first, _wide(mean), self.shifts[i])
            self.shifts[i].assign(shift)
            centred = features - tf.cast(shift, tf.float32)
            rows.append(centred)
            used = centred * uses[i][:, None]
            self.sums[i].assign_add(_wide(tf.reduce_sum(used, 0)))
            squares = tf.matmul(centred, used, transpose_a=True)
            self.products[i, i].assign_add(_wide(squares))
        texts_of_images = tf.matmul(pairs, rows[1])
        between = tf.matmul(rows[0], texts_of_images, transpose_a=True)
        self.products[0, 1].assign_add(_wide(between))
        self.count.assign_add(_wide(tf.reduce_sum(pairs)))

    def means(self):
        """Returns the means of images and texts over pairs, float64."""
        count = self.count.numpy()
        return [
            shift.numpy() + total.numpy() / count
            for shift, total in zip(self.shifts, self.sums)
        ]

    def covariance(self, *sides):
        """Returns the covariance of two of images (0) and texts (1), once.

        The shift is the mean of one batch: what is left of the mean goes
        here. The sum is given up for its covariance.
        """
        count = self.count.numpy()
        covariance = self.products.pop(sides).numpy()
        covariance /= count
        left, right = [self.sums[side].numpy() / count for side in sides]
        covariance -= np.outer(left, right)
        return covariance


def _wide(values):
    return tf.cast(values, tf.float64)


@keras.saving.register_keras_serializable(package="tbnets")
class CCA(EmbeddingNetwork):
    """Linear branches by regularised canonical correlation analysis.

    ::

        images -> [image_encoder ->] (x - mean) W_x diag(s) -> unit vectors
        texts  -> [text_encoder  ->] (y - mean) W_y diag(s) -> unit vectors

    `W` are the directions in which matching images and texts correlate most,
    `s = (1 + correlation) ** power` weighs each, and cosines compare. An image
    counts once for each of its texts in a batch, found by ids.

    Args:
        image_branch: `CanonicalProjection` of the images.
        text_branch: `CanonicalProjection` of the texts, of the same size.
        image_encoder: layer without trainable weights that turns images into
            features, or None.
        text_encoder: the same for texts.
        regularization: share of a view's mean variance added to each variance;
            see `cholesky_factor`.
        power: of the eigenvalues. Gong et al. 2014: 4; 0 weighs all alike.

    Attributes:
        correlations: float64 `[dim]` after `fit`, else None.

    Example:
        network = tbnets.CCA(
            tbnets.CanonicalProjection(256), tbnets.CanonicalProjection(256))
        network.compile()
        network.fit(batches)

    Source: Gong et al. 2014, Sec. 3.3 and 4; the CCA rows of Wang et al.
    2016, Table 1.
    """

    compile_arguments = ()

    def __init__(
        self,
        image_branch,
        text_branch,
        image_encoder=None,
        text_encoder=None,
        regularization=0.5,
        power=4.0,
        **kwargs,
    ):
        super().__init__(
            image_branch, text_branch, image_encoder, text_encoder, **kwargs
        )
        if regularization < 0:
            raise ValueError(
                "`regularization` must be at least 0. Received: "
                f"regularization={regularization}. Change "
                "--cca_regularization."
            )
        self.regularization = regularization
        self.power = power
        self.correlations = None
        self.found = None

    def compile(self, **kwargs):
        """Prepares the model for `fit`; an optimizer has nothing to do."""
        kwargs.setdefault("optimizer", "sgd")
        super().compile(triplet_loss=None, **kwargs)

    @property
    def metrics(self):
        """Nothing that is averaged over an epoch."""
        return []

    def build(self, input_shape):
        """Builds both sides.

        Args:
            input_shape: as of `TwoBranchModel.build`.

        Raises:
            ValueError: a side has fewer features than the shared space, or an
                encoder has weights to train.
        """
        super().build(input_shape)
        for side, encoder in (
            ("image", self.image_encoder),
            ("text", self.text_encoder),
        ):
            if encoder is not None and encoder.trainable_weights:
                raise ValueError(
                    f"`{side}_encoder` must need no training: CCA takes no "
                    f"gradient. Received: {type(encoder).__name__}, with "
                    f"weights to train. Use --{side}_encoder=features."
                )
        sizes = [branch.mean.shape[0] for branch in self._branches]
        if self.embedding_dim > min(sizes):
            raise ValueError(
                "`output_dim` must be at most the number of features of either "
                f"side. Received: output_dim={self.embedding_dim}, with "
                f"{sizes[0]} image and {sizes[1]} text features. Lower "
                "--cca_dim."
            )

    @property
    def _branches(self):
        return self.image_branch, self.text_branch

    def fit(self, *args, **kwargs):
        """Gathers covariances over the batches, then solves.

        Args:
            *args: as of `keras.Model.fit`.
            **kwargs: likewise; one epoch that has every pair is enough.

        Returns:
            The history of Keras, whose `total_loss` is 1 minus the mean
            correlation.

        Raises:
            ValueError: there are fewer than two pairs, or a covariance is
                singular.
        """
        self.found, self.train_function = None, None
        history = super().fit(*args, **kwargs)
        self._solve()
        epochs = len(history.history["total_loss"])
        loss = float(1 - self.correlations.mean())
        history.history["total_loss"] = [loss] * epochs
        return history

    def train_step(self, batch):
        """Adds a batch to the covariances; nothing is learned as yet."""
        batch = checked_dict("batch", batch, INPUTS + IDS)
        if self.found is None:
            with tf.init_scope():
                self._start({name: batch[name].shape for name in INPUTS})
        images, texts = batch["images"], batch["captions"]
        if self.image_encoder is not None:
            images = self.image_encoder(images, training=False)
        if self.text_encoder is not None:
            texts = self.text_encoder(texts, training=False)
        pairs = tf.equal(
            tf.cast(batch["image_ids"], tf.int64)[:, None],
            tf.cast(batch["caption_image_ids"], tf.int64)[None, :],
        )
        self.found.add(
            tf.cast(images, tf.float32),
            tf.cast(texts, tf.float32),
            tf.cast(pairs, tf.float32),
        )
        return {"total_loss": tf.constant(1.0)}

    def _start(self, shapes):
        """Makes room for the covariances, and builds where nobody has."""
        if not self.built:
            self.build(shapes)
        sizes = [branch.mean.shape[0] for branch in self._branches]
        self.found = _Sums(*sizes)

    def _solve(self):
        """Puts what the covariances tell into the branches."""
        found, self.found, self.train_function = self.found, None, None
        if found is None or found.count.numpy() < 2:
            raise ValueError(
                "`batches` must hold at least two matching pairs. Received: "
                f"{0 if found is None else int(found.count.numpy())}. Give "
                "captions the ids of their images."
            )
        means = found.means()
        left, right = [
            cholesky_factor(
                found.covariance(side, side), self.regularization, name
            )
            for side, name in enumerate(("image", "text"))
        ]
        *directions, self.correlations = solve_cca(
            left, right, found.covariance(0, 1), self.embedding_dim
        )
        weights = (1 + self.correlations) ** self.power
        for branch, mean, directed in zip(self._branches, means, directions):
            branch.mean.assign(mean.astype(np.float32))
            branch.projection.assign((directed * weights).astype(np.float32))

    def get_config(self):
        """Returns the constructor's arguments, layers as their configs."""
        return {
            **super().get_config(),
            "regularization": self.regularization,
            "power": self.power,
        }
