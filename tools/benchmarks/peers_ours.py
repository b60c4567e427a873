"""Rows of tbnets, and the floor: matrix products by TensorFlow."""

import keras
import tensorflow as tf

from benchmarks import loss as loss_benchmark
from benchmarks import peers_arrays as given
from benchmarks import train_step as step_benchmark
from tbnets.layers.branch import Branch
from tbnets.losses.infonce import InfoNCELoss
from tbnets.losses.presets import PRESETS
from tbnets.losses.triplet import TripletLoss
from tbnets.models.embedding_network import EmbeddingNetwork
from tbnets.training.optimizers import FusedAdam

BOTH = {"image_to_text": 1.0, "text_to_image": 1.0}


def matmuls(arrays):
    """The floor: a matrix of similarities, and the products of its gradient."""

    @tf.function
    def products(images, texts):
        matrix = tf.matmul(images, texts, transpose_b=True)
        return (
            tf.matmul(matrix, texts),
            tf.matmul(matrix, images, transpose_a=True),
        )

    rows = [tf.constant(arrays[name]) for name in ("images", "texts")]
    return loss_benchmark.waiting(products, rows)


def within_matmuls(arrays):
    """The floor of one view."""
    return matmuls(given.one_view(arrays))


def top_k(arrays):
    """Each positive pair against the K hardest negatives of its anchor."""
    return _learning(
        arrays,
        TripletLoss(
            margin=given.MARGIN,
            num_negatives=given.NUM_NEGATIVES,
            term_weights=BOTH,
            gradient="sparse",
        ),
    )


def hardest(arrays):
    """Each positive pair against the one hardest negative, VSE++."""
    return _learning(arrays, TripletLoss(**PRESETS["vse++"], gradient="sparse"))


def every(arrays):
    """All triplets."""
    options = {"negatives": "all", "term_weights": BOTH}
    return _learning(arrays, TripletLoss(margin=given.MARGIN, **options))


def batch_hard(arrays):
    """Images and captions as one view."""
    loss = TripletLoss(
        margin=given.MARGIN,
        negatives="hardest",
        reduction="mean",
        gradient="sparse",
    )
    labels = tf.constant(given.labels(arrays))

    def total(images, texts, *ids):
        return loss(tf.concat([images, texts], 0), labels)

    return _learning(arrays, total)


def softmax(arrays):
    """InfoNCE, the mean of both directions."""
    return _learning(arrays, InfoNCELoss(temperature=given.TEMPERATURE))


def softmax_one_way(arrays):
    """InfoNCE of images that ask."""
    return _learning(
        arrays, InfoNCELoss(given.TEMPERATURE, {"image_to_text": 1.0})
    )


def _learning(arrays, loss):
    """Returns a step: the loss and the gradients of all embeddings."""

    @tf.function
    def learn(images, texts, *ids):
        with tf.GradientTape() as tape:
            tape.watch([images, texts])
            total = loss(images, texts, *ids).total
        return total, tape.gradient(total, [images, texts])

    names = ("images", "texts", "image_ids", "owners")
    inputs = [tf.constant(arrays[name]) for name in names]
    return loss_benchmark.valued(learn, inputs)


def train_step(arrays):
    """Two linear layers a side, the hardest negatives, Adam in one pass."""
    sizes = [arrays["image_1"].shape[0], arrays["image_1"].shape[1]]
    plain = {"batch_normalization": "none", "dropout": 0.0}
    branches = [Branch(sizes, **plain) for _ in range(2)]
    network = EmbeddingNetwork(*branches)
    widths = [arrays[name].shape[1] for name in ("images", "texts")]
    network.build({"images": (None, widths[0]), "captions": (None, widths[1])})
    for branch, side in zip(branches, ("image", "text")):
        dense = [x for x in branch.steps if isinstance(x, keras.layers.Dense)]
        for place, layer in enumerate(dense):
            layer.kernel.assign(arrays[f"{side}_{place}"])
    loss = TripletLoss(**PRESETS["vse++"], gradient="sparse")
    network.compile(FusedAdam(1e-4), loss)
    names = "images", "texts", "image_ids", "owners"
    keys = "images", "captions", "image_ids", "caption_image_ids"
    batch = {key: tf.constant(arrays[name]) for key, name in zip(keys, names)}
    learn = tf.function(network.train_step)
    return lambda: learn(batch)["loss"].numpy()


def step_matmuls(arrays):
    """The floor of a train step."""
    hidden, dim = arrays["image_1"].shape
    products = tf.function(step_benchmark.matmuls(hidden, dim))
    rows = [tf.constant(arrays[name]) for name in ("images", "texts")]
    return loss_benchmark.waiting(products, rows)
