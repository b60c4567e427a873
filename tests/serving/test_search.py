"""Tests of how answers are judged and told."""

import types

import numpy as np
import pytest

from tbnets.serving import search
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


def test_hits_are_none_without_a_matching_caption():
    assert search.find_hits(["a", "b"], [], []) == [None, None]
    assert search.find_hits([], CAPTIONS, CAPTION_TO_IMAGE) == []


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
