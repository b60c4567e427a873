"""What a step mines among the candidates that its batch brings.

In phrase localization an "image" is a region, a "caption" a phrase, and the
negatives of a phrase are other regions of its photo, which are many. Beside
what every batch has, such a batch holds `drawn_for` int32 `[n]`, the row of
the caption that each image was drawn for; `candidates` `[c, feature_dim]`;
and `is_negative` bool `[m, c]`, which candidates do not match a caption.

Candidates are embedded twice: all of them as at inference, without dropout
and without a gradient, to find the few that matter; then the union of these
together with the images, as in training::

    columns, valid = hardest_candidates(similarities, is_negative, 30)
    images, picked, places = embed_picked(network, batch, columns, valid, True)
    view = candidate_view(phrases, images, picked, matches, places, valid)

With batch normalisation, its statistics in training are those of images and
picked candidates. A loss that learns from all of them, the similarity
network's softmax, embeds them once.
"""

import tensorflow as tf

from tbnets.losses import miners, replicas
from tbnets.losses.hinges import View

KEYS = ("drawn_for", "candidates", "is_negative")


def embed_as_served(network, candidates):
    """Returns embeddings `[c, embedding_dim]` that carry no gradient."""
    return tf.stop_gradient(network.embed_images(candidates, training=False))


def hardest_candidates(similarities, is_negative, num_negatives):
    """Finds the most similar negatives of every anchor.

    Args:
        similarities: float32 `[anchors, candidates]`; larger is closer.
        is_negative: bool `[anchors, candidates]`, which candidates each
            anchor may take as a negative.
        num_negatives: negatives K kept for an anchor, at least 1; None for
            all. Wang 2018, phrase localization: 30.

    Returns:
        A pair `(columns, valid)` of shape `[anchors, min(K, candidates)]` as
        of `miners.hardest_negatives`. It carries no gradient.

    Source: Wang et al. 2018, Algorithm 1, 3 (b); departures: the hardest are
    the closest, for any positive of the anchor; those without a loss fall
    out where hinges are taken.
    """
    is_negative = tf.convert_to_tensor(is_negative)
    if num_negatives is None:
        num_negatives = is_negative.shape[1] or tf.shape(is_negative)[1]
    is_positive = tf.logical_not(is_negative)
    return miners.hardest_negatives(similarities, is_positive, num_negatives)


def used_columns(columns, valid, num_candidates):
    """Lists each candidate that somebody picked, once.

    The list has as many entries as there are, so its length is only known
    when it runs: this does not compile under XLA.

    Args:
        columns: int32 `[anchors, k]`, what a miner returned.
        valid: bool `[anchors, k]`, which of them count.
        num_candidates: int32 scalar, how many candidates there are.

    Returns:
        (used, places): int32 `[n]`, the candidates in ascending order, and
        int32 `[anchors, k]`, where in `used` each pick stands; 0 where it
        does not count.
    """
    spare = tf.where(valid, columns, num_candidates)
    ones = tf.ones_like(columns)
    marks = tf.math.unsorted_segment_max(ones, spare, num_candidates + 1)
    # Of replicas, each knows what its own anchors picked.
    is_used = replicas.summed(tf.maximum(marks[:num_candidates], 0)) > 0
    place = tf.cumsum(tf.cast(is_used, tf.int32), exclusive=True)
    used = tf.cast(tf.where(is_used)[:, 0], tf.int32)
    # A column more, so that there is one where there are no candidates.
    places = tf.gather(tf.pad(place, [[0, 1]]), columns)
    return used, tf.where(valid, places, 0)


def picked_rows(candidates, columns, valid):
    """Returns the candidates that somebody picked, and where each pick stands.

    Args:
        candidates: `[c, feature_dim]`.
        columns: int32 `[m, k]`, rows of the candidates.
        valid: bool `[m, k]`, which of them count.

    Returns:
        (rows, places): of replicas, `rows` are those that this one has, and
        `places` int32 `[m, k]` counts through the rows of all.
    """
    num_rows = tf.shape(candidates)[0]
    first, total = replicas.span(num_rows)
    used, places = used_columns(columns, valid, total)
    if replicas.num_replicas() > 1:
        used -= first
        used = tf.boolean_mask(used, (used >= 0) & (used < num_rows))
    return tf.gather(candidates, used), places


def embed_picked(network, batch, columns, valid, training):
    """Embeds the images of a batch and the candidates that were picked.

    Args:
        network: a two-branch model.
        batch: as above.
        columns: int32 `[m, k]`, rows of the candidates.
        valid: bool `[m, k]`, which of them count.
        training: whether dropout is on.

    Returns:
        (images, candidates, places): float32 `[n, embedding_dim]`; float32
        `[u, embedding_dim]`, each candidate that was picked, once; and int32
        `[m, k]`, where among these each pick stands. Of replicas, images and
        candidates are those of all.
    """
    images = batch["images"]
    picked, places = picked_rows(batch["candidates"], columns, valid)
    num_images = tf.shape(images)[0]
    both = tf.concat([images, picked], axis=0)
    embeddings = network.embed_images(both, training=training)
    both = embeddings[:num_images], embeddings[num_images:]
    return *replicas.gather(*both), places


def candidate_view(anchors, images, candidates, matches, places, valid):
    """Builds the view of anchors that rank their matches and their picks.

    Args:
        anchors: float32 `[anchors, embedding_dim]`.
        images: float32 `[images, embedding_dim]`, among which the matches
            are.
        candidates: float32 `[n, embedding_dim]`, those of `used_columns`.
        matches: bool `[anchors, images]`.
        places: int32 `[anchors, k]`, of `used_columns`.
        valid: bool `[anchors, k]`.

    Returns:
        A `hinges.View`: an image that does not match is no negative; only a
        pick is.
    """
    num_anchors, num_used = tf.shape(anchors)[0], tf.shape(candidates)[0]
    rows = tf.broadcast_to(tf.range(num_anchors)[:, None], tf.shape(places))
    # What does not count goes to a column that is cut off.
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
