"""Which wrong regions are hard, and what batches do with them."""

import pathlib

import numpy as np
import pytest

from tbnets.data.localization.hard_negatives import hard_negatives
from tbnets.data.localization.sampler import PhraseSampler, Sampling
from tbnets.errors import InputError
from tests import reference, tiny_phrases


def lists(table):
    return [row[row >= 0].tolist() for row in table]


def test_negatives_before_the_last_positive_are_hard():
    # Positives score 5 and 3; of the negatives 9, 4, 3 and 1, the third ties
    # with a positive and the fourth ranks after both. 8 is neither.
    values = np.array([[4, 5, 3, 9, 3, 8, 1]], np.float32)
    roles = np.array([[-1, 1, 1, -1, -1, 0, -1]], np.int8)
    table = hard_negatives(values, roles, 3)
    assert table.dtype == np.int16
    assert table.tolist() == [[3, 0, -1]]
    assert hard_negatives(values, roles, 1).tolist() == [[3]]


def test_a_phrase_may_have_none():
    values = np.array([[1, 2, 3], [3, 2, 1], [1, 2, 3]], np.float32)
    roles = np.array(
        # No positive; all rank after it; all overlap the truth.
        [[-1, -1, -1], [1, -1, -1], [1, 0, 0]],
        np.int8,
    )
    assert lists(hard_negatives(values, roles, 2)) == [[], [], []]


def test_of_equal_ones_the_first_are_kept():
    values = np.array([[7, 7, 7, 0]], np.float32)
    roles = np.array([[-1, -1, -1, 1]], np.int8)
    assert hard_negatives(values, roles, 2).tolist() == [[0, 1]]


@pytest.mark.parametrize("shape", [(0, 4), (5, 0), (1, 1), (5000, 7)])
@pytest.mark.parametrize("most", [1, 3, 50])
def test_lists_are_those_of_the_loop(shape, most):
    generator = np.random.default_rng(len(shape) + most)
    values = generator.integers(0, 9, shape).astype(np.float32)
    roles = generator.integers(-1, 2, shape).astype(np.int8)
    found = hard_negatives(values, roles, most)
    assert found.shape == (shape[0], most)
    assert lists(found) == reference.hard_negatives(values, roles, most)


def test_tables_that_are_too_wide_are_refused():
    with pytest.raises(InputError):
        wide = np.zeros((1, 32768), np.int8)
        hard_negatives(np.zeros(wide.shape), wide, 1)


@pytest.fixture(scope="module")
def examples(tmp_path_factory):
    folder = tiny_phrases.write_phrases(tmp_path_factory.mktemp("data"))
    return tiny_phrases.examples(folder)


def negatives_of(examples, batch):
    """Phrase -> columns of its photo that are its negatives in a batch."""
    found = {}
    for row, mask in zip(batch.phrases.tolist(), batch.is_negative):
        first = examples.first_regions[examples.phrases.phrase_to_image[row]]
        found[row] = (batch.candidates[mask] - first).tolist()
    return found


def test_a_phrase_has_its_hard_negatives_or_all(examples):
    roles = examples.roles.roles
    sampler = PhraseSampler(examples, Sampling(pairs_per_batch=12), 0)
    table = np.full((60, 2), -1, np.int16)
    wrong = [np.flatnonzero(row == -1) for row in roles]
    for row in range(0, 60, 3):  # Every third has a list, of two or of one.
        table[row, : 1 + row % 2] = wrong[row][: 1 + row % 2]
    sampler.hard_negatives = table
    found = {}
    for batch in sampler.epoch(0):
        found |= negatives_of(examples, batch)
    assert len(found) == 60
    for row, columns in found.items():
        expected = [c for c in table[row] if c >= 0] or wrong[row].tolist()
        assert columns == sorted(expected)


def test_only_what_is_listed_is_read(examples):
    sampler = PhraseSampler(examples, Sampling(pairs_per_batch=60), 0)
    columns = [np.flatnonzero(row == -1)[0] for row in examples.roles.roles]
    sampler.hard_negatives = np.array(columns, np.int16)[:, None]
    [batch] = sampler.epoch(0)
    pairs = zip(examples.phrases.phrase_to_image.tolist(), columns)
    expected = {
        int(examples.first_regions[image] + column) for image, column in pairs
    }
    assert sorted(expected) == sorted(batch.candidates.tolist())
    assert batch.is_negative.sum() == 60


def test_one_photo_whose_phrases_all_have_none(examples):
    folder = pathlib.Path(examples.features.path).parent
    alone = tiny_phrases.examples(folder, 1)
    sampler = PhraseSampler(alone, Sampling(candidates_per_image=4), 0)
    sampler.hard_negatives = np.full((6, 3), -1, np.int16)
    [batch] = sampler.epoch(0)
    assert len(batch.phrases) == 6 and len(batch.candidates) == 4


def test_without_a_table_batches_are_as_before(examples):
    # The table is looked at by phrase: one without entries changes nothing.
    sampling = Sampling(pairs_per_batch=12, candidates_per_image=5)
    sampler = PhraseSampler(examples, sampling, 3)
    before = list(sampler.epoch(1))
    sampler.hard_negatives = np.full((60, 2), -1, np.int16)
    for one, other in zip(before, sampler.epoch(1)):
        for part, same in zip(one, other):
            np.testing.assert_array_equal(part, same)
