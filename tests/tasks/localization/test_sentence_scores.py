"""Sentences and photos compared by phrases and regions."""

import types

import numpy as np

from tbnets.data.captions import CaptionedImages
from tbnets.data.phrases import PhraseRegions
from tbnets.tasks import localization as sentence_scores
from tbnets.tasks.localization import LocalizationScores
from tests.refusals import refused

MARKED = ("A grey dog .", "a ball", "a cat", "it")
OWN = ("a ball", "A gray dog", "It !", "a cat")


def captioned(captions, rows=(0, 0, 1, 1)):
    return CaptionedImages(("x", "y"), captions, rows, "test", "captions.json")


def marked_phrases(captions=MARKED):
    """Phrases: `dog`, `grey dog` of caption 0, `ball` of 1, `cat` of 2."""
    texts = ("dog", "grey dog", "ball", "cat")
    return PhraseRegions(
        captioned(captions),
        np.full((2, 2), 10),
        texts,
        [f"p{i}" for i in range(4)],
        [0, 0, 1, 2],
        [[0, 1]] * 4,
        [()] * 4,
        "aabc",
        [[0, 0, 1, 1]] * 4,
    )


def made_up_scores(nearest, learned=False):
    """Phrase p is embedded as the number p; `nearest` is looked up."""
    scorer = types.SimpleNamespace(
        nearest=lambda _, rows: np.asarray(nearest, "f4")[:, rows[:, 0]]
    )
    sides = {"phrases": np.arange(4)[:, None]}
    return LocalizationScores(
        types.SimpleNamespace(learned=learned),
        sides=sides,
        scorer=scorer,
        examples=types.SimpleNamespace(phrases=marked_phrases()),
    )


def test_captions_are_matched_by_their_words():
    phrases, records = marked_phrases(), captioned(OWN)
    found = sentence_scores.captions_of_phrases(phrases, records)
    assert found.tolist() == [1, 1, 0, 3]


def test_sentence_has_the_mean_distance_of_its_phrases():
    # Similarities 1, 1/2, -1 are distances 0, 1, 2.
    nearest = [[1, 0.5, -1, 1], [0.5, -1, 1, 1]]
    scores = sentence_scores.sentence_scores(
        made_up_scores(nearest), captioned(OWN)
    )
    rows = np.arange(2), np.arange(4)
    # Captions: ball; dog and grey dog; none, the mean of the rest; cat.
    wanted = -np.array([[2, 0.5, 2.5 / 3, 0], [0, 1.5, 0.5, 0]])
    np.testing.assert_allclose(scores.tile(*rows), wanted, atol=1e-6)
    pairs = scores.pairs(np.array([1, 0]), np.array([1, 0]))
    np.testing.assert_allclose(pairs, [-1.5, -2], atol=1e-6)


def test_incomparable_inputs_raise_errors():
    records = captioned(OWN)
    scores = made_up_scores(np.zeros((2, 4)), learned=True)
    with refused("--combine_with"):
        sentence_scores.sentence_scores(scores, records)
    without = made_up_scores([[1, 1, 1, 1], [-np.inf] * 4])
    with refused("--regions"):
        sentence_scores.sentence_scores(without, records)
    others = CaptionedImages(("x", "z"), OWN, (0, 0, 1, 1), "test", "other")
    with refused("--combine_with"):
        sentence_scores.captions_of_phrases(marked_phrases(), others)
