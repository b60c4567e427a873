"""Encoders that map captions to fixed vectors.

An encoder is fitted on training captions and saved in one `.npz` file. Its
`layer` computes the same vectors in a graph.
"""

import hashlib
import json
from collections.abc import Iterator, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from typing_extensions import Self

from tbnets.checks import Path, Strings, short_repr
from tbnets.data.store.npy import write_npz
from tbnets.errors import InputError, check_kind, import_extra
from tbnets.layers.caption_vectors import MeanVectors
from tbnets.text.plain_tokenizer import FIRST_WORD_ID
from tbnets.text.vocabulary import (
    PADDING_WORD,
    UNKNOWN_WORD,
    Tokenizer,
    Vocabulary,
)
from tbnets.text.word_vectors import WordVectors

FORMAT = "tbnets-caption-encoder-1"


class CaptionEncoder:
    """Base class of encoders, which map captions to vectors.

    ::

        encoder.fit(training_captions)
        encoder.transform(captions)          # float32 [n, dim]
        encoder.save("encoder.npz")

    Attributes:
        kind: name of the encoder in files and flags.
        parameters: names of the constructor's arguments.
        chunk: number of captions encoded at a time.
        words_: the known words, excluding padding and `[UNK]`.
        notes_: JSON values about the fit, such as `fitted_on`.
    """

    kind = ""
    parameters: tuple[str, ...] = ()
    chunk = 1024

    def __init__(self) -> None:
        self.words_: tuple[str, ...] = ()
        self.notes_: dict[str, Any] = {}

    @property
    def dim(self) -> int:
        """The dimension of a caption's vector."""
        raise NotImplementedError

    def __repr__(self) -> str:
        options = {"words": lambda encoder: len(encoder.words_)}
        return short_repr(*self.parameters, "dim", **options)(self)

    def fit(
        self, captions: Sequence[str], vectors: WordVectors | None = None
    ) -> Self:
        """Fits the encoder on training captions and returns it.

        Some encoders also require word vectors.
        """
        return self

    def transform(self, captions: Sequence[str]) -> np.ndarray:
        """Returns the vectors of captions, float32 `[n, dim]`."""
        raise NotImplementedError

    def chunks(
        self, captions: Sequence[str]
    ) -> Iterator[tuple[slice, np.ndarray]]:
        """Yields (slice of captions, vectors), `chunk` captions at a time."""
        for start in range(0, len(captions), self.chunk):
            rows = slice(start, min(start + self.chunk, len(captions)))
            yield rows, self.transform(captions[rows])

    def tokenizer(self, max_tokens: int | None = None) -> Any:
        """Returns a `Tokenizer` that uses the encoder's word ids."""
        return Tokenizer(self.vocabulary, max_tokens)

    def layer(self) -> keras.layers.Layer:
        """Returns a built layer that maps the tokenizer's ids to vectors."""
        raise NotImplementedError

    @property
    def vocabulary(self) -> Vocabulary:
        """The `Vocabulary`, in which word i of `words_` has the id i + 2."""
        if not self.words_:
            expected = "be called before captions are encoded"
            raise InputError("fit", expected, f"{self}")
        return Vocabulary((PADDING_WORD, UNKNOWN_WORD, *self.words_))

    def _header(self):
        return {
            "format": FORMAT,
            "kind": self.kind,
            "parameters": {n: getattr(self, n) for n in self.parameters},
            "words": list(self.words_),
        }

    def digest(self) -> str:
        """Returns the SHA-256 digest of parameters, words and fitted arrays."""
        header = json.dumps(self._header(), sort_keys=True)
        digest = hashlib.sha256(header.encode())
        for name in self.shapes():
            array = np.ascontiguousarray(getattr(self, name))
            digest.update(f"{name} {array.dtype} {array.shape}".encode())
            digest.update(array)
        return digest.hexdigest()

    def save(self, path: Path) -> None:
        """Writes the encoder to one `.npz` file atomically."""
        arrays = {name: getattr(self, name) for name in self.shapes()}
        write_npz(path, self._header() | {"notes": self.notes_}, arrays)

    def restore(self, header: Any, arrays: Any) -> None:
        """Restores the encoder from the header and arrays of a file.

        An invalid entry raises a KeyError, TypeError or ValueError.
        """
        checked = Vocabulary((PADDING_WORD, UNKNOWN_WORD, *header["words"]))
        self.words_ = checked.words[FIRST_WORD_ID:]
        self.notes_ = dict(header["notes"])
        for name in self.shapes():
            setattr(self, name, arrays[name])
        for name, shape in self.shapes().items():
            array = getattr(self, name)
            if array.shape != shape or array.dtype.kind not in "fib":
                raise InputError(f"{name} has shape {array.shape}, not {shape}")
            if not np.isfinite(array).all():
                raise InputError(f"{name} has numbers that are not finite")
        self.check()

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Returns the shapes of the fitted arrays, {name: shape}."""
        return {}

    def check(self) -> None:
        """Raises an error if the fitted arrays are inconsistent."""


def word_counts(vocabulary, captions):
    """Counts each known word in each caption.

    Returns a float32 `scipy.sparse.csr_array` `[n, vocabulary.size - 2]`.
    """
    sparse = import_extra("text", "scipy.sparse")
    ids = Tokenizer(vocabulary).ragged(tf.constant(captions, tf.string))
    columns = ids.values.numpy() - FIRST_WORD_ID
    rows = ids.value_rowids().numpy()[columns >= 0]
    columns = columns[columns >= 0]
    ones = np.ones(len(columns), np.float32)
    shape = (len(captions), vocabulary.size - FIRST_WORD_ID)
    # `tocsr` sums repeated entries.
    return sparse.coo_array((ones, (rows, columns)), shape=shape).tocsr()


class MeanFeatures(CaptionEncoder):
    """Averages the word vectors of a caption, ignoring words without a vector.

    A caption without known words maps to zeros.

    Attributes:
        vectors_: float32 `[len(words_), dim]`.

    Example:
        encoder = tbnets.MeanFeatures().fit(captions, vectors)
        encoder.transform(["two dogs run"]).shape  # (1, 300)

    Source: the "mean vector" rows of Wang et al. 2016, Table 1 (c). Departures:
    none.
    """

    kind = "mean_vector"

    def __init__(self) -> None:
        super().__init__()
        self.vectors_ = np.zeros((0, 0), np.float32)

    @property
    def dim(self) -> int:
        """The dimension of a word vector."""
        return self.vectors_.shape[1]

    def fit(
        self, captions: Sequence[str], vectors: WordVectors | None = None
    ) -> Self:
        """Stores the word vectors; the captions are not used."""
        check_kind("vectors", vectors, WordVectors)
        self.words_ = vectors.words
        self.vectors_ = np.ascontiguousarray(vectors.vectors, np.float32)
        return self

    def describe(self) -> str:
        """Returns a line with the number of words and the vector size."""
        return f"means of {self.dim}-d vectors of {len(self.words_)} words"

    def transform(self, captions: Sequence[str]) -> np.ndarray:
        """Returns mean vectors, float32 `[n, dim]`."""
        counts = word_counts(self.vocabulary, captions)
        words = np.asarray(counts.sum(axis=1), np.float32)
        return (counts @ self.vectors_) / np.maximum(words, 1)[:, None]

    def layer(self) -> keras.layers.Layer:
        """Returns the `MeanVectors` layer of the encoder."""
        return MeanVectors(self.vocabulary.size, self.dim).fitted(self)

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Returns the shapes of the fitted arrays."""
        return {"vectors_": (len(self.words_), self.dim)}


class CaptionReader(tf.Module):
    """Computes an encoder's features from raw captions, with TensorFlow.

    Args:
        encoder: a fitted `CaptionEncoder`.
        max_tokens: maximum number of words per caption; None for no limit.

    Example:
        encoder = tbnets.TfidfFeatures(3000).fit(captions)
        reader = tbnets.CaptionReader(encoder)
        reader(["two dogs run"]).shape  # (1, 3000), or fewer
    """

    def __init__(
        self, encoder: CaptionEncoder, max_tokens: int | None = None
    ) -> None:
        super().__init__(name="caption_reader")
        self.tokenizer = encoder.tokenizer(max_tokens)
        self.vocabulary = self.tokenizer.vocabulary
        self.max_tokens = self.tokenizer.max_tokens
        self.layer = encoder.layer()
        self.dim = encoder.dim

    __repr__ = short_repr("dim", "vocabulary", "max_tokens")

    def __call__(self, captions: Strings) -> tf.Tensor:
        """Maps captions, string `[n]`, to features `[n, dim]`."""
        return self.layer(self.tokenizer(captions))
