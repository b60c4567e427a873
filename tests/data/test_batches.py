"""Tests of batches, of their shares and of how `tf.data` reads."""

import dataclasses

import numpy as np
import pytest

import tbnets
from tbnets.data import batches
from tbnets.data.batches import (
    ArrayRows,
    EpochBatches,
    Examples,
    Share,
    distributed,
)
from tbnets.data.captions import CaptionedImages
from tests import refusals, tiny
from tests.data.test_phrase_pairs import HELD
from tests.data.test_phrase_pairs import batches as pair_batches

# Image 0 has three captions, 1 has none, 2 has one, 3 has two.
RECORDS = CaptionedImages(
    image_ids=("a.jpg", "b.jpg", "c.jpg", "d.jpg"),
    captions=("a0", "d0", "a1", "c0", "a2", "d1"),
    caption_to_image=np.array([0, 3, 0, 2, 0, 3]),
    split="train",
    path="memory",
)


def examples(text_ids=None):
    return Examples(
        RECORDS,
        ArrayRows(np.arange(8.0).reshape(4, 2)),
        tiny.token_rows([[2, 3, 4], [5, 0, 0], [1, 0, 0]] * 2),
        text_ids,
    )


def rows(seed=0, epoch=0, images=2, captions=2):
    return [
        (list(image_rows), list(caption_rows))
        for image_rows, caption_rows in batches.sample_epoch(
            RECORDS, images, captions, seed, epoch
        )
    ]


def test_the_ids_of_a_batch_are_identities():
    records = dataclasses.replace(RECORDS, identities="xyzx")
    some = dataclasses.replace(examples(), records=records)
    batch = EpochBatches(some, 9, 9, seed=0).batch([0, 2, 3], [1, 3, 4], 0)
    # Captions 1, 3 and 4 are of the images 3, 2 and 0; 0 and 3 are alike.
    assert batch["image_ids"].tolist() == [0, 2, 0]
    assert batch["caption_image_ids"].tolist() == [0, 2, 0]
    assert batch["image_ids"].dtype == np.int64


def test_batches_depend_only_on_the_seed_and_the_epoch():
    several = {str(rows(seed, epoch)) for seed in (0, 1) for epoch in range(5)}
    assert len(several) > 5
    assert rows(seed=7, epoch=0, images=3) == [([2, 3, 0], [3, 1, 5, 2, 0])]
    assert rows(seed=7, epoch=1, images=3) == [([3, 0, 2], [5, 1, 4, 2, 3])]


@pytest.mark.parametrize("ids", [None, np.array([7, 7, 8, 9, 10, 11])])
def test_batches_contain_the_drawn_rows(ids):
    found = EpochBatches(examples(ids), 2, 2, seed=0)
    for found.epoch in (0, 1, 1):  # An epoch can be gone through again.
        drawn = rows(epoch=found.epoch)
        numbered = found.dataset.as_numpy_iterator()
        for batch, (image_rows, caption_rows) in zip(
            numbered, drawn, strict=True
        ):
            expected = {
                "image_ids": image_rows,
                "images": np.arange(8).reshape(4, 2)[image_rows],
                "caption_image_ids": RECORDS.caption_to_image[caption_rows],
                "captions": examples().texts.batch(caption_rows),
            }
            if ids is not None:
                expected["text_ids"] = ids[caption_rows]
            assert batch.keys() == expected.keys()
            for key, array in expected.items():
                np.testing.assert_array_equal(batch[key], array)


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


def assert_shares(whole, parts):
    """Asserts that parts, one after the other, are the batch."""
    for key, array in whole.items():
        found = np.concatenate([part[key] for part in parts])
        np.testing.assert_array_equal(found, array)


@pytest.mark.parametrize("count", [2, 3])
def test_concatenated_shares_equal_the_batch(count):
    [whole] = pairs_of_words().dataset.as_numpy_iterator()
    assert_shares(whole, shares(pairs_of_words(), count))


def test_concatenated_shares_of_phrases_equal_the_batch():
    [whole] = pair_batches(HELD).dataset.as_numpy_iterator()
    parts = shares(pair_batches(HELD), 2)
    before = 0
    for part in parts:  # Nodes are counted through the captions of a share.
        part["phrase_nodes"] = part["phrase_nodes"] + before
        before += int((part["captions"][:, :, 2] > 0).sum())
        assert part["captions"].shape[1] == whole["captions"].shape[1]
    assert_shares(whole, parts)


def test_fewer_photos_than_replicas_raise_an_error():
    class Strategy:
        num_replicas_in_sync = 6

    batches = pairs_of_words()
    assert batches.smallest is None  # Of features there may be none.
    batches.smallest = 5
    with refusals.refused("images_per_batch"):
        distributed(Strategy(), batches)
