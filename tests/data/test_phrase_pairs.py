"""Tests of noun phrases in trees, and of their pairs with regions."""

import numpy as np
import pytest

from tbnets.data import phrase_pairs
from tbnets.data.batches import ArrayRows, PhotoRegions
from tbnets.data.captions import CaptionedImages
from tbnets.data.phrase_pairs import (
    PairBatches,
    PairExamples,
    noun_phrases,
)
from tbnets.text.packed_trees import TreeRows, tree_arrays
from tbnets.text.trees import read_tree
from tbnets.text.vocabulary import Vocabulary

VOCABULARY = Vocabulary(("", "[UNK]", "dog", "cat", "sees", "old"))
DOG_SEES_CAT = "(S (NP (NN dog)) (VBZ sees) (NP (NN cat)))"
OLD_SEES_DOG = "(S (NP (JJ old) (NN cat)) (VBZ sees) (NP (NN dog)))"
# Photo 0 says two things, photo 1 one, photo 2 has no noun phrase.
CAPTIONS = (DOG_SEES_CAT, OLD_SEES_DOG, DOG_SEES_CAT, "(VP (VBZ sees))")
OWNERS = np.array([0, 0, 1, 2])


class Store:
    """Photos of 10 x 10 pixels with 3, 2 and 0 regions."""

    counts = np.array([0, 2, 3])
    sizes = np.full((3, 2), 10)
    first_regions = np.array([0, 0, 2, 5])
    dim = 1

    def boxes(self, row):
        found = [[0, 0, 5, 5], [0, 0, 5, 6], [6, 6, 10, 10]]
        return np.array(found, "float32")[: self.counts[row]], None

    def take_regions(self, rows):
        return np.asarray(rows, "float32")[:, None]


def examples(limit=19, most_overlap=1.0):
    trees = [read_tree(text) for text in CAPTIONS]
    texts = TreeRows(tree_arrays(trees, VOCABULARY))
    records = CaptionedImages(
        image_ids=("a", "b", "c"),
        captions=[" ".join(tree.words) for tree in trees],
        caption_to_image=OWNERS,
        split="train",
        path="here",
    )
    return PairExamples(
        records=records,
        images=ArrayRows(np.zeros((3, 4))),
        texts=texts,
        phrases=noun_phrases(texts),
        regions=PhotoRegions(Store(), [2, 1, 0], limit, most_overlap),
    )


def batches(held, limit=19, **options):
    return PairBatches(
        examples(limit),
        lambda: held,
        images_per_batch=3,
        captions_per_image=2,
        seed=0,
        **options,
    )


def batch(held, **options):
    # Rows in an order of their own, as an epoch draws them.
    return batches(held, **options).batch(
        np.array([1, 0, 2]), np.array([2, 0, 1, 3]), 0
    )


# Phrases: dog, cat; old cat, dog; dog, cat. In the batch those of photo 1
# come first: dog, cat | dog, cat | old cat, dog.
HELD = {
    "choice": np.array([0, 3, 1, 0, 1, 2], "int16"),
    "confidence": np.array([0.5, 0.25, -1.0, 0.75, 1.0, 0.1], "float32"),
}


@pytest.mark.parametrize(
    "most_overlap, rows",
    # Of the first two regions the one holds 25 of the other's 30 pixels: 5/6.
    [(0.84, [[2, 3, 4], [0, 1], []]), (0.8, [[2, 4], [0], []])],
)
def test_regions_that_overlap_an_earlier_region_are_skipped(most_overlap, rows):
    regions = examples(19, most_overlap).regions
    assert regions.counts.tolist() == [len(one) for one in rows]
    for image, wanted in enumerate(rows):
        numbers = np.arange(len(wanted))
        found = regions.take(np.full(len(wanted), image), numbers)
        assert found[:, 0].tolist() == wanted
        assert regions.candidates(image)[-1].tolist() == [0, 0, 10, 10]
    # The limit counts what is left.
    few = examples(1, most_overlap).regions
    assert few.counts.tolist() == [1, 1, 0]
    assert few.candidates(0).tolist() == [[0, 0, 5, 5], [0, 0, 10, 10]]
    assert few.candidates(2).tolist() == [[0, 0, 10, 10]]


