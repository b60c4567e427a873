"""Computes tf-idf vectors of the most frequent lemmas.

::

    captions -> words -> lemmas, without stop words -> counts x idf -> L2

Source: Wang et al. 2016, Sec. 3.1. Departures: if NLTK's WordNet is not
installed, simplemma provides the lemmas.
"""

import collections
import contextlib
import functools
from collections.abc import Sequence

import keras
import numpy as np
from typing_extensions import Self

from tbnets.checks import checked_number
from tbnets.errors import InputError, import_extra
from tbnets.features.caption_encoder import CaptionEncoder, word_counts
from tbnets.layers.caption_vectors import TfidfVectors
from tbnets.text.vocabulary import count_words
from tbnets.text.word_vectors import WordVectors

STOP_WORDS = frozenset(
    """
    a an the this that these those some any each every all both either neither
    no not nor none such own same other another few more most much many
    i me my mine myself we us our ours ourselves you your yours yourself
    yourselves he him his himself she her hers herself it its itself they them
    their theirs themselves one's who whom whose which what where when why how
    am is are was were be been being have has had having do does did doing done
    can could shall should will would may might must ought
    and or but if because as until while than then so too very just only also
    of at by for with about between into through during before after to from
    in on off out over under above below up down again further once here there
    against along among around across near onto upon within without toward
    towards
    s t d m ll re ve nt dont doesnt didnt isnt arent wasnt werent cant cannot
    couldnt wont wouldnt shouldnt hasnt havent hadnt aint
    """.split()
)
"""Function words, spelt as `split_words` returns them.

Words that a photo can show, such as numbers and "front", are not included.
"""


def find_lemmatizer():
    """Returns the name of a lemmatiser, and a function that lemmatises a word.

    The lemmatiser is `wordnet` from NLTK if the WordNet data are installed, and
    `simplemma` otherwise.
    """
    with contextlib.suppress(ImportError, LookupError):
        from nltk.stem import WordNetLemmatizer

        wordnet = WordNetLemmatizer()
        wordnet.lemmatize("dogs")  # LookupError without data.
        return "wordnet", functools.partial(_wordnet_lemma, wordnet)
    simplemma = import_extra("text", "simplemma")
    return "simplemma", functools.partial(simplemma.lemmatize, lang="en")


def _wordnet_lemma(wordnet, word):
    lemma = wordnet.lemmatize(word, "n")
    return lemma if lemma != word else wordnet.lemmatize(word, "v")


class TfidfFeatures(CaptionEncoder):
    """Computes L2-normalised tf-idf vectors of captions.

    Column j is the j-th most frequent lemma of the training captions::

        x_j = count_j (1 + ln((1 + n) / (1 + df_j))),   x / |x|

    n training captions were read, and df_j of these captions contain lemma j. A
    caption without known words maps to zeros.

    Args:
        num_terms: maximum number of lemmas in the dictionary. Wang et al. 2016
            use 3000 for Flickr30K and 5600 for MSCOCO.

    Attributes:
        columns_: int32 `[len(words_)]`, each known word's column.
        idf_: float32 `[dim]`.

    Example:
        encoder = tbnets.TfidfFeatures(3000).fit(captions)
        encoder.transform(["two dogs run"]).shape  # (1, 3000), or fewer

    Source: Wang et al. 2016, Sec. 3.1. The weights are scikit-learn's.
    """

    kind = "tfidf"
    parameters = ("num_terms",)

    def __init__(self, num_terms: int = 3000) -> None:
        super().__init__()
        self.num_terms = checked_number("num_terms", num_terms, 1, whole=True)
        self.columns_ = np.zeros(0, np.int32)
        self.idf_ = np.zeros(0, np.float32)

    @property
    def dim(self) -> int:
        """The number of lemmas in the dictionary."""
        return len(self.idf_)

    def fit(
        self, captions: Sequence[str], vectors: WordVectors | None = None
    ) -> Self:
        """Selects the lemmas of the dictionary and computes their weights.

        Raises:
            ValueError: If the captions contain only stop words.
        """
        sklearn = import_extra("text", "sklearn.feature_extraction.text")
        name, lemmatize = find_lemmatizer()
        counts, _ = count_words(captions)
        words = [word for word in counts if word not in STOP_WORDS]
        lemmas = {word: lemmatize(word).casefold() for word in words}
        terms = _most_frequent(lemmas, counts, self.num_terms)
        if not terms:
            received = f"{len(counts)} stop words"
            raise InputError("captions", "have other words", received)
        columns = {term: column for column, term in enumerate(terms)}
        words = [word for word in sorted(lemmas) if lemmas[word] in columns]
        self.words_ = tuple(words)
        column_of_word = [columns[lemmas[word]] for word in words]
        self.columns_ = np.array(column_of_word, np.int32)
        self.idf_ = np.ones(len(terms), np.float32)
        weighting = sklearn.TfidfTransformer().fit(self._term_counts(captions))
        self.idf_ = weighting.idf_.astype(np.float32)
        self.notes_ |= {"lemmatizer": name, "terms": terms}
        return self

    def describe(self) -> str:
        """Returns the dictionary's size and the lemmatiser's name."""
        return (
            f"{self.dim} lemmas (by {self.notes_['lemmatizer']}) of "
            f"{len(self.words_)} words"
        )

    def transform(self, captions: Sequence[str]) -> np.ndarray:
        """Returns tf-idf vectors, float32 `[n, dim]`."""
        rows = self._term_counts(captions).toarray() * self.idf_
        lengths = np.linalg.norm(rows, axis=1, keepdims=True)
        return np.divide(rows, lengths, out=rows, where=lengths > 0)

    def _term_counts(self, captions):
        sparse = import_extra("text", "scipy.sparse")
        size = len(self.words_)
        ones = np.ones(size, np.float32), (np.arange(size), self.columns_)
        lemma_of_word = sparse.csr_array(ones, shape=(size, self.dim))
        return word_counts(self.vocabulary, captions) @ lemma_of_word

    def layer(self) -> keras.layers.Layer:
        """Returns the `TfidfVectors` layer of the encoder."""
        return TfidfVectors(self.vocabulary.size, self.dim).fitted(self)

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Returns the shapes of the fitted arrays."""
        return {"columns_": (len(self.words_),), "idf_": (self.dim,)}

    def check(self) -> None:
        """Raises an error if a column is out of range."""
        columns = self.columns_
        if columns.dtype.kind != "i" or (
            columns.size and not 0 <= columns.min() <= columns.max() < self.dim
        ):
            raise InputError("columns_ are out of range")


def _most_frequent(lemmas, counts, number):
    totals = collections.Counter()
    for word, lemma in lemmas.items():
        if lemma not in STOP_WORDS:
            totals[lemma] += counts[word]
    return sorted(totals, key=lambda lemma: (-totals[lemma], lemma))[:number]
