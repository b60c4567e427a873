"""Named streams of random numbers: no two parts of a network share one.

    Branch(units, seed=seed_of(settings.seed, "image_branch", len(units)))

A run has one seed. It gives each part of its network that draws random
numbers while it learns a block of integers, and the part's layers count up
from the first one. Two layers with one integer would drop the same units.

What is drawn on the host comes from `generator_of`, by the seed and numbers
that count, such as the epoch. There NumPy takes what a key lacks for 0, so
streams meet: vectors of words that have none are drawn by (seed), numbers
appended to words by (seed, 1), an epoch by (seed, epoch), and the pairs of its
first batch by (seed, epoch, 0). They draw other things than the order of
epochs 0, 1 and this one does, and a run's numbers depend on them.
"""

import numpy as np

from tbnets.errors import InputError, check_choice

STREAMS = {
    "image_branch": 1,
    "text_branch": 2,
    "text_encoder": 3,
    "head": 4,
    "region_branch": 5,
}
"""The place of each part's block among those of a run, from 1: to change one
is to change what every run draws."""
HOST_STREAMS = {
    "missing_vectors": (),
    "new_dims": (1,),
    "epoch": (),
    "pairs": (),
}
"""What stands behind the seed in the key of each stream of the host."""
PER_STREAM = 100
PER_RUN = 1000


def seed_of(run_seed, stream, num_layers=1):
    """Returns the first integer of a part of the network.

    Args:
        run_seed: integer of the run, not negative.
        stream: key of `STREAMS`.
        num_layers: how many integers the part counts up at most.

    Returns:
        int; no other stream, and none of another run, has it or one of the
        `PER_STREAM - 1` that follow.

    Raises:
        ValueError: the part has more layers than there are integers, or a
            name is unknown.
    """
    advice = "Give a new part a place in `STREAMS`."
    check_choice("stream", stream, STREAMS, advice)
    if num_layers > PER_STREAM:
        raise InputError(
            f"`{stream}` must have at most {PER_STREAM} layers, or it would "
            f"share random numbers with others. Received: {num_layers} "
            "layers. Take fewer."
        )
    return run_seed * PER_RUN + STREAMS[stream] * PER_STREAM


def generator_of(run_seed, stream, *places):
    """Returns the random numbers of a stream of the host.

    Args:
        run_seed: integer of the run, not negative.
        stream: key of `HOST_STREAMS`.
        *places: integers that count in it, such as the epoch.

    Returns:
        `numpy.random.Generator`; the same for the same arguments.
    """
    return np.random.default_rng([run_seed, *HOST_STREAMS[stream], *places])