def test_a_batch_of_pairs_computed_by_hand():
    found = batch(HELD)
    # Photo 1 (place 0): dog has region 1, cat the photo. Photo 0 (place 1):
    # dog has region 0, cat the photo, old cat region 1, dog region 0.
    assert found["region_images"].tolist() == [0, 1, 1]
    assert found["regions"][:, 0].tolist() == [1, 2, 3]
    # Rows of photos come after the three regions.
    assert found["region_of"].tolist() == [0, 3, 1, 4, 2, 1]
    weights = [1.0, 0.1, 0.5, 0.25, 0.0, 0.75]
    np.testing.assert_allclose(found["weights"], weights, rtol=1e-6)
    # Trees have 6, 6, 7 and 2 nodes; words come first.
    kinds = found["captions"][found["captions"][:, :, 2] > 0][:, 3]
    assert kinds[found["phrase_nodes"]].all()
    assert found["phrase_nodes"].tolist() == [3, 4, 9, 10, 16, 17]


def test_pairs_are_contrasted_with_those_of_other_photos():
    found = batch(HELD)["is_contrast"].T
    expected = np.zeros((6, 6), bool)
    # Equal words are never contrasted: dog of photo 1 with dog, cat with cat.
    expected[0, [3, 4]] = True  # dog's region of photo 1: cat, old cat
    expected[1, 1] = True  # dog's region of photo 0: cat
    expected[2, [0, 1]] = True  # old cat's region: dog, cat
    expected[3, [2, 4, 5]] = True  # photo 1, chosen by cat: dog, old cat, dog
    expected[4, 0] = True  # photo 0, chosen by cat: dog
    np.testing.assert_array_equal(found, expected)


def test_contrast_batch_includes_regions_of_the_same_photo():
    found = batch(HELD, contrast="batch")["is_contrast"].T
    assert found[3, 0] and found[0, 1]  # Photo 1 and its region 1: 0.3.
    # Regions 0 and 1 of photo 0 overlap by 5/6, with the photo by 0.25, 0.3.
    assert not found[1, 4] and not found[2, 2]
    assert found[4, 2] and found[1, 3] and found[2, 3]
    assert not found[5].any()  # Photo 2, which nothing chose.


def test_pairs_have_weight_zero_before_the_first_assignments():
    found, again = batch({}), batch({})
    assert found["weights"].tolist() == [0] * 6
    np.testing.assert_array_equal(again["region_of"], found["region_of"])


def test_a_batch_may_contain_every_region():
    found = batch(HELD, every_region=True)
    assert found["region_images"].tolist() == [0, 0, 1, 1, 1]
    assert found["regions"][:, 0].tolist() == [0, 1, 2, 3, 4]
    assert found["region_of"].tolist() == [1, 5, 2, 6, 3, 2]


def test_a_batch_has_a_maximum_number_of_pairs(monkeypatch):
    all_of_them = batch(HELD)
    monkeypatch.setattr(phrase_pairs, "MOST_PAIRS", 4)
    few = batch(HELD)
    assert len(few["weights"]) == len(few["is_contrast"]) == 4
    assert set(few["phrase_nodes"]) < set(all_of_them["phrase_nodes"])


WORDS = Vocabulary(("", "[UNK]", "a", "dog", "cat", "and"))


def phrases_of(*texts):
    trees = [read_tree(text) for text in texts]
    return noun_phrases(TreeRows(tree_arrays(trees, WORDS)))


def test_noun_phrases_computed_by_hand():
    found = phrases_of(
        "(NP (NP (DT a) (NN dog)) (CC and) (NP (NP (DT a)) (NN cat)))",
        "(NN dog)",
        "(S (NP (DT A) (NN dog)) (VP runs))",
    )
    # Words 0 to 4 come first, then a level of phrases after the other.
    assert found.captions.tolist() == [0, 0, 0, 2]
    assert found.spans.tolist() == [[0, 2], [3, 4], [3, 5], [0, 2]]
    assert found.nodes.tolist() == [5, 6, 7, 3]
    assert found.texts.tolist() == [0, 1, 2, 0]
    assert found.starts.tolist() == [0, 3, 3, 4]
    assert found.rows_of(np.array([2, 0])).tolist() == [3, 0, 1, 2]
    assert found.rows_of(np.array([1], int)).tolist() == []
