"""What batches of phrases and regions hold, and which negatives are hard."""

import dataclasses
import functools

import numpy as np
import pytest

from tbnets.data.phrase_examples import (
    PhraseBatches,
    Sampling,
    hard_negatives,
)
from tbnets.errors import InputError
from tbnets.evaluation import boxes
from tests import reference, tiny_phrases


@pytest.fixture(scope="module")
def examples(tmp_path_factory):
    folder = tiny_phrases.write_phrases(tmp_path_factory.mktemp("data"))
    return tiny_phrases.examples(folder)


def drawn(examples, seed=0, epoch=0, **sampling):
    return list(PhraseBatches(examples, Sampling(**sampling), seed).draw(epoch))


@functools.cache
def places(examples):
    """Photo and box of each row of the store."""
    found = {}
    for image, photo_boxes in enumerate(examples.regions.boxes):
        numbers = np.arange(len(photo_boxes))
        rows = examples.regions.rows(np.full_like(numbers, image), numbers)
        pairs = zip(rows.tolist(), photo_boxes)
        found |= {row: (image, box) for row, box in pairs}
    return found


@functools.cache
def overlap(examples, phrase, region):
    """Overlap of a phrase's box with a region, None in another photo."""
    image, box = places(examples)[region]
    if image != examples.phrases.phrase_to_image[phrase]:
        return None
    return boxes.iou([examples.phrases.boxes[phrase]], [box])[0, 0]


@pytest.mark.parametrize("phrases_per_image", [1, 4, 100])
def test_every_phrase_is_drawn_once_with_its_regions(
    examples, phrases_per_image
):
    batches = drawn(
        examples, pairs_per_batch=13, phrases_per_image=phrases_per_image
    )
    # 10 photos of 3 things that are said twice: 60 phrases.
    assert [len(one.phrases) for one in batches] == [13, 13, 13, 13, 8]
    phrases = np.concatenate([one.phrases for one in batches])
    assert sorted(phrases) == list(range(60))
    for batch in batches:
        assert batch.drawn_for.tolist() == list(range(len(batch.phrases)))
        for phrase, region in zip(batch.phrases, batch.regions):
            assert overlap(examples, phrase, region) > 0.7
    # 59 and one: the last phrase comes to the batch before.
    assert PhraseBatches(examples, Sampling(59), 0).num_batches == 1
    assert len(drawn(examples, pairs_per_batch=59)) == 1


def test_draws_of_a_seed_do_not_change(examples):
    sampling = Sampling(4, 2, 2, 2, candidates_per_image=3)
    batches = PhraseBatches(examples, sampling, 7)
    first, second = (next(batches.draw(epoch)) for epoch in (0, 1))
    assert first.phrases.tolist() == [33, 32, 14, 15]
    assert first.regions.tolist() == [63, 66, 71, 66, 106, 111, 111, 114]
    assert first.candidates.tolist() == [106, 118, 119, 64, 66, 74]
    assert first.is_negative.sum(axis=1).tolist() == [2, 2, 2, 2]
    assert second.phrases.tolist() == [16, 17, 40, 36, 41, 37]
    assert second.regions.tolist() == [116, 112, 116, 107, 54, 55, 47, 45]
    assert second.candidates.tolist() == [107, 109, 118, 54, 55, 58]


def test_batches_contain_the_features_of_their_rows(examples):
    sampling = Sampling(pairs_per_batch=25, phrases_per_region=2)
    batches = PhraseBatches(examples, sampling, 3)
    batches.epoch = 1
    found = list(batches.dataset.as_numpy_iterator())
    assert len(found) == batches.num_batches == 3
    for batch, rows in zip(found, batches.draw(1)):
        take = examples.regions.store.take_regions
        chains = examples.phrases.phrase_to_chain[rows.phrases]
        for key, expected in {
            "images": take(rows.regions),
            "candidates": take(rows.candidates),
            "caption_image_ids": chains,
            "image_ids": chains[rows.drawn_for],
            "is_negative": rows.is_negative,
        }.items():
            np.testing.assert_array_equal(batch[key], expected)
        texts = examples.phrases.phrase_to_text[rows.phrases]
        np.testing.assert_array_equal(batch["captions"][:, 0], texts + 1)
        assert batch["drawn_for"].dtype == np.int32


