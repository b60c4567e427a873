"""Times a training step with a one-replica strategy and without a strategy.

Run as a script, this module is one worker of `replica_costs`, which times the
parts of a shared step. The chief prints the milliseconds of each part as JSON.
"""

import functools
import json
import os
import sys
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from benchmarks import arrays, timing
from benchmarks.train_step import make_batch, make_network
from tbnets.data.splits import WHOLE, Share
from tbnets.losses import hinges, ranking, replicas
from tbnets.training.distribution import Workers, open_workers

WARM_UP = 3
KINDS = {"CollectiveReduceV2": "reduces", "CollectiveGatherV2": "gathers"}
"""Names of the TensorFlow ops that send messages to all replicas."""


class Job(NamedTuple):
    """Sizes and parts of a timed step.

    Attributes:
        images: number of images in the whole batch, with two captions each.
        hidden: size of the features and of the hidden layer.
        dim: size of the embeddings.
        repeats: timed runs per part.
        parts: (name in `PARTS`, argument) for each part.
    """

    images: int
    hidden: int
    dim: int
    repeats: int
    parts: list = ()


def job_of(options):
    """Returns the `Job` that the flags describe."""
    sizes = options.hidden_dim, options.embedding_dim
    return Job(options.first_size(500), *sizes, options.repeats or 15)


def run(options):
    """Prints the step times with and without a distribution strategy."""
    job = job_of(options)
    batch = _batch(job)
    strategy = tf.distribute.MirroredStrategy(["CPU:0"])
    alone = _network(job)
    with strategy.scope():
        shared = _network(job)
    of_none = tf.function(alone.train_step, autograph=False)
    of_one = tf.function(
        lambda batch: strategy.run(shared.train_step, (batch,)),
        autograph=False,
    )
    print(
        f"{job.images} images, {2 * job.images} captions, {job.hidden} -> "
        f"{job.dim}"
    )
    runs = {
        "no strategy": lambda: float(of_none(batch)["loss"]),
        "one replica": lambda: float(of_one(batch)["loss"]),
    }
    timing.print_table("step of", runs, job.repeats)


def _network(job):
    return make_network([job.hidden] * 2, [job.hidden, job.dim])


def _batch(job, share=WHOLE):
    features = arrays.features(job.images, 2, job.hidden, job.hidden)
    return make_batch(
        {name: rows[share.of(len(rows))] for name, rows in features.items()}
    )


def _of_all(workers, function, *inputs):
    """Returns a graph that runs a function on all replicas, and its inputs."""

    def of_replica(*inputs):  # Graph inputs have no device.
        return function(*tf.nest.map_structure(tf.identity, inputs))

    graph = tf.function(
        lambda *inputs: workers.strategy.run(of_replica, inputs),
        autograph=False,
    )
    return graph, inputs


def alone(job, workers, share, images):
    """Builds a step for `images` images, run only by this worker."""
    batch = _batch(job._replace(images=images))
    return tf.function(_network(job).train_step, autograph=False), [batch]


def step(job, workers, share, _):
    """Builds a step that all replicas share."""
    with workers.scope():
        network = _network(job)
    return _of_all(workers, network.train_step, _batch(job, share))


def whole_step(job, workers, share, _):
    """Builds a step whose loss each replica computes for all anchors."""
    functions = ranking.summed, hinges.own_anchors
    ranking.summed = hinges.own_anchors = lambda value: value
    graph, inputs = step(job, workers, share, None)
    graph(*inputs)  # Traces the step before both functions are restored.
    ranking.summed, hinges.own_anchors = functions
    return graph, inputs


def gathers(job, workers, share, _):
    """Builds the gathers of a step and their gradients."""
    batch = _batch(job, share)
    embeddings = [batch[n][:, : job.dim] for n in ("images", "captions")]
    ids = [batch[name] for name in ("image_ids", "caption_image_ids")]

    def gathered(embeddings, ids):
        with tf.GradientTape() as tape:
            tape.watch(embeddings)
            rows = replicas.gather(*embeddings, *ids)
            totals = [tf.reduce_sum(row * row) for row in rows]
        return totals[2:], tape.gradient(totals[:2], embeddings)

    return _of_all(workers, gathered, embeddings, ids)


def sums(job, workers, share, times):
    """Builds the sum of the gradient over all replicas, `times` times."""
    shapes = [w.shape for w in _network(job).trainable_variables]

    def summed(gradients):
        for _ in range(times):
            gradients = replicas.summed(gradients)
        return gradients

    return _of_all(workers, summed, [tf.zeros(shape) for shape in shapes])


def message(job, workers, share, size):
    """Builds a sum of a float32 vector of length `size` over all replicas."""
    return _of_all(workers, replicas.summed, tf.zeros([size]))


PARTS = {
    part.__name__: part
    for part in (alone, step, whole_step, gathers, sums, message)
}


def measured(job):
    """Returns {name: value} of the parts' milliseconds and message counts."""
    workers, share = Workers(), WHOLE
    if config := os.environ.get("TF_CONFIG"):
        workers = open_workers("multi_worker")
        place = json.loads(config)["task"]["index"]
        share = Share(place, workers.num_replicas)
    runs, messages = {}, {}
    for name, value in job.parts:
        graph, inputs = PARTS[name](job, workers, share, value)
        runs[f"{name} {value}"] = functools.partial(_waited, graph, inputs)
        if name == "step":
            operations = graph.get_concrete_function(*inputs).graph
            types = [op.type for op in operations.get_operations()]
            messages = {word: types.count(x) for x, word in KINDS.items()}
    # All workers begin each run together.
    seconds = timing.in_turns(runs, job.repeats, WARM_UP, before=workers.wait)
    times = {name: 1e3 * np.median(each) for name, each in seconds.items()}
    return {**times, **messages}


def _waited(graph, inputs):
    tf.nest.map_structure(np.asarray, graph(*inputs))


if __name__ == "__main__":  # The parent reads only the chief's output.
    print(json.dumps(measured(Job(*json.loads(sys.argv[1])))))
