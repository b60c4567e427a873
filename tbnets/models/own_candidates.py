"""Batches that bring the negatives of each caption along.

In phrase localization an "image" is a region, a "caption" a phrase, and the
negatives of a phrase are other regions of its photo, which are many. Beside
what every batch has, such a batch holds `drawn_for` int32 `[n]`, the row of
the caption that each image was drawn for; `candidates` `[c, feature_dim]`;
and `is_negative` bool `[m, c]`, which candidates do not match a caption.

Candidates are embedded twice: all of them as at inference, without dropout
and without a gradient, to find the few that matter; then these few together
with the images, as in training. With batch normalisation, its statistics in
training are those of images and picked candidates. A loss that learns from
all of them, the similarity network's softmax, embeds them once.
"""

import tensorflow as tf

from tbnets.losses import candidates as mining
from tbnets.models.two_branch import checked_dict

KEYS = ("drawn_for", "candidates", "is_negative")


def has_candidates(batch):
    """Tells whether a batch brings candidates; refuses half of them.

    Raises:
        ValueError: some of `KEYS` are there and others are not.
    """
    if not any(key in batch for key in KEYS):
        return False
    checked_dict("batch", batch, KEYS)
    return True


def embed_as_served(network, candidates):
    """Returns embeddings `[c, embedding_dim]` that carry no gradient."""
    return tf.stop_gradient(network.embed_images(candidates, training=False))


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
        `[m, k]`, where among these each pick stands.
    """
    images, candidates = batch["images"], batch["candidates"]
    used, places = mining.used_columns(columns, valid, tf.shape(candidates)[0])
    num_images = tf.shape(images)[0]
    rows = tf.concat([images, tf.gather(candidates, used)], axis=0)
    embeddings = network.embed_images(rows, training=training)
    return embeddings[:num_images], embeddings[num_images:], places
