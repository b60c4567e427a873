"""Times the train step of one replica under a strategy beside that of none."""

import tensorflow as tf
from measuring.replica_parts import Job, make_batch, make_network

from benchmarks import timing


def run(job: Job):
    """Prints a table of both, in turns.

    Args:
        job: `Job`; its parts are not looked at.
    """
    batch = make_batch(job)
    strategy = tf.distribute.MirroredStrategy(["CPU:0"])
    alone = make_network(job)
    with strategy.scope():
        shared = make_network(job)
    of_none = tf.function(alone.train_step, autograph=False)
    of_one = tf.function(
        lambda batch: strategy.run(shared.train_step, (batch,)),
        autograph=False,
    )
    runs = {
        "no strategy": lambda: float(of_none(batch)["loss"]),
        "one replica": lambda: float(of_one(batch)["loss"]),
    }
    captions = job.images * job.captions
    print(
        f"{job.images} images, {captions} captions, {job.hidden} -> {job.dim}"
    )
    timing.print_table(
        "step of", timing.interleaved(runs, job.repeats), "no strategy"
    )
