"""Named streams of random numbers; each part of a run has its own.

    Branch(units, seed=seed_of(settings.run.seed, "image_branch", len(units)))

A run has one seed. `seed_of` returns a block of integers for each part of the
network that draws random numbers during training; the layers of the part count
up from the first integer. Two layers with equal integers would drop the same
units.

`generator_of` returns generators for random numbers on the host. They depend on
the seed, the name of the stream and counters such as the epoch.
"""

import zlib

import numpy as np

from tbnets.errors import InputError, check_choice

STREAMS = {
    "image_branch": 1,
    "text_branch": 2,
    "text_encoder": 3,
    "head": 4,
    "region_branch": 5,
}
"""The place of each part's block within the block of a run, from 1. A changed
place changes the random numbers of every run."""
HOST_STREAMS = ("missing_vectors", "new_dims", "epoch", "pairs")
"""Streams of the host. Renaming one changes the random numbers of every run."""
PER_STREAM = 100
PER_RUN = 1000


def seed_of(run_seed, stream, num_layers=1):
    """Returns the first seed of a part of the network.

    This integer and the next `PER_STREAM - 1` belong only to this stream and
    run. Raises ValueError for an unknown stream or too many layers.

    Args:
        run_seed: integer of the run, not negative.
        stream: key of `STREAMS`.
        num_layers: number of layers in the part, at most `PER_STREAM`.
    """
    advice = "Give a new part a place in `STREAMS`."
    check_choice("stream", stream, STREAMS, advice)
    if num_layers > PER_STREAM:
        raise InputError(
            stream,
            f"have at most {PER_STREAM} layers, or it would share random "
            "numbers with others",
            f"{num_layers} layers",
            "Take fewer.",
        )
    return run_seed * PER_RUN + STREAMS[stream] * PER_STREAM


def generator_of(run_seed, stream, *places):
    """Returns a random `numpy.random.Generator` for a stream on the host.

    Equal arguments give equal numbers, different arguments independent numbers.
    Raises ValueError for an unknown stream.

    Args:
        run_seed: integer of the run, not negative.
        stream: element of `HOST_STREAMS`.
        *places: counters within the stream, such as the epoch; each from 0 to
            2**32 - 1.
    """
    advice = "Add a new stream to `HOST_STREAMS`."
    check_choice("stream", stream, HOST_STREAMS, advice)
    # Not `default_rng([run_seed, *places])`: NumPy pads this list with zeros,
    # so that [7] and [7, 0] would give one stream.
    key = zlib.crc32(stream.encode()), *places
    return np.random.default_rng(
        np.random.SeedSequence(run_seed, spawn_key=key)
    )
