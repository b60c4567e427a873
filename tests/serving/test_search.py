"""Tests of hits, and of doubtful results and unknown words."""

import types

import numpy as np
import pytest

from tbnets.serving import search, zoo
from tbnets.serving.doubt import likely_similarities
from tbnets.serving.saved_files import read_metadata
from tbnets.serving.search import PhotoSearch
from tbnets.text.vocabulary import Vocabulary

CAPTIONS = [
    "A green star .",
    "A small green Star, above a red ring",
    "A star beside a green ring",
    "",
    "A red ring below a green star",
]
# Images 0 and 1 have two captions, image 2 none, image 3 one.
CAPTION_TO_IMAGE = np.array([0, 1, 1, 0, 3])


@pytest.mark.parametrize(
    "query, images",
    [
        ("a green star", [0, 1, 3]),  # Others may stand between.
        ("GREEN star!", [0, 1, 3]),
        ("a star above a ring", [1]),  # Image 1 alone says it in one caption.
        ("a ring below a star", [3]),  # The order tells above from below.
        ("a star a star", None),  # A word counts as often as it is said.
        ("a blue star", None),
        ("", None),
    ],
)
def test_hits_contain_the_words_in_order(query, images):
    (found,) = search.find_hits([query], CAPTIONS, CAPTION_TO_IMAGE)
    assert (found and sorted(found)) == images


def test_hits_include_the_caption():
    (found,) = search.find_hits(["a ring"], CAPTIONS, CAPTION_TO_IMAGE)
    assert found == {1: CAPTIONS[1], 3: CAPTIONS[4]}
    assert search.find_hits(["a", "b"], [], []) == [None, None]


@pytest.fixture
def model():
    """Returns a model of features and of two words, each finds one image."""
    texts = {"star": [1.0, 0.5], "ring": [0.5, 1.0]}
    return types.SimpleNamespace(
        has=lambda *names: True,
        takes_photos=False,
        embed_images=np.array,
        embed_text=lambda queries: np.array([texts[one] for one in queries]),
        compare=lambda images, texts: images @ texts.T,
        vocabulary=Vocabulary(["", "[UNK]", "star"]),
        metadata={},
    )


@pytest.mark.parametrize(
    "queries", [["star", "ring"], [b"\xff\xfe"], np.array(["ring"])]
)
def test_unknown_words_cause_a_warning(model, queries):
    model.embed_text = lambda queries: np.eye(len(queries), 2)
    with pytest.warns(UserWarning, match='no word of ".*"'):
        PhotoSearch.search(model, queries, np.eye(2), 1)


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
