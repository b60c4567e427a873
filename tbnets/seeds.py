"""Named streams of random numbers: no two parts of a run share one.

    Branch(units, seed=seed_of(settings.run.seed, "image_branch", len(units)))

A run has one seed. Each part of its network that draws random numbers during
training gets a block of integers from `seed_of`, and its layers count up from
the first one. Two layers with the same integer would drop the same units.

What is drawn on the host comes from `generator_of`, by the seed, the name of
the stream and numbers that count, such as the epoch.
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
"""The place of each part's block among those of a run, from 1: to change one
is to change what every run draws."""
HOST_STREAMS = ("missing_vectors", "new_dims", "epoch", "pairs")
"""Streams of the host. To rename one is to change what every run draws."""
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
            stream,
            f"have at most {PER_STREAM} layers, or it would share random "
            "numbers with others",
            f"{num_layers} layers",
            "Take fewer.",
        )
    return run_seed * PER_RUN + STREAMS[stream] * PER_STREAM


def generator_of(run_seed, stream, *places):
    """Returns a generator for one stream of random numbers on the host.

    Args:
        run_seed: integer of the run, not negative.
        stream: one of `HOST_STREAMS`.
        *places: integers that count in the stream, such as the epoch; each
            from 0 to 2**32 - 1.

    Returns:
        `numpy.random.Generator`; equal arguments give equal numbers, any other
        arguments give independent ones.

    Raises:
        ValueError: the stream is unknown.
    """
    advice = "Add a new stream to `HOST_STREAMS`."
    check_choice("stream", stream, HOST_STREAMS, advice)
    # Not `default_rng([run_seed, *places])`: NumPy pads that list with zeros,
    # so [7] and [7, 0] would be one stream.
    key = zlib.crc32(stream.encode()), *places
    return np.random.default_rng(
        np.random.SeedSequence(run_seed, spawn_key=key)
    )
