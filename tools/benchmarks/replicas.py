"""Times the train step of one replica under a strategy beside that of none."""

import keras
import numpy as np
import tensorflow as tf

from benchmarks import timing
from tbnets.layers.branch import Branch
from tbnets.losses.triplet import TripletLoss
from tbnets.models.embedding_network import EmbeddingNetwork
from tbnets.training.fused_optimizers import FusedAdam


def _network(dim, hidden, captions_per_image):
    """Returns a compiled network on features of `hidden` numbers."""
    keras.utils.set_random_seed(0)
    branches = [Branch((hidden, dim), seed=seed) for seed in (100, 200)]
    network = EmbeddingNetwork(*branches)
    network.build(dict.fromkeys(("images", "captions"), (None, hidden)))
    loss = TripletLoss(max_positives=captions_per_image)
    network.compile(FusedAdam(1e-4), loss)
    network.optimizer.build(network.trainable_variables)
    return network


def run(num_images, captions_per_image, hidden, dim, repeats):
    """Prints a table of both, in turns.

    Args:
        num_images: images a batch.
        captions_per_image: captions of each.
        hidden: size of features and of the hidden layer.
        dim: size of the embeddings.
        repeats: timed runs of each row.
    """
    rng = np.random.default_rng(0)
    owners = np.repeat(np.arange(num_images), captions_per_image)
    images, captions = (
        tf.constant(rng.standard_normal((count, hidden), np.float32))
        for count in (num_images, len(owners))
    )
    batch = {
        "images": images,
        "captions": captions,
        "image_ids": tf.range(num_images, dtype=tf.int64),
        "caption_image_ids": tf.constant(owners, tf.int64),
    }
    strategy = tf.distribute.MirroredStrategy(["CPU:0"])
    alone = _network(dim, hidden, captions_per_image)
    with strategy.scope():
        shared = _network(dim, hidden, captions_per_image)
    of_none = tf.function(alone.train_step, autograph=False)
    of_one = tf.function(
        lambda batch: strategy.run(shared.train_step, (batch,)),
        autograph=False,
    )
    runs = {
        "no strategy": lambda: float(of_none(batch)["loss"]),
        "one replica": lambda: float(of_one(batch)["loss"]),
    }
    print(f"{num_images} images, {len(owners)} captions, {hidden} -> {dim}")
    timing.print_table(
        "step of", timing.interleaved(runs, repeats), "no strategy"
    )
