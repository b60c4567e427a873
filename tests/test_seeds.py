"""Streams of random numbers: whose they are, and that none meets another."""

import itertools

from tbnets import seeds


def block(run_seed, stream):
    first = seeds.seed_of(run_seed, stream)
    return range(first, first + seeds.PER_STREAM)


def test_seeds_of_streams_do_not_overlap():
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


def test_seeds_of_streams_are_fixed():
    # What a trained network was trained with: a run's numbers hang on these.
    assert {name: seeds.seed_of(7, name) for name in seeds.STREAMS} == {
        "image_branch": 7100,
        "text_branch": 7200,
        "text_encoder": 7300,
        "head": 7400,
        "region_branch": 7500,
    }


def test_host_streams_do_not_overlap():
    # Every stream at once, with no, one and two places, zeros included.
    places = [
        (),
        *[(i,) for i in range(4)],
        *itertools.product(range(4), [0, 1]),
    ]
    drawn = [
        tuple(
            seeds.generator_of(run_seed, stream, *place).integers(2**62, size=2)
        )
        for run_seed in (0, 1, 7)
        for stream in seeds.HOST_STREAMS
        for place in places
    ]
    assert len({*drawn}) == len(drawn)


def test_draws_of_host_streams_are_fixed():
    # A run's numbers depend on these.
    drawn = {
        name: int(seeds.generator_of(7, name, 3).integers(1000))
        for name in seeds.HOST_STREAMS
    }
    assert drawn == {
        "missing_vectors": 963,
        "new_dims": 538,
        "epoch": 685,
        "pairs": 288,
    }
