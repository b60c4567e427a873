"""Finds hard negatives among candidate regions, and computes the losses.

In phrase localization, an "image" is a region, a "caption" is a phrase, and the
negatives of a phrase are other regions of its photo. A batch has three more
keys: `drawn_for`, int32 `[n]`, is the row of the caption that each image was
drawn for; `candidates`, `[c, feature_dim]`, contains possible negatives; and
`is_negative`, bool `[m, c]`, marks a caption's negatives.

To find the hardest candidates, all candidates are embedded in inference mode.
The hardest are embedded again in training mode, together with the images, so
that batch normalisation includes both.
"""

import dataclasses
from typing import Any

import keras
import tensorflow as tf
from typing_extensions import Self

from tbnets.checks import Batch, checked_dict
from tbnets.losses import miners, replicas
from tbnets.losses.distances import similarities
from tbnets.losses.logistic import (
    LogisticOutput,
    SoftmaxOutput,
    random_columns,
    softmax_loss,
)
from tbnets.losses.positives import Matches, View, batch_views
from tbnets.losses.ranking import LossOutput, rank
from tbnets.losses.replicas import gather

KEYS = ("drawn_for", "candidates", "is_negative")


def embed_as_served(network, candidates):
    """Embeds candidates in inference mode, `[c, embedding_dim]`."""
    return tf.stop_gradient(network.embed_images(candidates, training=False))


def hardest_candidates(similarities, is_negative, num_negatives):
    """Finds the most similar negatives per anchor, without gradients.

    Args:
        similarities: float32 `[anchors, candidates]`; larger is closer.
        is_negative: bool `[anchors, candidates]`.
        num_negatives: maximum number K of negatives per anchor, >= 1; None for
            all. Wang 2018, phrase localization: 30.

    Returns:
        (columns, valid), both `[anchors, min(K, candidates)]`: the candidates,
        and False for padding.

    Source: Wang et al. 2018, Algorithm 1, 3 (b). Departures: the hardest
    negatives are the closest to the anchor, whatever its positive; the hinge
    losses ignore negatives with zero loss.
    """
    is_negative = tf.convert_to_tensor(is_negative)
    if num_negatives is None:
        num_negatives = is_negative.shape[1] or tf.shape(is_negative)[1]
    is_positive = tf.logical_not(is_negative)
    return miners.hardest_negatives(similarities, is_positive, num_negatives)


def used_columns(columns, valid, num_candidates):
    """Lists each picked candidate once. Does not compile under XLA.

    `columns`, int32 `[anchors, k]`, contains the candidates that a miner picked
    for each anchor. Picks where `valid` is False are ignored. Returns (used,
    places): `used`, int32 `[n]`, contains the picked candidates in ascending
    order; `places`, int32 `[anchors, k]`, contains the picks' indices in
    `used`, or 0 for ignored picks.
    """
    spare = tf.where(valid, columns, num_candidates)
    ones = tf.ones_like(columns)
    marks = tf.math.unsorted_segment_max(ones, spare, num_candidates + 1)
    # A replica has only the picks of its own anchors.
    is_used = replicas.summed(tf.maximum(marks[:num_candidates], 0)) > 0
    place = tf.cumsum(tf.cast(is_used, tf.int32), exclusive=True)
    used = tf.cast(tf.where(is_used)[:, 0], tf.int32)
    # The extra column is needed if there are no candidates.
    places = tf.gather(tf.pad(place, [[0, 1]]), columns)
    return used, tf.where(valid, places, 0)


def picked_rows(candidates, columns, valid):
    """Returns this replica's picked candidates, and the indices of all picks.

    The indices, int32 `[m, k]`, are into the picked candidates of all replicas.
    `columns` and `valid` are as in `used_columns`.
    """
    num_rows = tf.shape(candidates)[0]
    first, total = replicas.span(num_rows)
    used, places = used_columns(columns, valid, total)
    if replicas.num_replicas() > 1:
        used -= first
        used = tf.boolean_mask(used, (used >= 0) & (used < num_rows))
    return tf.gather(candidates, used), places


def embed_picked(network, batch, columns, valid, training):
    """Embeds the images of a batch and the picked candidates.

    Returns (images, candidates, places): the embeddings of the images and of
    the picked candidates, both from all replicas, and the picks' indices in
    `candidates`, int32 `[m, k]`.
    """
    images = batch["images"]
    picked, places = picked_rows(batch["candidates"], columns, valid)
    num_images = tf.shape(images)[0]
    rows = tf.concat([images, picked], axis=0)
    embeddings = network.embed_images(rows, training=training)
    parts = embeddings[:num_images], embeddings[num_images:]
    return *replicas.gather(*parts), places


def candidate_view(anchors, images, candidates, matches, places, valid):
    """Builds a `View` whose only negatives are picked candidates.

    `matches`, bool `[anchors, images]`, marks the images that match an anchor.
    `candidates` contains the picks of all anchors; only an anchor's own picks
    are its negatives. `places`, int32 `[anchors, k]`, is from `used_columns`,
    and `valid` is False for ignored picks.
    """
    num_anchors, num_used = tf.shape(anchors)[0], tf.shape(candidates)[0]
    rows = tf.broadcast_to(tf.range(num_anchors)[:, None], tf.shape(places))
    # Invalid picks are scattered to an extra column, which is removed.
    pairs = tf.stack([rows, tf.where(valid, places, num_used)], axis=-1)
    shape = tf.stack([num_anchors, num_used + 1])
    picked = tf.scatter_nd(pairs, tf.ones_like(places), shape)
    is_picked = picked[:, :num_used] > 0
    return View(
        anchors,
        tf.concat([images, candidates], axis=0),
        tf.concat([matches, tf.zeros_like(is_picked)], axis=1),
        tf.concat([tf.ones_like(matches), tf.logical_not(is_picked)], axis=1),
    )


