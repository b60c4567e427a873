"""Runs the checks of tests/losses/test_replicas.py on logical devices.

Logical devices must be made before TensorFlow starts. So all checks run in one
process, which prints the error of each check. Tracing a step of two replicas
takes seconds, so only the checks of InfoNCE and of mined candidates do it.
"""

import contextlib
import functools
import itertools
import json
import sys
import traceback

import keras
import numpy as np
import tensorflow as tf

from tbnets.data.batches import Share, distributed
from tbnets.data.candidate_mining import CandidateMining
from tbnets.layers.branch import (
    Branch,
    CanonicalProjection,
    PairHead,
    SeededDropout,
)
from tbnets.layers.tree_lstm import TreeEncoder
from tbnets.losses.infonce import InfoNCELoss
from tbnets.losses.ranking import TERMS
from tbnets.losses.triplet import TripletLoss
from tbnets.models.cca import CCA
from tbnets.models.embedding_network import EmbeddingNetwork
from tbnets.models.hm_lstm import HMLSTM
from tbnets.models.similarity_network import SimilarityNetwork
from tbnets.training.optimizers import FusedAdam, FusedSGD
from tests.eager import without_tracing
from tests.models import test_candidates

NUM_DEVICES = 2
KERAS_2 = keras.__version__.startswith("2.")
ALL_TERMS = dict(zip(TERMS, (1.0, 1.5, 0.5, 0.3)))
BETWEEN = {term: ALL_TERMS[term] for term in TERMS[:2]}
"""Terms that share a matrix; each further term takes a second to trace."""
VECTORS = {"captions": (None, 5)}
CHECKS = {}
# Keras 2 differs only in optimizers, layers and variables: no model checks.
OF_MODELS = "candidates", "similarity", "hm_lstm"


def check(function):
    """Registers a function as a check."""
    if not (KERAS_2 and function.__name__.startswith(OF_MODELS)):
        CHECKS[function.__name__] = function
    return function


@functools.cache
def strategy_of_all():
    """One for all checks: messages of two would be taken for each other's."""
    devices = [f"CPU:{i}" for i in range(NUM_DEVICES)]
    return tf.distribute.MirroredStrategy(devices)


class Batches:
    """One batch, whose arrays are shared by their first axis.

    Args:
        batch: dict of arrays.
        share: function (batch, `Share`) -> the share.
    """

    smallest = None

    def __init__(self, batch, share):
        self._batch, self._share = batch, share

    def dataset_of(self, shares):
        spec = {
            key: tf.TensorSpec([None, *array.shape[1:]], array.dtype)
            for key, array in self._batch.items()
        }
        return tf.data.Dataset.from_generator(
            lambda: (self._share(self._batch, one) for one in shares),
            output_signature=spec,
        )


def rows_of(batch, share):
    return {key: array[share.of(len(array))] for key, array in batch.items()}


def trees_of(batch, share):
    """Phrases go with their captions, and count the nodes of these."""
    own = rows_of(batch, share)
    lengths = (batch["captions"][:, :, 2] > 0).sum(axis=1)
    captions = share.of(len(lengths))
    ends = np.append(0, np.cumsum(lengths))
    start, stop = ends[captions.start], ends[captions.stop]
    nodes = batch["phrase_nodes"]
    said = (nodes >= start) & (nodes < stop)
    for key in ("region_of", "is_contrast", "weights"):
        own[key] = batch[key][said]
    return own | {"phrase_nodes": (nodes[said] - start).astype("int32")}


def compare(make, batch, steps=1, share=rows_of, traced=False):
    """Compares steps of replicas with those of one device: logs, weights."""
    with without_tracing():
        alone = make()
        wanted = [alone.train_step(tensors(batch)) for _ in range(steps)]
    strategy = strategy_of_all()
    with strategy.scope():
        shared = make()
        shared.optimizer.build(shared.trainable_variables)

    def step(values):
        return strategy.run(shared.train_step, args=(values,))

    if traced:
        step = tf.function(step, autograph=False)
    dataset = distributed(strategy, Batches(batch, share))
    for logs in wanted:
        [values] = list(dataset)
        found = step(values)
        assert found.keys() == logs.keys()
        for name, value in logs.items():
            for own in strategy.experimental_local_results(found[name]):
                close(own, value, name)
    for one, other in zip(alone.weights, shared.weights, strict=True):
        value = other if KERAS_2 else other.value
        for own in strategy.experimental_local_results(value):
            close(own, one, getattr(one, "path", one.name))


def close(found, wanted, name):
    found, wanted = (
        np.asarray(tf.convert_to_tensor(x)) for x in (found, wanted)
    )
    largest = np.abs(wanted).max(initial=1)
    np.testing.assert_allclose(
        found, wanted, 1e-5, 1e-5 * largest, err_msg=name
    )


def tensors(batch):
    return {key: tf.constant(array) for key, array in batch.items()}


def made_batch():
    rng = np.random.default_rng(0)
    owners = np.array([0, 0, 1, 2, 2, 2, 4, 5, 6, 6, 6])
    return {
        "images": rng.normal(size=(7, 6)).astype("f4"),
        "captions": rng.normal(size=(11, 5)).astype("f4"),
        "image_ids": np.arange(7) + 1000092795,
        "caption_image_ids": owners + 1000092795,
        "text_ids": np.array([0, 1, 2, 0, 3, 4, 5, 6, 7, 8, 8]),
    }


