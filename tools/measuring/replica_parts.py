"""Times parts of a step that workers share, in one of the workers.

`benchmarks/replica_costs.py` starts as many processes of it as there are
workers. The chief prints the milliseconds of each part, as JSON.
"""

import functools
import json
import os
import sys
import time
from typing import NamedTuple

import keras
import numpy as np
import tensorflow as tf

from tbnets.data.splits import WHOLE, Share
from tbnets.layers.branch import Branch
from tbnets.losses import hinges, ranking, replicas
from tbnets.losses.triplet import TripletLoss
from tbnets.models.embedding_network import EmbeddingNetwork
from tbnets.training.distribution import Workers, open_workers
from tbnets.training.optimizers import FusedAdam

WARM_UP = 3
KINDS = {"CollectiveReduceV2": "reduces", "CollectiveGatherV2": "gathers"}
"""TensorFlow's messages to all replicas, and what they are called here."""


class Job(NamedTuple):
    """What is timed.

    Attributes:
        images: of the whole batch.
        captions: of each image.
        hidden: size of features and of the hidden layer.
        dim: size of the embeddings.
        repeats: timed runs of a part.
        parts: (name, argument) of each, in this order; see `PARTS`.
    """

    images: int
    captions: int
    hidden: int
    dim: int
    repeats: int
    parts: list = ()


def make_network(job):
    """Returns a compiled network on features of `hidden` numbers."""
    keras.utils.set_random_seed(0)
    branches = [Branch((job.hidden, job.dim), seed=seed) for seed in (100, 200)]
    network = EmbeddingNetwork(*branches)
    network.build(dict.fromkeys(("images", "captions"), (None, job.hidden)))
    network.compile(FusedAdam(1e-4), TripletLoss(gradient="sparse"))
    network.optimizer.build(network.trainable_variables)
    return network


def make_batch(job, share=WHOLE):
    """Returns a share of a batch of random features."""
    rng = np.random.default_rng(0)
    ids = np.arange(job.images)
    owners = np.repeat(ids, job.captions)
    images, captions = (
        rng.standard_normal((len(rows), job.hidden), np.float32)
        for rows in (ids, owners)
    )
    batch = {"images": images, "captions": captions}
    batch |= {"image_ids": ids, "caption_image_ids": owners}
    return {
        name: tf.constant(rows[share.of(len(rows))])
        for name, rows in batch.items()
    }


def _of_all(workers, function, *given):
    """Returns what runs a function in all replicas: a graph, its arguments."""

    def of_replica(*given):  # An input of the graph stands on no device.
        return function(*tf.nest.map_structure(tf.identity, given))

    graph = tf.function(
        lambda *given: workers.strategy.run(of_replica, given), autograph=False
    )
    return graph, given


def alone(job, workers, share, images):
    """A step on so many images, by this worker for itself."""
    batch = make_batch(job._replace(images=images))
    return tf.function(make_network(job).train_step, autograph=False), [batch]


def step(job, workers, share, _):
    """A step of all replicas."""
    with workers.scope():
        network = make_network(job)
    return _of_all(workers, network.train_step, make_batch(job, share))


def whole_step(job, workers, share, _):
    """A step whose replicas compute the loss of all anchors each."""
    kept = ranking.summed, hinges.own_anchors
    ranking.summed = hinges.own_anchors = lambda given: given
    graph, given = step(job, workers, share, None)
    graph(*given)  # Traced, so that both can be as they were.
    ranking.summed, hinges.own_anchors = kept
    return graph, given


def gathers(job, workers, share, _):
    """What a step gathers, and the way back of its gradient."""
    batch = make_batch(job, share)
    embeddings = [batch[n][:, : job.dim] for n in ("images", "captions")]
    ids = [batch[name] for name in ("image_ids", "caption_image_ids")]

    def gathered(embeddings, ids):
        with tf.GradientTape() as tape:
            tape.watch(embeddings)
            rows = replicas.gather(*embeddings, *ids)
            totals = [tf.reduce_sum(one * one) for one in rows]
        return totals[2:], tape.gradient(totals[:2], embeddings)

    return _of_all(workers, gathered, embeddings, ids)


def sums(job, workers, share, times):
    """So many sums of the gradient over all replicas."""
    shapes = [w.shape for w in make_network(job).trainable_variables]

    def summed(gradients):
        for _ in range(times):
            gradients = replicas.summed(gradients)
        return gradients

    return _of_all(workers, summed, [tf.zeros(shape) for shape in shapes])


def message(job, workers, share, size):
    """One sum over all replicas, of so many float32 numbers."""
    return _of_all(workers, replicas.summed, tf.zeros([size]))


PARTS = {
    one.__name__: one
    for one in (alone, step, whole_step, gathers, sums, message)
}


def timed(runs, repeats, workers):
    """Returns the median milliseconds of functions that run in turns.

    Args:
        runs: list of functions, the same on all workers.
        repeats: of each.
        workers: `Workers`, who take each run at the same time.
    """
    seconds = np.zeros((WARM_UP + repeats, len(runs)))
    for turn in range(len(seconds)):
        for i, run in enumerate(runs):
            workers.wait()
            start = time.perf_counter()
            tf.nest.map_structure(np.asarray, run())
            seconds[turn, i] = time.perf_counter() - start
    return (1e3 * np.median(seconds[WARM_UP:], axis=0)).tolist()


def counted(graph, given):
    """Returns how many messages a graph sends, by their kind."""
    operations = graph.get_concrete_function(*given).graph.get_operations()
    types = [one.type for one in operations]
    return {name: types.count(kind) for kind, name in KINDS.items()}


def measured(job):
    """Returns name -> milliseconds of the parts, and how many messages."""
    workers, share = Workers(), WHOLE
    if config := os.environ.get("TF_CONFIG"):
        workers = open_workers("multi_worker")
        place = json.loads(config)["task"]["index"]
        share = Share(place, workers.num_replicas)
    runs, messages = {}, {}
    for name, value in job.parts:
        graph, given = PARTS[name](job, workers, share, value)
        runs[f"{name} {value}"] = functools.partial(graph, *given)
        if name == "step":
            messages = counted(graph, given)
    found = timed(list(runs.values()), job.repeats, workers)
    return {**dict(zip(runs, found)), **messages}


if __name__ == "__main__":  # Of all workers, the chief is heard.
    print(json.dumps(measured(Job(*json.loads(sys.argv[1])))))
