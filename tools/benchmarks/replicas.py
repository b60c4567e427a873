"""Times a training step with a one-replica strategy and without a strategy."""

import tensorflow as tf

from benchmarks import arrays, timing
from benchmarks.products import waiting
from benchmarks.train_step import make_batch, make_network


def run(options):
    """Prints the step times with and without a distribution strategy."""
    count, hidden = options.first_size(500), options.hidden_dim
    widths, units = [hidden] * 2, [hidden, options.embedding_dim]
    batch = make_batch(arrays.features(count, 2, *widths))
    strategy = tf.distribute.MirroredStrategy(["CPU:0"])
    alone = make_network(widths, units)
    with strategy.scope():
        shared = make_network(widths, units)
    of_none = tf.function(alone.train_step, autograph=False)
    of_one = tf.function(
        lambda batch: strategy.run(shared.train_step, (batch,)),
        autograph=False,
    )
    runs = {
        "no strategy": waiting(of_none, batch),
        "one replica": waiting(of_one, batch),
    }
    timing.print_table(
        f"{count} images, {2 * count} captions, {hidden} -> {units[-1]}",
        runs,
        options.repeats or 15,
    )