def test_phrases_without_regions_raise_an_error(examples):
    options = {"positive_iou": 1.0, "best_iou": 1.0}
    none = dataclasses.replace(examples, role_options=options)
    with pytest.raises(InputError, match="60 phrases"):
        PhraseBatches(none, Sampling(), 0)


@pytest.fixture(scope="module")
def equal_texts(examples):
    """Nouns of one letter are equal: `a cat` and `a car`."""
    keys = [text[:2] + text.split()[-1][0] for text in examples.phrases.phrases]
    ids = np.unique(keys, return_inverse=True)[1]
    assert examples.phrases.phrase_to_text.max() == 9 and ids.max() == 7
    return dataclasses.replace(examples, text_ids=ids)


def is_negative(examples, phrase, others, owner, region):
    """Whether a region may be a negative, by what it shows and is called.

    `others` are the phrases of the batch, `owner` that of a region which was
    drawn, None for one that was not.
    """
    phrases, ids = examples.phrases, examples.text_ids
    photos, chains = phrases.phrase_to_image, phrases.phrase_to_chain
    if ids is None:
        ids = np.arange(phrases.num_phrases)
    if overlap(examples, phrase, region) is None:
        return owner is not None and not any(
            chains[other] == chains[owner] and ids[other] == ids[phrase]
            for other in others
        )
    return all(
        overlap(examples, other, region) < 0.3
        for other in range(phrases.num_phrases)
        if photos[other] == photos[phrase]
        and (other == phrase or ids[other] == ids[phrase])
    )


@pytest.mark.parametrize("negative_regions", ["photo", "batch"])
@pytest.mark.parametrize("texts_match", [False, True])
def test_negatives_equal_the_definition(
    examples, equal_texts, texts_match, negative_regions
):
    examples = equal_texts if texts_match else examples
    found = drawn(
        examples,
        pairs_per_batch=20,
        phrases_per_region=2,
        negative_regions=negative_regions,
    )
    for batch in found[:2]:
        owners = [None] * len(batch.candidates)
        if negative_regions == "photo":
            photos = examples.phrases.phrase_to_image[batch.phrases]
            # 3 things with 3 regions each, and 6 others.
            assert len(set(batch.candidates.tolist())) == 15 * len(set(photos))
        if negative_regions == "batch":
            assert batch.candidates.tolist() == batch.regions.tolist()
            owners = batch.phrases[batch.drawn_for]
        assert batch.is_negative.any()
        assert batch.is_negative.tolist() == [
            [
                is_negative(examples, phrase, batch.phrases, owner, region)
                for owner, region in zip(owners, batch.candidates)
            ]
            for phrase in batch.phrases
        ]


def test_hard_negatives_are_added_to_those_of_the_batch(examples):
    sampling = Sampling(pairs_per_batch=20, negative_regions="batch")
    batches = PhraseBatches(examples, sampling, 0)
    before = list(batches.draw(0))
    listed = np.full((60, 2), -1, np.int16)
    listed[::2, 0], listed[::4, 1] = 3, 7
    batches.hard_negatives = listed
    for batch, old in zip(batches.draw(0), before, strict=True):
        count = len(old.candidates)
        assert batch.candidates[:count].tolist() == old.candidates.tolist()
        assert (batch.is_negative[:, :count] == old.is_negative).all()
        hard, is_hard = batch.candidates[count:], batch.is_negative[:, count:]
        assert len(set(hard.tolist())) == len(hard) > 0
        for phrase, own in zip(batch.phrases, is_hard, strict=True):
            image = examples.phrases.phrase_to_image[phrase]
            columns = listed[phrase][listed[phrase] >= 0]
            rows = examples.regions.rows(np.full(len(columns), image), columns)
            assert hard[own].tolist() == rows.tolist()


def lists(table):
    return [row[row >= 0].tolist() for row in table]


@pytest.mark.parametrize("shape", [(0, 4), (5, 0), (1, 1), (5000, 7)])
@pytest.mark.parametrize("most", [1, 50])
def test_hard_negatives_equal_the_loop(shape, most):
    generator = np.random.default_rng(len(shape) + most)
    values = generator.integers(0, 9, shape).astype(np.float32)
    roles = generator.integers(-1, 2, shape).astype(np.int8)
    found = hard_negatives(values, roles, most)
    assert found.shape == (shape[0], most)
    assert lists(found) == reference.hard_negatives(values, roles, most)
