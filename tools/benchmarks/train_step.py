"""Times a whole train step against its matmuls alone.

The floor holds the float32 matrix products of one step and nothing else:
forward, for the weights' gradients and for the hidden layers' gradients in
both branches, and the similarities with theirs. The step adds activations,
batch normalisation, dropout, the loss, its miner and the Adam update, of
22 million weights where a branch has 2048 hidden units.
"""

import keras
import numpy as np
import tensorflow as tf

from benchmarks import loss, timing
from tbnets.layers.branch import Branch
from tbnets.losses import triplet
from tbnets.models.embedding_network import EmbeddingNetwork
from tbnets.training.optimizers import FusedAdam

IMAGE_DIM, TEXT_DIM = 4096, 6000


def run(num_images, captions_per_image, hidden_dim, embedding_dim, repeats):
    """Prints the table.

    Args:
        num_images: Images in a batch.
        captions_per_image: Captions of each image.
        hidden_dim: Hidden units of each branch.
        embedding_dim: Size of the embeddings.
        repeats: Times each row is run; the median is printed.
    """
    owners = np.repeat(np.arange(num_images), captions_per_image)
    images = tf.random.stateless_normal([num_images, IMAGE_DIM], (0, 0))
    texts = tf.random.stateless_normal([len(owners), TEXT_DIM], (0, 1))
    batch = {
        "images": images,
        "captions": texts,
        "image_ids": tf.range(num_images),
        "caption_image_ids": tf.constant(owners),
    }
    rows = {
        "matmuls alone, float32": loss.waiting(
            tf.function(matmuls(hidden_dim, embedding_dim)), (images, texts)
        )
    }
    for policy in ("float32", "mixed_bfloat16"):
        network = _network(hidden_dim, embedding_dim, policy)
        step = tf.function(network.train_step)
        rows[f"train step, {policy}"] = loss.waiting(step, (batch,))
    timing.print_table(
        f"{num_images} images, {len(owners)} captions, "
        f"{IMAGE_DIM}/{TEXT_DIM} -> {hidden_dim} -> {embedding_dim}, Adam",
        timing.interleaved(rows, repeats),
        "matmuls alone, float32",
    )


def _network(hidden_dim, embedding_dim, policy):
    """Builds a network whose layers compute under a Keras dtype policy."""
    before = keras.mixed_precision.global_policy()
    keras.mixed_precision.set_global_policy(policy)
    try:
        network = EmbeddingNetwork(
            Branch((hidden_dim, embedding_dim)),
            Branch((hidden_dim, embedding_dim)),
        )
        network.build(
            {"images": (None, IMAGE_DIM), "captions": (None, TEXT_DIM)}
        )
    finally:
        keras.mixed_precision.set_global_policy(before)
    network.compile(FusedAdam(1e-4), triplet.TripletLoss(gradient="sparse"))
    return network


def matmuls(hidden_dim, embedding_dim):
    """Returns the products of a step; values stand in for gradients."""
    weights = {
        dim: (
            tf.random.stateless_normal([dim, hidden_dim], (1, dim)),
            tf.random.stateless_normal([hidden_dim, embedding_dim], (2, dim)),
        )
        for dim in (IMAGE_DIM, TEXT_DIM)
    }

    def products(images, texts):
        results, outputs = [], []
        for inputs, dim in ((images, IMAGE_DIM), (texts, TEXT_DIM)):
            first, second = weights[dim]
            hidden = tf.matmul(inputs, first)
            output = tf.matmul(hidden, second)
            results += [
                tf.matmul(hidden, output, transpose_a=True),
                tf.matmul(output, second, transpose_b=True),
                tf.matmul(inputs, hidden, transpose_a=True),
            ]
            outputs.append(output)
        return results + loss.floor(*outputs)

    return products
