"""Canonical correlation analysis: two linear branches, solved for.

No gradient is taken. `fit` goes over the batches, `train_step` adds each to
the covariances of images and texts, and at the end the projections are solved
for. Memory is that of the covariances, whatever the number of rows.
"""

from collections.abc import Mapping
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tbnets.annotations import Batch, Tensors
from tbnets.checked_numbers import checked_dict, checked_number
from tbnets.errors import InputError
from tbnets.losses.positives import positive_masks
from tbnets.losses.replicas import gather, num_replicas
from tbnets.models import cca_solution as solution
from tbnets.models.embedding_network import EmbeddingNetwork
from tbnets.models.pair_sums import PairSums
from tbnets.models.two_branch import IDS, INPUTS


class _Solving(keras.callbacks.Callback):
    """Solves at the end of the last epoch, before what looks at the model."""

    def on_epoch_end(self, epoch, logs=None):
        if epoch + 1 == self.params["epochs"]:
            loss = self.model.solve()
            if logs is not None:
                logs["loss"] = loss


@keras.saving.register_keras_serializable(package="tbnets")
class CCA(EmbeddingNetwork):
    """Linear branches by regularised canonical correlation analysis.

    ::

        images -> [image_encoder ->] (x - mean) W_x diag(s) -> unit vectors
        texts  -> [text_encoder  ->] (y - mean) W_y diag(s) -> unit vectors

    `W` are the directions in which matching images and texts correlate most,
    `s = (1 + correlation) ** power` weighs each, and cosines compare. A row of
    an image counts once for each of its texts in a batch, found by ids: where
    an image stands on several rows, each counts with all of these texts.

    Where a text is compared with regions of one photo, most of these are
    named by nobody, and pairs do not tell what they look like. `background`
    adds them as rows without a text: the candidates that each batch brings
    (`data.localization.candidates`), all of them, since a few that are named
    after all change little. A direction more tells such rows from pairs, and
    texts get a bias on it.

    Args:
        image_branch: `CanonicalProjection` of the images.
        text_branch: `CanonicalProjection` of the texts, of the same size.
        image_encoder: layer without trainable weights that turns images into
            features, or None.
        text_encoder: the same for texts.
        regularization: share of a view's mean variance added to each variance;
            see `cholesky_factor`.
        power: of the eigenvalues. Gong et al. 2014: 4; 0 weighs all alike.
        background: what candidates count for together, as a multiple of all
            pairs; 0 leaves them out. Above 0, `text_branch` needs a bias.

    Attributes:
        correlations: float64 `[dim]` after `fit`, else None.

    Example:
        network = tbnets.CCA(
            tbnets.CanonicalProjection(32), tbnets.CanonicalProjection(32))
        network.compile()
        network.fit({**pairs, "captions": text_features})

    Source: Gong et al. 2014, Sec. 3.3 and 4; the CCA rows of Wang et al.
    2016, Table 1. Neither tells of background.
    """

    loss_kind = type(None)
    correlations: np.ndarray | None = None
    found = found_background = None

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
        if self.logit_scale is not None:
            raise InputError(
                "`logit_scale` must be None for CCA, which has no loss. "
                "Received: a LogitScale. Leave it out."
            )
        checked_number("regularization", regularization, 0)
        checked_number("power", power, 0)
        checked_number("background", background, 0)
        if background and not self.text_branch.use_bias:
            raise InputError(
                "`text_branch` must have a bias where there is background. "
                f"Received: none, background={background}. Give it "
                "use_bias=True."
            )
        self.regularization, self.power = regularization, power
        self.background = background

    def compile(self, **kwargs: Any) -> None:
        """Prepares the model for `fit`; an optimizer has nothing to do."""
        kwargs = {"optimizer": "sgd", "ranking_loss": None, **kwargs}
        super().compile(**kwargs)

    @property
    def metrics(self) -> list[keras.metrics.Metric]:
        """Nothing that is averaged over an epoch."""
        return []

    def build(self, input_shape: Mapping[str, Any]) -> None:
        """Builds both sides.

        Args:
            input_shape: as of `TwoBranchModel.build`.

        Raises:
            ValueError: a side has fewer features than the shared space, or an
                encoder has weights to train.
        """
        super().build(input_shape)
        for side in ("image", "text"):
            encoder = getattr(self, f"{side}_encoder")
            if encoder is not None and encoder.trainable_weights:
                raise InputError(
                    f"`{side}_encoder` must have nothing to train: CCA takes "
                    f"no gradient. Received: {type(encoder).__name__}. Learn "
                    "from features."
                )
        for side, branch in zip(("image", "text"), self._branches):
            if not hasattr(branch, "mean"):
                raise InputError(
                    f"`{side}_branch` must have what is solved for, `mean` and "
                    f"`projection`. Received: {side}_branch={branch!r}. Give "
                    "for example tbnets.CanonicalProjection(256)."
                )
        sizes = [branch.mean.shape[0] for branch in self._branches]
        if self.embedding_dim > min(sizes):
            raise InputError(
                "`output_dim` must be at most the features of either side. "
                f"Received: output_dim={self.embedding_dim}, {sizes[0]} image "
                f"and {sizes[1]} text features. Lower `output_dim`."
            )

    @property
    def _branches(self):
        return self.image_branch, self.text_branch

    def fit(self, *args: Any, **kwargs: Any) -> keras.callbacks.History:
        """Gathers covariances over the batches, then solves.

        Args:
            *args: as of `keras.Model.fit`.
            **kwargs: likewise; one epoch that has every pair is enough.

        Returns:
            The history of Keras, whose `loss` is 1 minus the mean
            correlation.

        Raises:
            ValueError: there are fewer than two pairs, or a covariance is
                singular.
        """
        self.found, self.train_function = None, None
        if self.built:
            with self.distribute_strategy.scope():
                self._start({})
        history = super().fit(*args, **kwargs)
        if self.found is not None or self.correlations is None:
            self.solve()  # A callback ended it before its last epoch.
        loss = float(1 - self.correlations.mean())
        history.history["loss"] = [loss] * len(history.history["loss"])
        return history

    def own_callbacks(self) -> list[keras.callbacks.Callback]:
        """Returns callbacks that come before all others in `fit`."""
        return [*super().own_callbacks(), _Solving()]

    def batch_loss(self, batch: Batch, training: bool = False) -> Any:
        """Refuses: a batch has no loss.

        Args:
            batch: whatever it is.
            training: likewise.

        Raises:
            ValueError: always.
        """
        raise InputError(
            "CCA must be measured by what it retrieves: a batch has no loss. "
            "Received: a batch to `evaluate`, or `validation_data`. Use "
            "tbnets.evaluate_retrieval, or tbnets.RetrievalMetrics among "
            "`callbacks`."
        )

    def train_step(self, batch: Batch) -> Tensors:
        """Adds a batch to the covariances; nothing is learned as yet."""
        batch = checked_dict("batch", batch, INPUTS + IDS)
        if self.found is None:
            with tf.init_scope():
                self._start({name: batch[name].shape for name in INPUTS})
        texts = _features(self.text_encoder, batch["captions"])
        image_ids, text_ids = (batch[name] for name in IDS)
        # Of a batch that replicas share, each adds the pairs of its images.
        texts, text_ids = gather(texts, text_ids)
        pairs = positive_masks(image_ids, text_ids).image_to_text
        if num_replicas() > 1:
            is_used = tf.reduce_any(pairs, axis=0)
            texts = tf.boolean_mask(texts, is_used)
            pairs = tf.boolean_mask(pairs, is_used, axis=1)
        images = _features(self.image_encoder, batch["images"])
        self.found.add(images, texts, tf.cast(pairs, tf.float32))
        if self.background and "candidates" in batch:
            # They are pairs with a text of no features.
            rows = _features(self.image_encoder, batch["candidates"])
            ones = tf.ones([tf.shape(rows)[0], 1])
            self.found_background.add(rows, tf.zeros([1, 0]), ones)
        return {"loss": tf.constant(1.0)}

    def _start(self, shapes):
        """Makes room for the covariances, and builds where nobody has."""
        if not self.built:
            self.build(shapes)
        sizes = [branch.mean.shape[0] for branch in self._branches]
        self.found = PairSums(*sizes)
        if self.background:
            self.found_background = PairSums(sizes[0], 0)

    def solve(self) -> float:
        """Puts what the covariances tell into the branches.

        Returns:
            1 minus the mean correlation.
        """
        found, self.found, self.train_function = self.found, None, None
        others, self.found_background = self.found_background, None
        count = int(found.count.numpy()) if found else 0
        if count < 2:
            raise InputError(
                "`batches` must hold at least two matching pairs. Received: "
                f"{count}. Give captions the ids of their images."
            )
        if others and not others.count.numpy():
            raise InputError(
                "`batches` must hold candidates where there is background. "
                f"Received: none, background={self.background}. Give "
                "some, or set `background` to 0."
            )
        means, images = found.means(), found.covariance(0, 0)
        between, share = found.covariance(0, 1), 1 / (1 + self.background)
        if others:
            means[0], images, between = solution.with_background(
                means[0], images, between, others, share
            )
        left = solution.cholesky_factor(images, self.regularization, "image")
        texts = found.covariance(1, 1)
        right = solution.cholesky_factor(texts, self.regularization, "text")
        if others:
            right = solution.with_indicator(right, share)
        *directions, self.correlations = solution.solve_cca(
            left, right, between, self.embedding_dim
        )
        weights = (1 + self.correlations) ** self.power
        if others:
            # A text's last entry is 1, and over all rows its mean is `share`.
            bias = (1 - share) * directions[1][-1]
            self.text_branch.bias.assign((bias * weights).astype(np.float32))
            directions[1] = directions[1][:-1]
        for branch, mean, directed in zip(self._branches, means, directions):
            branch.mean.assign(mean.astype(np.float32))
            branch.projection.assign((directed * weights).astype(np.float32))
        return float(1 - self.correlations.mean())


def _features(encoder, inputs):
    """Returns what an encoder, or none, makes of inputs: float32."""
    if encoder is not None:
        inputs = encoder(inputs, training=False)
    return tf.cast(inputs, tf.float32)
