"""Streams of random numbers: whose they are, and that none meets another."""

import itertools

import numpy as np
import pytest

from tbnets import seeds


def block(run_seed, stream):
    first = seeds.seed_of(run_seed, stream, seeds.PER_STREAM)
    return range(first, first + seeds.PER_STREAM)


def test_streams_of_runs_do_not_meet():
    # The limits of --seed are 0 and 2,000,000; neighbours meet first.
    blocks = [
        block(run_seed, stream)
        for run_seed in (0, 1, 2, 2_000_000)
        for stream in seeds.STREAMS
    ]
    for one, other in itertools.combinations(blocks, 2):
        assert not set(one) & set(other)
    # The seeds of TensorFlow's draws are int32.
    assert max(max(one) for one in blocks) < 2**31


def test_numbers_of_streams_stay_what_they_are():
    # What a trained network was trained with: a run's numbers hang on these.
    assert {name: seeds.seed_of(7, name) for name in seeds.STREAMS} == {
        "image_branch": 7100,
        "text_branch": 7200,
        "text_encoder": 7300,
        "head": 7400,
        "region_branch": 7500,
    }


def test_part_with_more_layers_than_numbers_is_refused():
    assert seeds.seed_of(0, "head", 100) == 400
    with pytest.raises(ValueError, match="`head` must have at most 100 .* 101"):
        seeds.seed_of(0, "head", 101)


def test_unknown_stream_is_refused():
    with pytest.raises(ValueError, match="`stream` must be .* stream='tail'"):
        seeds.seed_of(0, "tail")


def test_streams_of_the_host_stay_what_they_are():
    places = {"epoch": (3,), "pairs": (3, 2)}
    keys = {
        "missing_vectors": 7,
        "new_dims": [7, 1],
        "epoch": [7, 3],
        "pairs": [7, 3, 2],
    }
    assert keys.keys() == seeds.HOST_STREAMS.keys()
    for name, key in keys.items():
        drawn = seeds.generator_of(7, name, *places.get(name, ())).random(4)
        assert drawn.tolist() == np.random.default_rng(key).random(4).tolist()
