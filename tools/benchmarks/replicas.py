"""Times the train step of one replica under a strategy beside that of none.

And parts of a step that workers share, in one of the workers: `replica_costs`
starts as many processes of this module as there are workers. The chief prints
the milliseconds of each part, as JSON.
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
"""TensorFlow's messages to all replicas, and what they are called here."""


class Job(NamedTuple):
    """What is timed.

    Attributes:
        images: of the whole batch, of two captions each.
        hidden: size of features and of the hidden layer.
        dim: size of the embeddings.
        repeats: timed runs of a part.
        parts: (name, argument) of each, in this order; see `PARTS`.
    """

    images: int
    hidden: int
    dim: int
    repeats: int
    parts: list = ()


def job_of(options):
    """Returns the `Job` of the flags."""
    sizes = options.hidden_dim, options.embedding_dim
    return Job(options.first_size(500), *sizes, options.repeats or 15)


def run(options):
    """Prints a table of a step without a strategy and with one."""
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
    """Returns a share of a batch of random features."""
    made = arrays.features(job.images, 2, job.hidden, job.hidden)
    return make_batch(
        {name: rows[share.of(len(rows))] for name, rows in made.items()}
    )


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
    batch = _batch(job._replace(images=images))
    return tf.function(_network(job).train_step, autograph=False), [batch]


def step(job, workers, share, _):
    """A step of all replicas."""
    with workers.scope():
        network = _network(job)
    return _of_all(workers, network.train_step, _batch(job, share))


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
    batch = _batch(job, share)
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
    shapes = [w.shape for w in _network(job).trainable_variables]

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
        runs[f"{name} {value}"] = functools.partial(_waited, graph, given)
        if name == "step":
            operations = graph.get_concrete_function(*given).graph
            types = [one.type for one in operations.get_operations()]
            messages = {word: types.count(x) for x, word in KINDS.items()}
    # Workers take each run at the same time.
    seconds = timing.in_turns(runs, job.repeats, WARM_UP, before=workers.wait)
    times = {name: 1e3 * np.median(each) for name, each in seconds.items()}
    return {**times, **messages}


def _waited(graph, given):
    tf.nest.map_structure(np.asarray, graph(*given))


if __name__ == "__main__":  # Of all workers, the chief is heard.
    print(json.dumps(measured(Job(*json.loads(sys.argv[1])))))
