"""Compares a phrase localization step's time with its matrix products alone.

A batch has 100 phrases and 200 candidate regions per photo. The lower bound of
the time consists of a forward pass over all regions, and of forward and
backward passes over the mined regions, the positives and the phrases. For the
second row, gradients are computed for all regions.
"""

import numpy as np
import tensorflow as tf

from benchmarks import products, timing
from benchmarks.train_step import make_network, step_units
from tbnets.data import candidate_mining as mining
from tbnets.data.candidate_mining import CandidateMining
from tbnets.layers.branch import Branch
from tbnets.losses.presets import PRESETS
from tbnets.losses.triplet import TripletLoss

PHRASES, REGIONS = 100, 200
WIDTHS = REGION_DIM, PHRASE_DIM = 1405, 200
NEGATIVE_SHARE = 0.7
"""Share of the regions of a photo that are negatives of a phrase."""


def run(options):
    """Prints a table for each number of photos."""
    for num_images in options.num_images or (8, 100):
        _print_table(num_images, step_units(options), options.repeats or 15)


def _print_table(num_images, units, repeats):
    batch = _batch(num_images)
    branches = [Branch(units, "none", seed=seed) for seed in (1, 2)]
    preset = PRESETS["wang2018_phrases"]
    loss = TripletLoss(**preset, gradient=products.gradient())
    network = make_network(branches, WIDTHS, loss, mining=CandidateMining())
    picked = _num_picked(network, batch)
    images, regions = batch["images"], batch["candidates"]
    step, phrases = _step_products(units), batch["captions"]
    mined, every = (
        tf.concat([images, rows], axis=0)
        for rows in (regions[:picked], regions)
    )
    timing.print_table(
        f"{PHRASES} phrases, {num_images} photos, {len(regions)} regions of "
        f"which {picked} picked, {REGION_DIM}/{PHRASE_DIM} -> {units[0]} -> "
        f"{units[1]}, Adam",
        {
            "matmuls alone": products.graph(step, regions, mined, phrases),
            "matmuls, all regions learned from": products.graph(
                step, regions[:0], every, phrases
            ),
            "train step": products.graph(network.train_step, batch),
        },
        repeats,
    )


def _batch(num_images):
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
    seen, embed = [], mining.embed_picked

    def counted(*arguments):
        picked = embed(*arguments)
        seen.append(len(picked[1]))
        return picked

    mining.embed_picked = counted
    network.batch_loss(batch)
    mining.embed_picked = embed
    return seen[0]


def _step_products(units):
    kernels, of_phrases = (
        products.weights([width, *units], seed)
        for seed, width in enumerate(WIDTHS)
    )

    def step(mined, learned, phrases):
        values = products.forward(learned, kernels)
        texts = products.forward(phrases, of_phrases)
        return (
            products.forward(mined, kernels)[-1],
            products.backward(values, kernels),
            products.backward(texts, of_phrases),
        )

    return step