def branches(batch_normalization="none"):
    keras.utils.set_random_seed(0)
    return [
        Branch((9, 4), batch_normalization, 0.0, seed=seed) for seed in (10, 20)
    ]


def embedding_network(
    loss, encoder=None, norm="none", optimizer=None, **options
):
    sides = branches(norm)  # First: they set the seed of all weights.
    network = EmbeddingNetwork(*sides, encoder and encoder())
    network.build({"images": (None, 6), **VECTORS})
    optimizer = optimizer or FusedSGD(0.1, 0.9)
    network.compile(optimizer, loss, gradient_clip_norm=0.5, **options)
    return network


@check
def softmax_in_chunks():
    def make():
        def encoder():
            return Branch((8, 5), "none", dropout=0.0)

        loss = InfoNCELoss(0.2, BETWEEN)
        return embedding_network(loss, encoder, encode_chunk=3)

    compare(make, made_batch(), traced=True)


@check
def statistics_of_a_batch():
    loss = TripletLoss(0.3, 3, {term: ALL_TERMS[term] for term in TERMS[::2]})

    def make():
        adam = FusedAdam(weight_decay=0.1, use_ema=True, epsilon=1e-3)
        return embedding_network(loss, norm="first", optimizer=adam)

    compare(make, made_batch(), steps=2)


@check
def candidates():
    # A mean would be the same of triplets that both replicas count.
    loss = TripletLoss(0.3, 3, {"text_to_image": 1.5}, reduction="sum")

    def make():
        return embedding_network(loss, mining=CandidateMining())

    compare(make, test_candidates.batch(13), traced=True)


def compare_similarity(batch, **options):
    def make():
        sides = branches()  # First: they set the seed of all weights.
        head = PairHead((6, 3), 0.0, seed=30)
        network = SimilarityNetwork(*sides, head=head)
        network.build({"images": (None, 6), **VECTORS})
        network.compile("sgd", **options)
        return network

    compare(make, batch)


@check
def similarity_logistic():
    compare_similarity(made_batch(), num_candidates=3)


@check
def similarity_softmax():
    options = {"loss": "softmax", "mining": CandidateMining()}
    compare_similarity(test_candidates.batch(13), **options)


@check
def hm_lstm():
    # Its arrays are made by TensorFlow, which would start before its devices.
    from tests.models.test_hm_lstm import BATCH, VOCABULARY

    def make():
        sides = branches()  # First: they set the seed of all weights.
        network = HMLSTM(
            *sides,
            text_encoder=TreeEncoder(VOCABULARY.size, 3, 6),
            region_branch=Branch((9, 4), "none", 0.0, seed=40),
        )
        network.build(
            {
                "images": (None, 5),
                "captions": (None, None, 6),
                "regions": (None, 5),
            }
        )
        loss = InfoNCELoss(0.2, {"image_to_text": 1.0})
        network.compile("sgd", loss, region_mean_weight=1.0)
        return network

    compare(make, BATCH, share=trees_of)


@check
def correlations():
    batch = {k: v for k, v in made_batch().items() if k != "text_ids"}

    def fitted(scope, data):
        with scope:
            network = CCA(CanonicalProjection(2), CanonicalProjection(2))
            network.build({"images": (None, 6), **VECTORS})
            network.compile()
        network.fit(data, verbose=0, steps_per_epoch=1, shuffle=False)
        return network

    whole = Batches(batch, rows_of)
    alone = fitted(contextlib.nullcontext(), whole.dataset_of([Share()]))
    strategy = strategy_of_all()
    shared = fitted(strategy.scope(), distributed(strategy, whole))
    close(shared.correlations, alone.correlations, "correlations")


@check
def replicas_draw_masks_of_their_own():
    strategy, rows = strategy_of_all(), tf.ones([64, 5])
    alone = SeededDropout(0.5, seed=3)(rows, training=True)
    with strategy.scope():
        layer = SeededDropout(0.5, seed=3)
        layer.build(rows.shape)
    run = tf.function(
        lambda: strategy.run(layer, (rows,), {"training": True}),
        autograph=False,
    )
    masks = [
        one.numpy()
        for _ in range(2)
        for one in strategy.experimental_local_results(run())
    ]
    for one, other in itertools.combinations([alone.numpy(), *masks[1:]], 2):
        assert 0.3 < (one == other).mean() < 0.7


def main():
    """Runs the checks; prints the text of what each raised, "" of none."""
    cpu = tf.config.list_physical_devices("CPU")[0]
    parts = [tf.config.LogicalDeviceConfiguration()] * NUM_DEVICES
    tf.config.set_logical_device_configuration(cpu, parts)
    raised = {}
    for name in CHECKS:
        try:
            CHECKS[name]()
        except Exception:  # noqa: BLE001  (the test shows it)
            raised[name] = traceback.format_exc()[-3000:]
    json.dump(raised, sys.stdout)


if __name__ == "__main__":
    main()
