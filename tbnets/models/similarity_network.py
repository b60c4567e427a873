"""The similarity network: two branches and a head that scores pairs."""

from collections.abc import Mapping, Sequence
from typing import Any

import keras
import tensorflow as tf

from tbnets.checks import Array, Batch, Tensors, checked_dict, checked_number
from tbnets.errors import check_choice
from tbnets.layers.branch import PairHead
from tbnets.losses.logistic import (
    PAIR_LOSSES,
    LogisticOutput,
    SoftmaxOutput,
    logistic_loss,
    own_images,
    sample_pairs,
    softmax_loss,
)
from tbnets.losses.positives import positive_masks
from tbnets.losses.replicas import gather, own_rows
from tbnets.models.two_branch import IDS, INPUTS, TwoBranchModel, ids_of


@keras.saving.register_keras_serializable(package="tbnets")
class SimilarityNetwork(TwoBranchModel):
    """Classifies whether an image and a text match.

    ::

        images -> [image_encoder ->] image_branch -> unit vectors x
        texts  -> [text_encoder  ->] text_branch  -> unit vectors y
        x * y  -> head -> logit of "they match"

    Only the head can compare embeddings; their inner products are meaningless.
    The entries of a batch are as in `EmbeddingNetwork`.

    Args:
        image_branch: as in `EmbeddingNetwork`.
        text_branch: as in `EmbeddingNetwork`.
        image_encoder: as in `EmbeddingNetwork`.
        text_encoder: as in `EmbeddingNetwork`.
        head: layer that maps products x * y, `[p, embedding_dim]`, to scores,
            float32 `[p]`; None for `PairHead()`, the head of the paper.

    Example:
        network = tbnets.SimilarityNetwork(
            tbnets.Branch((2048, 512)), tbnets.Branch((2048, 512)),
            text_encoder=tbnets.MeanOfWords(vocabulary.size))
        network.compile("adam")
        network.fit(batches)

    Source: Wang et al. 2018, Sec. 3.3, Fig. 1 (right).
    """

    learned_similarity = True

    def __init__(
        self,
        image_branch: keras.layers.Layer | None = None,
        text_branch: keras.layers.Layer | None = None,
        image_encoder: keras.layers.Layer | None = None,
        text_encoder: keras.layers.Layer | None = None,
        head: keras.layers.Layer | None = None,
        **kwargs: Any,
    ) -> None:
        sides = image_branch, text_branch, image_encoder, text_encoder
        super().__init__(*sides, **kwargs)
        self.head = PairHead() if head is None else head

    def compile(
        self,
        optimizer: str | keras.optimizers.Optimizer,
        loss: str = PAIR_LOSSES[0],
        gradient_clip_norm: float | None = None,
        num_candidates: int = 1,
        sampling_seed: int = 0,
        mining: Any = None,
        **kwargs: Any,
    ) -> None:
        """Prepares the network for `fit`.

        Args:
            optimizer: a Keras optimizer or its name.
            loss: "logistic" classifies each pair separately, with one
                non-matching pair per matching pair (Wang 2018). "softmax"
                compares each matching pair with all non-matching pairs of its
                image and of its caption in the batch or, if `mining` is given,
                with the caption's candidates.
            gradient_clip_norm: as in `EmbeddingNetwork.compile`.
            num_candidates: number of captions drawn at random per matching
                pair; the caption with the highest logit becomes the negative.
                Paper: 1. The softmax loss ignores this argument.
            sampling_seed: integer seed of the draws.
            mining: as in `EmbeddingNetwork.compile`.
            **kwargs: other arguments of `TwoBranchModel.compile`.
        """
        check_choice("loss", loss, PAIR_LOSSES)
        super().compile(optimizer, loss, gradient_clip_norm, **kwargs)
        checked_number("num_candidates", num_candidates, 1, whole=True)
        self.num_candidates, self.sampling_seed = num_candidates, sampling_seed
        self.mining = mining

    @staticmethod
    def reported_names() -> list[str]:
        """Returns the names of the values that `report` may return."""
        return [*LogisticOutput._fields[1:], *SoftmaxOutput._fields[1:]]

    def build(self, input_shape: Mapping[str, Any]) -> None:
        """Builds encoders, branches and the head."""
        super().build(input_shape)
        if not self.head.built:
            self.head.build((None, self.embedding_dim))

    @property
    def floats_per_pair(self) -> int:
        """Number of floats that scoring one pair needs in memory."""
        return 2 * self.embedding_dim + sum(getattr(self.head, "units", ()))

    def judge(
        self, image_rows: Array, text_rows: Array, training: bool = False
    ) -> tf.Tensor:
        """Returns the logits of p pairs of embeddings, float32 `[p]`."""
        return self.head(image_rows * text_rows, training=training)

    def similarities(
        self,
        image_embeddings: Array,
        text_embeddings: Array,
        training: bool = False,
    ) -> tf.Tensor:
        """Returns the logits of all pairs, float32 `[n, m]`.

        The head processes `n * m` rows at once, so compute large matrices in
        tiles.
        """
        products = image_embeddings[:, None, :] * text_embeddings[None, :, :]
        shape = tf.shape(products)
        products = tf.reshape(products, [-1, self.embedding_dim])
        logits = self.head(products, training=training)
        return tf.reshape(logits, shape[:2])

    def call(self, inputs: Batch, training: bool = False) -> Tensors:
        """Returns a dict with `similarities`, the logits `[n, m]`."""
        images, texts = self.embed(inputs, training)
        logits = self.similarities(images, texts, training=training)
        return {"similarities": logits}

    def batch_loss(
        self, batch: Batch, training: bool = False
    ) -> LogisticOutput | SoftmaxOutput:
        """Returns the loss of one batch.

        Each replica scores some of the pairs, and then gathers all logits.
        """
        batch = checked_dict("batch", batch, INPUTS + IDS)
        is_softmax = self.loss == "softmax"
        if self.mining is None:
            loss = self._softmax_loss if is_softmax else self._logistic_loss
            return loss(batch, training)
        mining = self.mining
        loss = mining.softmax_output if is_softmax else mining.logistic_output
        return loss(self, batch, training)

    def _embed_whole(self, batch, training):
        return gather(*self.embed(batch, training), *ids_of(batch))

    def _logistic_loss(self, batch, training):
        images, texts, *ids = self._embed_whole(batch, training)
        seed, count = self.draw_seed(), self.num_candidates
        pairs = sample_pairs(*ids, seed=seed, num_candidates=count)
        image_rows = tf.gather(images, pairs.images)
        negatives = pairs.negatives
        if count > 1:
            drawn = tf.gather(texts, tf.reshape(negatives, [-1]))
            repeated_images = tf.repeat(image_rows, count, 0)
            negatives = self.most_convincing(negatives, repeated_images, drawn)
        texts = texts, tf.gather(texts, negatives[:, 0])
        images = [image_rows] * 2
        return self.logistic_output(images, texts, pairs.valid, training)

    def logistic_output(
        self,
        images: Sequence[tf.Tensor],
        texts: Sequence[tf.Tensor],
        valid: tf.Tensor,
        training: bool,
    ) -> LogisticOutput:
        """Returns the logistic loss of matching and non-matching pairs.

        Args:
            images: two tensors `[p, embedding_dim]`, the images of the matching
                and of the non-matching pairs.
            texts: two tensors `[p, embedding_dim]`, the texts of these pairs.
            valid: bool `[p]`, True for pairs that count.
            training: whether dropout is on.
        """
        logits = tf.concat(self.judge_shared(images, texts, training), 0)
        is_match = tf.repeat([True, False], tf.shape(valid)[0])
        return logistic_loss(logits, is_match, tf.tile(valid, [2]))

    def judge_shared(
        self,
        images: Sequence[tf.Tensor],
        texts: Sequence[tf.Tensor],
        training: bool,
    ) -> Sequence[tf.Tensor]:
        """Returns a list of logits `[p]`; each replica scores some pairs.

        Args:
            images: list of `[p, embedding_dim]`, the images of the pairs.
            texts: list of `[p, embedding_dim]`, the texts of the pairs.
            training: whether dropout is on.
        """
        sides = [[*map(own_rows, side)] for side in (images, texts)]
        counts = [tf.shape(rows)[0] for rows in sides[0]]
        rows = (tf.concat(side, 0) for side in sides)
        logits = self.judge(*rows, training=training)
        return gather(*tf.split(logits, counts))

    def most_convincing(
        self, columns: tf.Tensor, images: tf.Tensor, texts: tf.Tensor
    ) -> tf.Tensor:
        """For each row, selects the column whose pair has the largest logit.

        Args:
            columns: int32 `[n, k]`, the columns to choose from.
            images: `[n * k, embedding_dim]`, images of the pairs, row by row.
            texts: `[n * k, embedding_dim]`, texts of the pairs.
        """
        sides = ([tf.stop_gradient(rows)] for rows in (images, texts))
        [logits] = self.judge_shared(*sides, training=False)
        best = tf.argmax(tf.reshape(logits, tf.shape(columns)), axis=1)
        return tf.gather(columns, best, batch_dims=1)[:, None]

    def draw_seed(self) -> tf.Tensor:
        """Returns the seed of a step's random draws, int32 `[2]`."""
        step = tf.convert_to_tensor(self.optimizer.iterations)
        return tf.stack([self.sampling_seed, tf.cast(step, tf.int32)])

    def _softmax_loss(self, batch, training):
        images, texts, *ids = self._embed_whole(batch, training)
        matches = positive_masks(*ids).image_to_text
        shared_images = own_rows(images)
        logits = self.similarities(shared_images, texts, training=training)
        [logits] = gather(logits)
        rows = own_images(*ids[:2])
        known, rows = rows[:, None] >= 0, tf.maximum(rows, 0)
        own_logits = tf.gather(tf.transpose(logits), rows, batch_dims=1)
        lists = [
            softmax_loss(own_logits, other_logits, known & ~is_match)
            for other_logits, is_match in (
                (tf.gather(logits, rows), tf.gather(matches, rows)),
                (tf.transpose(logits), tf.transpose(matches)),
            )
        ]
        return SoftmaxOutput(*(tf.add_n(values) / 2 for values in zip(*lists)))

    def report(self, output: LogisticOutput | SoftmaxOutput) -> Tensors:
        """Returns a dict of the scalars that the loss reports."""
        return dict(zip(output._fields[1:], output[1:]))
