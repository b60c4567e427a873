"""Derives independent random number streams from the seed of a run.

::

    Branch(units, seed=seed_of(settings.run.seed, "image_branch"))

`seed_of` returns the first seed for a part of the network, such as the image
branch. The layers of this part use consecutive seeds, so that their dropout
masks differ. `generator_of` returns NumPy generators for other random numbers.
"""

import zlib

import numpy as np

from tbnets.errors import check_choice

STREAMS = {
    "image_branch": 1,
    "text_branch": 2,
    "text_encoder": 3,
    "head": 4,
    "region_branch": 5,
}
"""Maps each part to the position of its block of seeds, from 1. Changing a
position changes the random numbers of every run."""
HOST_STREAMS = ("missing_vectors", "new_dims", "epoch", "pairs")
"""Streams on the host. Renaming a stream changes its random numbers."""
PER_STREAM = 100
PER_RUN = 1000


def seed_of(run_seed, stream):
    """Returns the first of `PER_STREAM` seeds for a part of the network.

    `stream` is the name of the part, a key of `STREAMS`.
    """
    return run_seed * PER_RUN + STREAMS[stream] * PER_STREAM


def generator_of(run_seed, stream, *places):
    """Returns a `numpy.random.Generator` for random numbers on the host.

    Different arguments produce independent numbers. `stream` is an element of
    `HOST_STREAMS`. `places` are integers in [0, 2**32), such as the epoch.
    """
    check_choice("stream", stream, HOST_STREAMS)
    # NumPy pads a list of seeds with zeros, so [7] and [7, 0] would give the
    # same numbers. A spawn key is not padded.
    key = zlib.crc32(stream.encode()), *places
    return np.random.default_rng(
        np.random.SeedSequence(run_seed, spawn_key=key)
    )
