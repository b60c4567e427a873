"""What turns captions into fixed vectors: fitted once, kept in one file.

A `CaptionEncoder` is fitted on training captions and then gives each caption
a vector. It knows a fixed list of words and reads captions by `split_words`,
as the layers of `layers.fisher_vectors` do inside a SavedModel.

The file is an `.npz` without pickle: the fitted arrays, and a JSON text with
the kind, the parameters and the words.
"""

import hashlib
import json
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from typing_extensions import Self

from tbnets.annotations import Path
from tbnets.errors import InputError, import_extra
from tbnets.files import write_atomically
from tbnets.text.vocabulary import (
    PADDING_WORD,
    UNKNOWN_WORD,
    Tokenizer,
    Vocabulary,
)
from tbnets.text.word_vectors import WordVectors

FORMAT = "tbnets-caption-encoder-1"
CHUNK = 1024
_SPECIAL = 2  # The ids of padding and of unknown words.


class CaptionEncoder:
    """Turns captions into vectors; the base of every kind.

    ::

        encoder.fit(training_captions)
        encoder.transform(captions)          # float32 [n, dim]
        encoder.save("encoder.npz")

    Attributes:
        kind: its name in files and flags.
        parameters: names of the constructor's arguments, JSON values.
        words_: the words it knows, without padding and unknown.
        notes_: JSON dict on the fit, which `transform` does not read; among
            it `fitted_on`, what a tool writes down of the captions.
    """

    kind = ""
    parameters: tuple[str, ...] = ()

    def __init__(self) -> None:
        self.words_: tuple[str, ...] = ()
        self.notes_: dict[str, Any] = {}
        self._vocabulary: Vocabulary | None = None

    @property
    def dim(self) -> int:
        """The size of a caption's vector."""
        raise NotImplementedError

    def fit(
        self, captions: Sequence[str], vectors: WordVectors | None = None
    ) -> Self:
        """Learns what it needs of captions.

        Args:
            captions: strings, of the training split only.
            vectors: `text.word_vectors.WordVectors`, where its kind builds
                on them.

        Returns:
            Itself.
        """
        raise NotImplementedError

    def transform(self, captions: Sequence[str]) -> np.ndarray:
        """Returns the vectors of captions, float32 `[n, dim]`.

        All are made at once; `chunks` bounds the memory.
        """
        raise NotImplementedError

    def describe(self) -> str:
        """Returns in a few words what was fitted."""
        raise NotImplementedError

    def chunks(
        self, captions: Sequence[str]
    ) -> Iterator[tuple[slice, np.ndarray]]:
        """Yields `(slice, vectors)`, `CHUNK` captions at a time."""
        for start in range(0, len(captions), CHUNK):
            rows = slice(start, min(start + CHUNK, len(captions)))
            yield rows, self.transform(captions[rows])

    @property
    def vocabulary(self) -> Vocabulary:
        """The words as a `Vocabulary`: word i of `words_` has the id i + 2."""
        if self._vocabulary is None:
            words = (PADDING_WORD, UNKNOWN_WORD, *self.words_)
            self._vocabulary = Vocabulary(words)
        return self._vocabulary

    def digest(self) -> str:
        """Returns the SHA-256 of all that decides what `transform` gives."""
        digest = hashlib.sha256(self._header())
        for name in self.shapes():
            array = np.ascontiguousarray(getattr(self, name))
            digest.update(f"{name} {array.dtype} {array.shape}".encode())
            digest.update(array)
        return digest.hexdigest()

    def _header(self, **more):
        header = {
            "format": FORMAT,
            "kind": self.kind,
            "parameters": {n: getattr(self, n) for n in self.parameters},
            "words": list(self.words_),
        }
        return json.dumps(header | more, sort_keys=True).encode()

    def save(self, path: Path) -> None:
        """Writes the encoder as one `.npz`, complete or not at all."""
        arrays = {name: getattr(self, name) for name in self.shapes()}
        header = np.frombuffer(self._header(notes=self.notes_), np.uint8)
        write_atomically(
            path, lambda file: np.savez(file, header=header, **arrays)
        )

    def restore(self, header: Any, arrays: Any) -> None:
        """Takes what `save` wrote.

        Raises:
            KeyError, TypeError, ValueError: something is missing or of
                another shape or type.
        """
        self.words_ = tuple(header["words"])
        self.notes_ = dict(header["notes"])
        self._vocabulary = Vocabulary(
            (PADDING_WORD, UNKNOWN_WORD, *self.words_)
        )
        for name in self.shapes():
            setattr(self, name, arrays[name])
        for name, shape in self.shapes().items():
            found = getattr(self, name)
            if found.shape != shape or found.dtype.kind not in "fib":
                raise InputError(f"{name} has shape {found.shape}, not {shape}")
            if not np.isfinite(found).all():
                raise InputError(f"{name} has numbers that are not finite")
        self.check()

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Returns the shapes of the arrays that `fit` makes, by name."""
        raise NotImplementedError

    def check(self) -> None:
        """Raises ValueError where fitted arrays contradict each other."""


def word_counts(vocabulary, captions):
    """Counts the words of a vocabulary in captions.

    Args:
        vocabulary: a `Vocabulary`.
        captions: sequence of n strings.

    Returns:
        float32 `scipy.sparse.csr_array` `[n, vocabulary.size - 2]`; padding
        and unknown words have no column.
    """
    sparse = import_extra("text", "scipy.sparse")
    ids = Tokenizer(vocabulary).ragged(tf.constant(captions, tf.string))
    columns = ids.values.numpy() - _SPECIAL
    rows = ids.value_rowids().numpy()[columns >= 0]
    columns = columns[columns >= 0]
    ones = np.ones(len(columns), np.float32)
    shape = (len(captions), vocabulary.size - _SPECIAL)
    # What stands twice is summed.
    return sparse.coo_array((ones, (rows, columns)), shape=shape).tocsr()
