"""Tests of doubtful search results."""

import types

import numpy as np
import pytest

from tbnets.serving import search, zoo
from tbnets.serving.doubt import likely_similarities
from tbnets.serving.saved_files import read_metadata
from tbnets.text.vocabulary import Vocabulary


def test_most_right_first_results_exceed_the_number():
    # Captions 0 to 5 find their photos, with these similarities; 6 does not.
    table = np.zeros([7, 7])
    np.fill_diagonal(table, [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.05])
    table[6, 0] = 0.9
    # The first fifth of the way from 0.1 to 0.6.
    assert likely_similarities(table, np.arange(7)) == [[7, 0.2]]


def test_right_results_among_few_photos_are_less_similar():
    rng = np.random.default_rng(0)
    photos, captions = rng.normal(size=(2, 300, 16))
    table = (photos + captions) @ photos.T
    [few, all_photos] = likely_similarities(table, np.arange(300))
    assert few[0] == 10 and all_photos[0] == 300
    assert few[1] < all_photos[1] - 0.5


def model_of(pairs):
    return types.SimpleNamespace(
        metadata={"metadata": {search.LIKELY: pairs} if pairs else {}},
        vocabulary=Vocabulary(["", "[UNK]", "dog", "a"]),
    )


@pytest.mark.parametrize("pairs", [None, [[10, 0.5]]])
def test_low_similarities_and_unknown_content_words_are_doubtful(pairs):
    queries = ["a dog", "the dog", "a zebra", "perro"]
    values = np.array([[0.6, 0.4]] * 4)
    doubtful = search.are_doubtful(model_of(pairs), queries, values, 10)
    known = [False, bool(pairs)]
    assert doubtful.tolist() == [known, known, [True, True], [True, True]]
    # There are no words to look up.
    rows = search.are_doubtful(model_of(pairs), np.zeros([1, 3]), values[:1], 1)
    assert rows.tolist() == [known]


@pytest.mark.parametrize(
    ("num_photos", "least"), [(1, 0.4), (10, 0.4), (100, 0.5), (5000, 0.6)]
)
def test_least_similarity_grows_with_the_number_of_photos(num_photos, least):
    model = model_of([[10, 0.4], [1000, 0.6]])
    values = np.array([[least - 0.01, least + 0.01]])
    doubtful = search.are_doubtful(model, ["a dog"], values, num_photos)
    assert doubtful.tolist() == [[True, False]]


@pytest.mark.parametrize("name", ["flickr8k_photos", "flickr8k_photos_large"])
def test_zoo_models_of_photos_have_the_number(name):
    metadata = read_metadata(zoo.folder() / name / "1")["metadata"]
    [few, many] = metadata[search.LIKELY]
    assert few[0] < many[0] and few[1] < many[1]
