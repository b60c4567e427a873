"""Tf-idf against its definition, and the file of a fitted encoder."""

import collections
import math

import numpy as np
import pytest
from nltk import stem

from tbnets.features import caption_features, tfidf
from tbnets.features.tfidf import TfidfFeatures

CAPTIONS = [
    "Two dogs run on the snow.",
    "A dog runs.",
    "The cat's tail and a dog",
    "",
    "The of and",
    "two two cats!",
]


def loop(captions, lemmas, terms):
    """Tf-idf as the docstring defines it, one number at a time."""
    bags = [
        collections.Counter(
            lemmas[word]
            for word in caption.lower().replace("'", " ").strip(".!").split()
            if lemmas.get(word) in terms
        )
        for caption in captions
    ]
    rows = []
    for bag in bags:
        row = []
        for term in terms:
            found = sum(term in other for other in bags)
            idf = 1 + math.log((1 + len(captions)) / (1 + found))
            row.append(bag[term] * idf)
        length = math.sqrt(sum(value * value for value in row))
        rows.append([value / length if length else 0.0 for value in row])
    return np.array(rows)


LEMMAS = {
    **{"two": "two", "dogs": "dog", "dog": "dog", "run": "run", "runs": "run"},
    **{"cat": "cat", "cats": "cat", "tail": "tail", "snow": "snow"},
}


@pytest.mark.parametrize("num_terms", [1, 3, 100])
def test_features_equal_the_definition(num_terms):
    encoder = TfidfFeatures(num_terms).fit(CAPTIONS)
    # Three dogs (with "dogs"), three "two", two cats and runs, one of others.
    wanted = ("dog", "two", "cat", "run", "snow", "tail")[:num_terms]
    assert tuple(encoder.notes_["terms"]) == wanted
    assert encoder.dim == len(wanted)
    expected = loop(CAPTIONS, LEMMAS, wanted)
    found = encoder.transform(CAPTIONS)
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, expected, atol=1e-6)


def test_wordnet_is_used_if_its_data_are_installed(monkeypatch):
    class WordNet:
        def lemmatize(self, word, pos="n"):
            known = {("dogs", "n"): "dog", ("running", "v"): "run"}
            return known.get((word, pos), word)

    monkeypatch.setattr(stem, "WordNetLemmatizer", WordNet)
    name, lemmatize = tfidf.find_lemmatizer()
    assert name == "wordnet"
    words = ["dogs", "running", "cat"]
    assert [lemmatize(word) for word in words] == ["dog", "run", "cat"]


def test_different_encoders_have_different_digests():
    encoder = TfidfFeatures(4).fit(CAPTIONS)
    assert encoder.digest() != TfidfFeatures(3).fit(CAPTIONS).digest()
    before = encoder.digest()
    encoder.idf_ = encoder.idf_ * 2
    assert encoder.digest() != before


def test_key_of_a_caption_is_one_line():
    key = caption_features.caption_key
    assert key(" A  dog\nruns\r\n") == "A dog runs"
    assert key("\ufeffA dog") == "A dog" and key("") == "[EMPTY]"
