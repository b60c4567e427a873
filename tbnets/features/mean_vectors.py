"""Means of the word vectors of captions."""

from collections.abc import Sequence

import numpy as np
from typing_extensions import Self

from tbnets.errors import InputError
from tbnets.features.caption_encoder import CaptionEncoder, word_counts
from tbnets.text.word_vectors import WordVectors


def check_vectors(vectors):
    """Raises ValueError if `WordVectors` are missing or empty."""
    if vectors is None or not len(vectors.words):
        raise InputError(
            "`vectors` must hold at least one word of the captions. Received: "
            f"{'none' if vectors is None else f'none in {vectors.path}'}. "
            "Name vectors of their language with --word_vectors."
        )


class MeanFeatures(CaptionEncoder):
    """Means of the vectors of a caption's words.

    Words without a vector are left out; a caption of such words alone is 0.

    Attributes:
        vectors_: float32 `[len(words_), dim]`.

    Source: the "mean vector" rows of Wang et al. 2016, Table 1 (c).
    Departures: none.
    """

    kind = "mean_vector"

    def __init__(self) -> None:
        super().__init__()
        self.vectors_ = np.zeros((0, 0), np.float32)

    @property
    def dim(self) -> int:
        """The size of a word vector."""
        return self.vectors_.shape[1]

    def fit(
        self, captions: Sequence[str], vectors: WordVectors | None = None
    ) -> Self:
        """Takes the vectors of all their words; the captions tell nothing."""
        check_vectors(vectors)
        self.words_, self._vocabulary = vectors.words, None
        self.vectors_ = np.ascontiguousarray(vectors.vectors, np.float32)
        return self

    def describe(self) -> str:
        """Returns the number of words and the size of their vectors."""
        return f"means of {self.dim}-d vectors of {len(self.words_)} words"

    def transform(self, captions: Sequence[str]) -> np.ndarray:
        """Returns mean vectors, float32 `[n, dim]`."""
        counts = word_counts(self.vocabulary, captions)
        words = np.asarray(counts.sum(axis=1), np.float32)
        return (counts @ self.vectors_) / np.maximum(words, 1)[:, None]

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Returns the shapes of the fitted arrays."""
        return {"vectors_": (len(self.words_), self.dim)}
