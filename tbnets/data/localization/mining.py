"""The losses of Algorithm 1, which mines the candidates that a batch brings."""

import dataclasses
from typing import Any

import keras
import tensorflow as tf
from typing_extensions import Self

from tbnets.annotations import Batch
from tbnets.checked_numbers import checked_dict
from tbnets.data.localization import candidates
from tbnets.losses import hinges
from tbnets.losses.distances import similarities
from tbnets.losses.logistic import LogisticOutput, SoftmaxOutput, softmax_loss
from tbnets.losses.pairs import random_columns
from tbnets.losses.positives import positive_masks
from tbnets.losses.ranking import LossOutput
from tbnets.losses.replicas import gather

IDS = ("image_ids", "caption_image_ids")


@keras.saving.register_keras_serializable(package="tbnets")
@dataclasses.dataclass(frozen=True)
class CandidateMining:
    """Mines the negatives of captions among candidates of their own.

    It is the `mining` of an `EmbeddingNetwork` or a `SimilarityNetwork` that
    learns from regions and phrases. Beside the keys of every batch, a batch
    holds `drawn_for`, `candidates` and `is_negative`, see
    `data.localization.candidates`.

    Example:
        network.compile(
            "adam", tbnets.TripletLoss(), mining=tbnets.CandidateMining())

    Source: Wang et al. 2018, Algorithm 1. Departures: all pairs that match in
    a batch are positives, not only those that were drawn.
    """

    def get_config(self) -> dict[str, Any]:
        """Returns no arguments: there are none."""
        return {}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Self:
        """Makes an equal object."""
        return cls(**config)

    def ranking_output(
        self, network: Any, batch: Batch, training: bool
    ) -> LossOutput:
        """Returns the `LossOutput` of an `EmbeddingNetwork`.

        Args:
            network: the compiled network.
            batch: dict of tensors, see above.
            training: whether dropout is on.
        """
        batch = checked_dict("batch", batch, candidates.KEYS)
        texts = network.embed_text(batch["captions"], training=training)
        as_served = network.embed_text(batch["captions"], training=False)
        others = candidates.embed_as_served(network, batch["candidates"])
        [others] = gather(others)
        columns, valid = candidates.hardest_candidates(
            similarities(as_served, others),
            batch["is_negative"],
            network.ranking_loss.kept_negatives,
        )
        images, picked, places = candidates.embed_picked(
            network, batch, columns, valid, training
        )
        ids = [batch[name] for name in IDS]
        own = texts, places, valid, *ids, batch.get("text_ids")
        texts, places, valid, *ids = gather(*own)
        masks = positive_masks(*ids)
        views = hinges.views(images, texts, masks)
        matches = tf.transpose(masks.image_to_text)
        views["text_to_image"] = candidates.candidate_view(
            texts, images, picked, matches, places, valid
        )
        loss, idle = network.current_loss(), network.idle_terms()
        return loss.of_views(views, idle=idle)

    def logistic_output(
        self, network: Any, batch: Batch, training: bool
    ) -> LogisticOutput:
        """Returns the `LogisticOutput` of a `SimilarityNetwork`.

        For each pair of an image and the caption that it was drawn for,
        candidates of that caption are drawn as its negatives.

        Args:
            network: the compiled network.
            batch: dict of tensors, see above.
            training: whether dropout is on.
        """
        batch = checked_dict("batch", batch, candidates.KEYS)
        owners, is_negative = gather(batch["drawn_for"], batch["is_negative"])
        count = tf.stack([tf.shape(owners)[0], network.num_candidates])
        seed = network.draw_seed()
        draws = tf.random.stateless_uniform(count, seed, alg="philox")
        columns, valid = random_columns(is_negative, owners, draws)
        if network.num_candidates > 1:
            columns = _most_convincing(network, batch, owners, columns)
        images, picked, places = candidates.embed_picked(
            network, batch, columns, valid[:, None], training
        )
        [texts] = gather(
            network.embed_text(batch["captions"], training=training)
        )
        texts = [tf.gather(texts, owners)] * 2
        # A row more, so that there is one where nothing was picked.
        others = tf.pad(picked, [[0, 1], [0, 0]])
        others = tf.gather(others, places[:, 0])
        return network.logistic_output([images, others], texts, valid, training)

    def softmax_output(
        self, network: Any, batch: Batch, training: bool
    ) -> SoftmaxOutput:
        """Returns the `SoftmaxOutput` of a `SimilarityNetwork`.

        Args:
            network: the compiled network.
            batch: dict of tensors, see above.
            training: whether dropout is on.
        """
        batch = checked_dict("batch", batch, candidates.KEYS)
        images, others = (batch[name] for name in ("images", "candidates"))
        num_images = tf.shape(images)[0]
        rows = tf.concat([images, others], axis=0)
        rows = network.embed_images(rows, training=training)
        images, others = gather(rows[:num_images], rows[num_images:])
        owners, valid = gather(batch["drawn_for"], batch["is_negative"])
        [texts] = gather(
            network.embed_text(batch["captions"], training=training)
        )
        texts = tf.gather(texts, owners)
        # Only pairs of a caption and a candidate of its own are judged.
        valid = tf.gather(valid, owners)
        pairs = tf.where(valid)
        images = images, tf.gather(others, pairs[:, 1])
        texts = texts, tf.gather(texts, pairs[:, 0])
        own, logits = network.judge_shared(images, texts, training)
        shape = tf.shape(valid, out_type=tf.int64)
        others = tf.scatter_nd(pairs, logits, shape)
        return softmax_loss(own, others, valid)


def _most_convincing(network, batch, owners, columns):
    """Returns the candidate of each row that fits best, int32 `[n, 1]`."""
    rows, all_count = batch["candidates"], tf.ones_like(columns, tf.bool)
    rows, places = candidates.picked_rows(rows, columns, all_count)
    [embeddings] = gather(candidates.embed_as_served(network, rows))
    [texts] = gather(network.embed_text(batch["captions"], training=False))
    owners = tf.repeat(owners, network.num_candidates)
    images = tf.gather(embeddings, tf.reshape(places, [-1]))
    return network.most_convincing(columns, images, tf.gather(texts, owners))
