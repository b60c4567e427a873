"""Shares of batches: together they are the batch."""

import numpy as np
import pytest

import tbnets
from tbnets.data.splits import Share, distributed
from tbnets.errors import InputError
from tests.data.test_phrase_pairs import HELD
from tests.data.test_phrase_pairs import batches as pair_batches


def pairs_of_words():
    rows = tbnets.Examples.from_arrays(
        np.arange(10.0).reshape(5, 2),
        np.arange(7)[:, None],
        [0, 0, 1, 2, 2, 4, 3],
    )
    return tbnets.EpochBatches(rows, 5, 2, seed=0)


def shares(batches, count):
    places = [Share(place, count) for place in range(count)]
    found = batches.dataset_of(places).as_numpy_iterator()
    return [next(found) for _ in places]


@pytest.mark.parametrize("count", [1, 2, 3])
def test_parts_follow_each_other_and_differ_by_one(count):
    for rows in range(8):
        parts = [Share(place, count).of(rows) for place in range(count)]
        found = [row for part in parts for row in range(rows)[part]]
        assert found == list(range(rows))
        sizes = [part.stop - part.start for part in parts]
        assert max(sizes) - min(sizes) <= 1


def assert_shares(whole, parts):
    """Asserts that parts, one after the other, are the batch."""
    for key, array in whole.items():
        found = np.concatenate([part[key] for part in parts])
        np.testing.assert_array_equal(found, array)


@pytest.mark.parametrize("count", [2, 3])
def test_shares_of_images_and_captions_are_the_batch(count):
    [whole] = pairs_of_words().dataset.as_numpy_iterator()
    assert_shares(whole, shares(pairs_of_words(), count))


def test_shares_of_phrases_go_with_their_captions():
    [whole] = pair_batches(HELD).dataset.as_numpy_iterator()
    parts = shares(pair_batches(HELD), 2)
    before = 0
    for part in parts:  # Nodes are counted through the captions of a share.
        part["phrase_nodes"] = part["phrase_nodes"] + before
        before += int((part["captions"][:, :, 2] > 0).sum())
        assert part["captions"].shape[1] == whole["captions"].shape[1]
    assert_shares(whole, parts)


def test_a_batch_without_a_photo_for_some_replica_is_refused():
    class Strategy:
        num_replicas_in_sync = 6

    batches = pairs_of_words()
    assert batches.smallest is None  # Of features there may be none.
    batches.smallest = 5
    with pytest.raises(InputError):
        distributed(Strategy(), batches)
