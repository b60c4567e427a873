"""Compares the times of a training step and of its matrix products.

Besides the products, the step includes activations, batch normalisation,
dropout, the loss, its miner and the Adam update.
"""

import keras
import tensorflow as tf

from benchmarks import arrays, products, timing
from tbnets.layers.branch import Branch
from tbnets.losses.triplet import TripletLoss
from tbnets.models.embedding_network import EmbeddingNetwork
from tbnets.training.optimizers import FusedAdam


def run(options):
    """Prints the table."""
    count, units = options.first_size(500), step_units(options)
    widths = arrays.IMAGE_DIM, arrays.TEXT_DIM
    batch = make_batch(arrays.features(count, 2, *widths))
    runs = {
        "matmuls alone, float32": step_products(batch, units),
        "matmuls alone, bfloat16": step_products(batch, units, tf.bfloat16),
    }
    before = keras.mixed_precision.global_policy()
    for policy in ("float32", "mixed_bfloat16"):
        keras.mixed_precision.set_global_policy(policy)
        branches = [Branch(units, seed=seed) for seed in (100, 200)]
        loss = TripletLoss(gradient=products.gradient())
        network = make_network(branches, widths, loss)
        runs[f"train step, {policy}"] = products.graph(
            network.train_step, batch
        )
    keras.mixed_precision.set_global_policy(before)
    timing.print_table(
        f"{count} images, {2 * count} captions, {widths[0]}/{widths[1]} -> "
        f"{units[0]} -> {units[1]}, Adam",
        runs,
        options.repeats or 15,
    )


def step_units(options):
    """Returns the layer sizes of a branch."""
    return options.hidden_dim, options.embedding_dim


def make_batch(features):
    """Returns a batch from the arrays of `arrays.features`."""
    keys = "images", "captions", "image_ids", "caption_image_ids"
    return {key: tf.constant(features[n]) for key, n in zip(keys, arrays.NAMES)}


def make_network(branches, widths, loss, **options):
    """Returns a network for inputs of the sizes `widths`.

    It is compiled with the loss and other arguments of `compile`.
    """
    network = EmbeddingNetwork(*branches)
    network.build({"images": (None, widths[0]), "captions": (None, widths[1])})
    network.compile(FusedAdam(1e-4), loss, **options)
    return network


def step_products(batch, units, dtype=tf.float32):
    """Returns a function that computes the matrix products of a training step.

    The layers compute in `dtype`. The similarities are computed in float32.
    """
    inputs = [tf.cast(batch[name], dtype) for name in ("images", "captions")]
    kernels = [
        products.weights([rows.shape[1], *units], seed, dtype)
        for seed, rows in enumerate(inputs)
    ]
    dense_loss = products.with_gradients(products.similarities)

    def step(*inputs):
        values = [products.forward(*pair) for pair in zip(inputs, kernels)]
        gradients = [products.backward(*pair) for pair in zip(values, kernels)]
        outputs = [tf.cast(rows[-1], tf.float32) for rows in values]
        return gradients, dense_loss(*outputs)

    return products.graph(step, *inputs)
