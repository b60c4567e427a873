"""Embeds whole splits with a trained network, a chunk at a time."""

import numpy as np
import tensorflow as tf

from tbnets.checked_numbers import check_finite
from tbnets.data.batches import read_images
from tbnets.data.examples import refuse_broken_images

IMAGE_CHUNK = 256
CAPTION_CHUNK = 1024


class Embedder:
    """Embeds the examples of a split; traces its graphs once.

    Args:
        network: a built `EmbeddingNetwork`.
        image_size: side of decoded photos in pixels, for networks that
            start at pixels.
    """

    def __init__(self, network, image_size=None):
        def images(batch):
            if batch.dtype == tf.string:
                batch = read_images(batch, image_size)
            return network.embed_images(batch, training=False)

        def texts(batch):
            return network.embed_text(batch, training=False)

        # Nothing here is for AutoGraph, which takes longer than the tracing.
        options = {"reduce_retracing": True, "autograph": False}
        self._images = tf.function(images, **options)
        self._texts = tf.function(texts, **options)

    def images(self, examples):
        """Returns float32 `[num_images, embedding_dim]` of a split."""
        rows = np.arange(examples.records.num_images)
        try:
            return _in_chunks(self._images, examples.images, rows, IMAGE_CHUNK)
        except tf.errors.OpError:
            refuse_broken_images(examples.images)
            raise

    def texts(self, examples):
        """Returns float32 `[num_captions, embedding_dim]` of a split.

        Captions of one length share a chunk, so little padding is read.
        """
        rows = np.arange(examples.records.num_captions)
        if hasattr(examples.texts, "lengths"):
            rows = np.argsort(examples.texts.lengths, kind="stable")
        return _in_chunks(self._texts, examples.texts, rows, CAPTION_CHUNK)

    def batch(self, images, captions):
        """Returns the embeddings of a batch's images and captions."""
        sides = (self._images, images), (self._texts, captions)
        # A kernel that multiplies and cuts off at once makes 0 of a NaN.
        for name, rows in (("images", images), ("captions", captions)):
            check_finite(name, np.asarray(rows))
        return [embed(tf.convert_to_tensor(x)).numpy() for embed, x in sides]


def _in_chunks(embed, inputs, rows, chunk):
    outputs = None
    for start in range(0, len(rows), chunk):
        part = rows[start : start + chunk]
        batch = tf.convert_to_tensor(inputs.batch(part), inputs.dtype)
        embeddings = embed(batch).numpy()
        if outputs is None:
            outputs = np.zeros((len(rows), embeddings.shape[1]), np.float32)
        outputs[part] = embeddings
    return np.zeros((0, 1), np.float32) if outputs is None else outputs
