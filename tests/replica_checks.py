"""Runs the checks of tests/losses/test_replicas.py on logical devices.

Logical devices must be made before TensorFlow starts. So all checks run in one
process, which prints the error of each check. Tracing a step of two replicas
takes seconds, so only the checks of both losses and of mined candidates do it.
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

from tbnets.data.localization.mining import CandidateMining
from tbnets.data.splits import Share, distributed
from tbnets.layers.branch import Branch, SeededDropout
from tbnets.layers.heads import (
    CanonicalProjection,
    PairHead,
)
from tbnets.layers.tree_lstm import TreeEncoder
from tbnets.losses import replicas
from tbnets.losses.infonce import InfoNCELoss
from tbnets.losses.ranking import TERMS
from tbnets.losses.triplet import TripletLoss
from tbnets.models.cca import CCA
from tbnets.models.embedding_network import EmbeddingNetwork
from tbnets.models.hm_lstm import HMLSTM
from tbnets.models.similarity_network import SimilarityNetwork
from tbnets.training.optimizers import FusedAdam, FusedSGD
from tests.eager import without_tracing

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


def with_candidates():
    rng = np.random.default_rng(1)
    drawn_for = np.array([0, 1, 1, 2, 3, 4, 4], np.int32)
    chains = np.array([3, 3, 8, 5, 9])
    return {
        "images": rng.normal(size=(7, 6)).astype("f4"),
        "captions": rng.normal(size=(5, 5)).astype("f4"),
        "image_ids": chains[drawn_for],
        "caption_image_ids": chains,
        "drawn_for": drawn_for,
        "candidates": rng.normal(size=(13, 6)).astype("f4"),
        "is_negative": rng.random((5, 13)) < 0.5,
    }


def branches(dropout=0.0, batch_normalization="none"):
    keras.utils.set_random_seed(0)
    return [
        Branch((9, 4), batch_normalization, dropout, seed=seed)
        for seed in (10, 20)
    ]


def embedding_network(optimizer=None, norm="none", mining=None, **loss):
    network = EmbeddingNetwork(*branches(batch_normalization=norm))
    network.build({"images": (None, 6), **VECTORS})
    options = {"margin": 0.3, "term_weights": ALL_TERMS, "num_negatives": 3}
    network.compile(
        optimizer or FusedSGD(0.1, 0.9),
        TripletLoss(**options | loss),
        gradient_clip_norm=0.5,
        mining=mining,
    )
    return network


@check
def softmax():
    def make():
        network = EmbeddingNetwork(*branches())
        network.build({"images": (None, 6), **VECTORS})
        loss = InfoNCELoss(0.2, BETWEEN)
        network.compile(FusedSGD(0.1, 0.9), loss, gradient_clip_norm=0.5)
        return network

    compare(make, made_batch(), traced=True)


@check
def chunks():
    def make():
        layers = *branches(), Branch((8, 5), "none", dropout=0.0)
        network = EmbeddingNetwork(*layers)
        network.build({"images": (None, 6), **VECTORS})
        loss = InfoNCELoss(0.2, BETWEEN)
        network.compile(FusedSGD(0.1, 0.9), loss, encode_chunk=3)
        return network

    compare(make, made_batch())


@check
def statistics_of_a_batch():
    def make():
        options = {"weight_decay": 0.1, "use_ema": True, "epsilon": 1e-3}
        terms = {term: ALL_TERMS[term] for term in TERMS[::2]}
        return embedding_network(
            FusedAdam(**options), "first", term_weights=terms
        )

    compare(make, made_batch(), steps=2, traced=True)


@check
def candidates():
    # A mean would be the same of triplets that both replicas count.
    options = {"term_weights": {"text_to_image": 1.5}, "reduction": "sum"}
    options["mining"] = CandidateMining()
    batch = with_candidates()
    compare(lambda: embedding_network(**options), batch, 2, traced=True)


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
    options = {"pair_loss": "softmax", "mining": CandidateMining()}
    compare_similarity(with_candidates(), **options)


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
def rows_of_unknown_number_are_gathered():
    strategy = strategy_of_all()
    kinds = (tf.float32, tf.float32, tf.float32, tf.int64, tf.bool)

    @tf.function(autograph=False)
    def run(values):
        def gather(values):
            whole = replicas.gather(*values, None)
            assert whole.pop() is None
            return [tf.shape(one)[0] for one in whole], whole

        return strategy.run(gather, args=(values,))

    def make(context):
        def shares():
            for place in range(NUM_DEVICES):
                yield tuple(
                    np.full([2 + place + 3 * i], place).astype(
                        kind.as_numpy_dtype
                    )
                    for i, kind in enumerate(kinds)
                )

        spec = tuple(tf.TensorSpec([None], kind) for kind in kinds)
        return tf.data.Dataset.from_generator(shares, output_signature=spec)

    [values] = list(strategy.distribute_datasets_from_function(make))
    sizes, whole = run(values)
    for i, (size, rows) in enumerate(zip(sizes, whole)):
        counts = [2 + place + 3 * i for place in range(NUM_DEVICES)]
        wanted = np.repeat(np.arange(NUM_DEVICES), counts).astype(
            kinds[i].as_numpy_dtype
        )
        for own in strategy.experimental_local_results(rows):
            np.testing.assert_array_equal(own, wanted)
        for own in strategy.experimental_local_results(size):
            assert own == sum(counts)


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