IDS = ("image_ids", "caption_image_ids")


@keras.saving.register_keras_serializable(package="tbnets")
@dataclasses.dataclass(frozen=True)
class CandidateMining:
    """Mines negatives for captions from a separate set of candidates.

    To train a network for regions and phrases, pass it to `compile` as
    `mining`. A batch must also contain `drawn_for`, `candidates` and
    `is_negative` (see `data.candidate_mining`).

    Example:
        network.compile(
            "adam", tbnets.TripletLoss(), mining=tbnets.CandidateMining())

    Source: Wang et al. 2018, Algorithm 1. Departure: all matching pairs in a
    batch are positives, not only the drawn pairs.
    """

    def get_config(self) -> dict[str, Any]:
        """Returns {}."""
        return {}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Self:
        """Creates the object from its config."""
        return cls(**config)

    def ranking_output(
        self, network: Any, batch: Batch, training: bool
    ) -> LossOutput:
        """Returns the `LossOutput` of an `EmbeddingNetwork` for a batch."""
        batch = checked_dict("batch", batch, KEYS)
        texts = network.embed_text(batch["captions"], training=training)
        as_served = network.embed_text(batch["captions"], training=False)
        candidates = embed_as_served(network, batch["candidates"])
        [candidates] = gather(candidates)
        columns, valid = hardest_candidates(
            similarities(as_served, candidates),
            batch["is_negative"],
            network.loss.kept_negatives,
        )
        images, picked, places = embed_picked(
            network, batch, columns, valid, training
        )
        ids = [batch[name] for name in IDS]
        local = texts, places, valid, *ids, batch.get("text_ids")
        texts, places, valid, *ids = gather(*local)
        matches = Matches(*ids)
        views = batch_views(images, texts, matches)
        own_images = matches.rows("text_to_image")
        views["text_to_image"] = candidate_view(
            texts, images, picked, own_images, places, valid
        )
        return rank(network.loss, views, network.idle_terms())

    def logistic_output(
        self, network: Any, batch: Batch, training: bool
    ) -> LogisticOutput:
        """Returns the `LogisticOutput` of a `SimilarityNetwork`.

        For each pair of an image and the caption that it was drawn for,
        negatives are drawn from the candidates of this caption.
        """
        batch = checked_dict("batch", batch, KEYS)
        owners, is_negative = gather(batch["drawn_for"], batch["is_negative"])
        count = tf.stack([tf.shape(owners)[0], network.num_candidates])
        seed = network.draw_seed()
        draws = tf.random.stateless_uniform(count, seed, alg="philox")
        columns, valid = random_columns(is_negative, owners, draws)
        if network.num_candidates > 1:
            columns = _most_convincing(network, batch, owners, columns)
        images, picked, places = embed_picked(
            network, batch, columns, valid[:, None], training
        )
        [texts] = gather(
            network.embed_text(batch["captions"], training=training)
        )
        texts = [tf.gather(texts, owners)] * 2
        # The extra row is needed if no candidate was picked.
        negatives = tf.pad(picked, [[0, 1], [0, 0]])
        negatives = tf.gather(negatives, places[:, 0])
        images = [images, negatives]
        return network.logistic_output(images, texts, valid, training)

    def softmax_output(
        self, network: Any, batch: Batch, training: bool
    ) -> SoftmaxOutput:
        """Returns the `SoftmaxOutput` of a `SimilarityNetwork`.

        Each caption is compared with all of its candidates.
        """
        batch = checked_dict("batch", batch, KEYS)
        images, candidates = batch["images"], batch["candidates"]
        num_images = tf.shape(images)[0]
        rows = tf.concat([images, candidates], axis=0)
        rows = network.embed_images(rows, training=training)
        images, candidates = gather(rows[:num_images], rows[num_images:])
        owners, valid = gather(batch["drawn_for"], batch["is_negative"])
        [texts] = gather(
            network.embed_text(batch["captions"], training=training)
        )
        texts = tf.gather(texts, owners)
        # Only pairs of a caption and its own candidates are scored.
        valid = tf.gather(valid, owners)
        pairs = tf.where(valid)
        images = images, tf.gather(candidates, pairs[:, 1])
        texts = texts, tf.gather(texts, pairs[:, 0])
        own_logits, logits = network.judge_shared(images, texts, training)
        shape = tf.shape(valid, out_type=tf.int64)
        logits = tf.scatter_nd(pairs, logits, shape)
        return softmax_loss(own_logits, logits, valid)


def _most_convincing(network, batch, owners, columns):
    rows, all_count = batch["candidates"], tf.ones_like(columns, tf.bool)
    rows, places = picked_rows(rows, columns, all_count)
    [embeddings] = gather(embed_as_served(network, rows))
    [texts] = gather(network.embed_text(batch["captions"], training=False))
    owners = tf.repeat(owners, network.num_candidates)
    images = tf.gather(embeddings, tf.reshape(places, [-1]))
    return network.most_convincing(columns, images, tf.gather(texts, owners))
