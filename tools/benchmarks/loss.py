"""Times miner and loss against the distance matmuls alone.

The floor holds what no implementation with dense matrices can leave out: the
inner products of images with captions and of captions with captions, and the
products that carry a dense gradient of each matrix back to the embeddings.
Nothing is mined, masked or compared in it. Both directions between images and
captions read one matrix, so it is computed once.

The loss starts from embeddings and ids: it builds the masks, mines, and
returns the total, the terms and the gradients of all embeddings.
"""

import numpy as np
import tensorflow as tf

from benchmarks import timing
from tbnets.losses import triplet


def run(num_images, captions_per_image, embedding_dim, num_negatives, repeats):
    """Prints one table for each number of images.

    Args:
        num_images: List of numbers of images in a batch.
        captions_per_image: Captions of each image.
        embedding_dim: Size of the embeddings.
        num_negatives: K, negatives kept for an anchor.
        repeats: Times each row is run; the median is printed.
    """
    for count in num_images:
        inputs = _batch(count, captions_per_image, embedding_dim)
        step = loss_step(
            triplet.TripletLoss(num_negatives=num_negatives, gradient="sparse")
        )
        milliseconds = timing.interleaved(
            {
                "matmuls forward": waiting(tf.function(_forward), inputs),
                "matmuls forward + backward": waiting(
                    tf.function(floor), inputs
                ),
                "miner + loss": waiting(tf.function(step), inputs),
            },
            repeats,
        )
        timing.print_table(
            f"{count} images, {count * captions_per_image} captions, "
            f"{embedding_dim}-d, K = {num_negatives}, three terms",
            milliseconds,
            "matmuls forward + backward",
        )


def _batch(num_images, captions_per_image, embedding_dim):
    """Makes embeddings whose captions lie near their image, and ids."""
    rng = np.random.default_rng(0)
    owners = np.repeat(np.arange(num_images), captions_per_image)
    images = rng.standard_normal((num_images, embedding_dim))
    texts = images[owners] + rng.standard_normal((len(owners), embedding_dim))
    unit = [
        rows / np.linalg.norm(rows, axis=1, keepdims=True)
        for rows in (images, texts)
    ]
    return (
        *[tf.constant(rows, tf.float32) for rows in unit],
        tf.range(num_images),
        tf.constant(owners),
    )


def _forward(images, texts, *ids):
    return (
        tf.matmul(images, texts, transpose_b=True),
        tf.matmul(texts, texts, transpose_b=True),
    )


def floor(images, texts, *ids):
    """The products alone; a matrix stands in for its own gradient."""
    with tf.GradientTape() as tape:
        tape.watch([images, texts])
        matrices = _forward(images, texts)
    return tape.gradient(
        matrices,
        [images, texts],
        output_gradients=[tf.stop_gradient(matrix) for matrix in matrices],
    )


def loss_step(loss):
    """Returns a function: a loss' output, and gradients of embeddings."""

    def step(images, texts, image_ids, caption_image_ids):
        with tf.GradientTape() as tape:
            tape.watch([images, texts])
            output = loss(images, texts, image_ids, caption_image_ids)
        return output, tape.gradient(output.total, [images, texts])

    return step


def waiting(function, inputs):
    """Wraps a function so that it returns once its results are there."""

    def call():
        for result in tf.nest.flatten(function(*inputs)):
            result.numpy()

    return call


def valued(function, inputs):
    """Wraps one so that it returns the first of its results, once all are."""

    def call():
        value, *others = tf.nest.flatten(function(*inputs))
        for one in others:
            one.numpy()
        return value.numpy()

    return call
