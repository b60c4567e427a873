"""Times a train step of phrase localization against its matmuls alone.

A batch has 100 phrases, of a few photos or of 100, and 200 regions of each
photo that may be negatives. The floor holds the float32 products of a step:
all regions forward, the picked ones and the positives forward and backward,
and the phrases. Beside it stand the products of a step that would have all
regions under the tape.

A second table is of the similarity network with a softmax over all negatives
of a phrase: its floor has all regions forward and backward, and its head for
each phrase with each of its negatives.
"""

import numpy as np
import tensorflow as tf

from benchmarks import loss, timing
from tbnets.data.localization import mining
from tbnets.data.localization.mining import CandidateMining
from tbnets.layers.branch import Branch
from tbnets.losses import presets, triplet
from tbnets.models.embedding_network import EmbeddingNetwork
from tbnets.models.similarity_network import SimilarityNetwork
from tbnets.training.optimizers import FusedAdam

PHRASES, REGIONS = 100, 200
REGION_DIM, PHRASE_DIM = 1405, 200
NEGATIVE_SHARE = 0.7
"""Of the regions of a photo, for a phrase of it."""


def run(num_images, hidden_dim, embedding_dim, repeats):
    """Prints the table.

    Args:
        num_images: photos in a batch.
        hidden_dim: hidden units of each branch.
        embedding_dim: size of the embeddings.
        repeats: times each row is run; the median is printed.
    """
    batch, units = _batch(num_images), (hidden_dim, embedding_dim)
    network = EmbeddingNetwork(
        Branch(units, "none", seed=1), Branch(units, "none", seed=2)
    )
    network.build(
        {"images": (None, REGION_DIM), "captions": (None, PHRASE_DIM)}
    )
    network.compile(
        FusedAdam(1e-6),
        triplet.TripletLoss(
            **presets.PRESETS["wang2018_phrases"], gradient="sparse"
        ),
        mining=CandidateMining(),
    )
    picked = _num_picked(network, batch)
    everything, some = batch["candidates"], batch["candidates"][:picked]
    learned = tf.concat([batch["images"], some], axis=0)
    whole = tf.concat([batch["images"], everything], axis=0)
    products = tf.function(_matmuls(units))
    floor = "matmuls alone"
    rows = {
        floor: loss.waiting(products, (everything, learned, batch["captions"])),
        "matmuls, all regions learned from": loss.waiting(
            products, (everything[:0], whole, batch["captions"])
        ),
        "train step": loss.waiting(tf.function(network.train_step), (batch,)),
    }
    timing.print_table(
        f"{PHRASES} phrases, {num_images} photos, {len(everything)} regions "
        f"of which {picked} picked, {REGION_DIM}/{PHRASE_DIM} -> {hidden_dim} "
        f"-> {embedding_dim}, Adam",
        timing.interleaved(rows, repeats),
        floor,
    )
    _run_softmax(batch, units, num_images, repeats)


def _run_softmax(batch, units, num_images, repeats):
    """Prints the table of the similarity network."""
    network = SimilarityNetwork(
        Branch(units, "none", seed=1), Branch(units, "none", seed=2)
    )
    network.build(
        {"images": (None, REGION_DIM), "captions": (None, PHRASE_DIM)}
    )
    mining = CandidateMining()
    network.compile(FusedAdam(1e-6), pair_loss="softmax", mining=mining)
    regions = tf.concat([batch["images"], batch["candidates"]], axis=0)
    count = PHRASES + int(np.sum(batch["is_negative"]))
    pairs = tf.random.stateless_normal([count, units[-1]], (3, 0))
    branches = _matmuls(units)
    head = _head_matmuls((units[-1], *network.head.units, 1))

    @tf.function
    def products(regions, phrases, pairs):
        return branches(regions[:0], regions, phrases) + head(pairs)

    floor = "matmuls alone, softmax"
    rows = {
        floor: loss.waiting(products, (regions, batch["captions"], pairs)),
        "softmax step": loss.waiting(tf.function(network.train_step), (batch,)),
    }
    head_units = "-".join(map(str, network.head.units))
    timing.print_table(
        f"{PHRASES} phrases, {num_images} photos, {count} pairs judged by "
        f"{units[-1]}-{head_units}-1, {REGION_DIM}/{PHRASE_DIM} -> {units[0]} "
        f"-> {units[1]}, Adam",
        timing.interleaved(rows, repeats),
        floor,
    )


def _batch(num_images):
    """Returns a batch of random numbers."""
    generator = np.random.default_rng(0)

    def normal(*shape):
        return tf.constant(generator.normal(size=shape), tf.float32)

    owners = np.arange(PHRASES) * num_images // PHRASES
    of_region = np.repeat(np.arange(num_images), REGIONS)
    is_negative = generator.random((PHRASES, len(of_region))) < NEGATIVE_SHARE
    return {
        "images": normal(PHRASES, REGION_DIM),
        "captions": normal(PHRASES, PHRASE_DIM),
        "image_ids": tf.range(PHRASES),
        "caption_image_ids": tf.range(PHRASES),
        "drawn_for": tf.range(PHRASES),
        "candidates": normal(len(of_region), REGION_DIM),
        "is_negative": tf.constant(
            is_negative & (owners[:, None] == of_region)
        ),
    }


def _num_picked(network, batch):
    """Returns how many candidates the network picks of a batch."""
    seen, embed = [], mining.embed_picked

    def counted(*arguments):
        found = embed(*arguments)
        seen.append(len(found[1]))
        return found

    mining.embed_picked = counted
    try:
        network.batch_loss(batch)
    finally:
        mining.embed_picked = embed
    return seen[0]


def _matmuls(units):
    """Returns the products of a step; values stand in for gradients."""
    weights = {
        dim: (
            tf.random.stateless_normal([dim, units[0]], (1, dim)),
            tf.random.stateless_normal(units, (2, dim)),
        )
        for dim in (REGION_DIM, PHRASE_DIM)
    }

    def forward(rows):
        first, second = weights[rows.shape[1]]
        hidden = tf.matmul(rows, first)
        return hidden, tf.matmul(hidden, second)

    def backward(rows):
        hidden, output = forward(rows)
        _, second = weights[rows.shape[1]]
        return [
            tf.matmul(hidden, output, transpose_a=True),
            tf.matmul(output, second, transpose_b=True),
            tf.matmul(rows, hidden, transpose_a=True),
        ]

    def products(mined, learned, phrases):
        found = [forward(mined)[1], *forward(phrases)]
        return found + backward(learned) + backward(phrases)

    return products


def _head_matmuls(dims):
    """Returns the products of a head, forward and backward, likewise."""
    weights = [
        tf.random.stateless_normal(pair, (4, place))
        for place, pair in enumerate(zip(dims, dims[1:]))
    ]

    def products(rows):
        found = []
        for weight in weights:
            outputs = tf.matmul(rows, weight)
            found.append(tf.matmul(rows, outputs, transpose_a=True))
            found.append(tf.matmul(outputs, weight, transpose_b=True))
            rows = outputs
        return found

    return products
