"""Tests of splits that are drawn from ids."""

import collections

import numpy as np
import pytest

from tbnets.data import splits
from tbnets.data.captions import CaptionedImages
from tbnets.errors import InputError

IDS = [f"photos/{number}.jpg" for number in range(1000)]


def sizes(ids, cuts):
    """Returns (train, dev, test): how many images each has."""
    found = collections.Counter(splits.split_of(i, cuts) for i in ids)
    return found["train"], found["dev"], found["test"]


@pytest.mark.parametrize(
    ("count", "expected"),
    [
        (5, (3, 1, 1)),  # A fifth each: 5 // 5 = 1.
        (9, (7, 1, 1)),
        (10, (6, 2, 2)),
        (50, (30, 10, 10)),  # Ten each, as a fifth of 50 is.
        (100, (75, 10, 15)),  # Drawn, 9 and 15: dev is raised to ten.
    ],
)
def test_small_sets_have_enough_in_dev_and_test(count, expected):
    cuts = splits.draw_cuts(IDS[:count], "own.csv")
    assert sizes(IDS[:count], cuts) == expected
    assert splits.draw_cuts(IDS[:count][::-1], "own.csv") == cuts


def test_images_keep_their_splits_when_others_are_added():
    cuts = splits.draw_cuts(IDS[:300], "own.csv")
    assert cuts == [0.1, 0.2]
    assert splits.draw_cuts(IDS, "own.csv") == cuts
    # The bounds do not hold, and each has a tenth as chance has it.
    assert sizes(IDS, cuts) == (784, 116, 100)


def test_too_few_images_are_refused():
    with pytest.raises(InputError, match="own.csv"):
        splits.draw_cuts(IDS[:4], "own.csv")


def test_a_split_has_the_captions_of_its_images_in_their_order():
    ids = IDS[:10]
    records = CaptionedImages(
        image_ids=ids,
        captions=[f"{i} {n}" for i in ids for n in "ab"],
        caption_to_image=np.repeat(np.arange(10), 2),
        split="all",
        path="own.csv",
    )
    cuts = splits.draw_cuts(ids, "own.csv")
    dev = splits.drawn_split(records, "val", cuts)
    assert dev.split == "val" and dev.num_images == 2
    assert dev.captions == tuple(
        f"{i} {n}" for i in dev.image_ids for n in "ab"
    )
    both = splits.drawn_split(records, "dev+test", cuts)
    test = splits.drawn_split(records, "test", cuts)
    assert {*both.image_ids} == {*dev.image_ids, *test.image_ids}
    assert list(both.image_ids) == [i for i in ids if i in both.image_ids]


def test_drawn_splits_do_not_divide_an_identity():
    identities = [str(row // 4) for row in range(40)]
    records = CaptionedImages(
        image_ids=IDS[:40],
        captions=[],
        caption_to_image=[],
        split="all",
        path="own.csv",
        identities=identities,
    )
    cuts = splits.draw_cuts(identities, "own.csv")
    parts = [
        {*splits.drawn_split(records, name, cuts).identities}
        for name in ("train", "dev", "test")
    ]
    assert sum(map(len, parts)) == len(set().union(*parts)) == 10
