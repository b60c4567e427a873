"""Benchmark rows for tbnets and TensorFlow.

A row is a function that takes a dict of arrays and returns a step to time, as
in `peers.Row`.
"""

import keras
import tensorflow as tf

from benchmarks import arrays as data
from benchmarks.products import gradient, graph, learning
from benchmarks.train_step import make_batch, make_network, step_products
from tbnets.layers.branch import Branch
from tbnets.losses.infonce import InfoNCELoss
from tbnets.losses.presets import PRESETS
from tbnets.losses.triplet import TripletLoss

BOTH = {"image_to_text": 1.0, "text_to_image": 1.0}
HARDEST = TripletLoss(**PRESETS["vse++"], gradient=gradient())


def matmuls(arrays):
    """Times the similarity matrix and the products of its gradient."""

    def products(images, texts):
        matrix = tf.matmul(images, texts, transpose_b=True)
        return (
            tf.matmul(matrix, texts),
            tf.matmul(matrix, images, transpose_a=True),
        )

    return graph(products, *_some(arrays, "images", "texts"))


def _some(arrays, *names):
    return [arrays[name] for name in names]


def _learning(loss):
    """Returns a function that times a loss and its embedding gradients."""

    def row(arrays):
        def total(*inputs):
            return loss(*inputs).total

        return graph(learning(total), *_some(arrays, *data.NAMES))

    return row


top_k = _learning(
    TripletLoss(
        margin=data.MARGIN,
        num_negatives=data.NUM_NEGATIVES,
        term_weights=BOTH,
        gradient=gradient(),
    )
)
hardest = _learning(HARDEST)
every = _learning(
    TripletLoss(margin=data.MARGIN, negatives="all", term_weights=BOTH)
)
softmax = _learning(InfoNCELoss(temperature=data.TEMPERATURE))


def train_step(arrays):
    """Times a training step with two-layer branches, VSE++ and fused Adam."""
    units = arrays["image_1"].shape
    plain = {"batch_normalization": "none", "dropout": 0.0}
    branches = [Branch(units, **plain) for _ in range(2)]
    widths = [arrays[name].shape[1] for name in ("images", "texts")]
    network = make_network(branches, widths, HARDEST)
    for branch, side in zip(branches, ("image", "text")):
        dense = [x for x in branch.steps if isinstance(x, keras.layers.Dense)]
        for place, layer in enumerate(dense):
            layer.kernel.assign(arrays[f"{side}_{place}"])

    def step(batch):
        metrics = network.train_step(batch)
        return metrics["loss"], metrics

    return graph(step, make_batch(arrays))


def step_matmuls(arrays):
    """Measures the lower bound for a training step."""
    return step_products(make_batch(arrays), arrays["image_1"].shape)
