"""Tests of doubtful search results."""

import types

import numpy as np
import pytest

from tbnets import zoo
from tbnets.serving import doubt, search
from tbnets.text.vocabulary import Vocabulary


def test_most_right_first_results_exceed_the_number():
    # Captions 0 to 5 find their photos, with these similarities; 6 does not.
    similarities = [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.05]
    table = np.zeros([7, 7])
    np.fill_diagonal(table, similarities)
    table[6, 0] = 0.9
    # The first fifth of the way from 0.1 to 0.6.
    assert doubt.likely_similarity(table, np.arange(7)) == 0.2


@pytest.mark.parametrize("least", [None, 0.5])
def test_low_similarities_and_unknown_content_words_are_doubtful(least):
    model = types.SimpleNamespace(
        metadata={"metadata": {search.LIKELY: least} if least else {}},
        vocabulary=Vocabulary(["", "[UNK]", "dog", "a"]),
    )
    queries = ["a dog", "the dog", "a zebra", "perro"]
    doubtful = search.are_doubtful(model, queries, np.array([[0.6, 0.4]] * 4))
    known = [False, bool(least)]
    assert doubtful.tolist() == [known, known, [True, True], [True, True]]
    rows = search.are_doubtful(model, np.zeros([1, 3]), np.array([[0.4]]))
    assert rows.tolist() == [[bool(least)]]  # No words to look up.


def test_doubtful_results_are_marked():
    text = search.format_answers("x", [0.5, 0.25], "ab", None, [0, 1])
    first, second = text.splitlines()[2:]
    assert first.split() == ["1", "0.500", "a"]
    assert second.split() == ["2", "0.250?", "b"]


def test_zoo_models_of_photos_have_the_number():
    model = zoo.load("flickr8k_photos")
    row = model.embed_text(["a dog in the snow"])
    photos = np.concatenate([row, -row])
    [answers] = model.search(["a dog in the snow"], photos)
    assert [x.is_doubtful for x in answers] == [False, True]
