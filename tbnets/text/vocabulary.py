"""Words -> token ids, inside the graph.

`Vocabulary.build` counts the words of the training captions; `Tokenizer`, which
maps words to ids, is part of the exported model.
"""

import dataclasses
from collections.abc import Mapping

import tensorflow as tf
from typing_extensions import Self

from tbnets.annotations import Path, Strings
from tbnets.checked_files import CheckedFile
from tbnets.checked_numbers import checked_number
from tbnets.errors import InputError, check_kind
from tbnets.files import write_text
from tbnets.short_repr import short_repr
from tbnets.text.words import count_words, split_words

PADDING_WORD = ""
UNKNOWN_WORD = "[UNK]"
PADDING_ID = 0
UNKNOWN_ID = 1


@dataclasses.dataclass(frozen=True)
class Vocabulary:
    """Lists the words that have an id: the position is the id.

    Word 0 is padding, spelt as the empty string, and word 1 stands for every
    unknown word, spelt `[UNK]`. Neither can come out of `split_words`, so no
    caption can name them.

    Example:
        vocabulary = tbnets.Vocabulary.build(["A dog runs.", "A cat."])
        vocabulary.words  # ("", "[UNK]", "a", "cat", "dog", "runs")
        tbnets.Tokenizer(vocabulary)(["a dog", ""])  # [[2, 4], [1, 0]]

    Args:
        words: strings, the two special words first.
    """

    words: tuple[str, ...]

    __repr__ = short_repr("size")

    def __post_init__(self):
        object.__setattr__(self, "words", tuple(self.words))
        if problem := _first_problem(self.words):
            position, expectation = problem
            found = next(iter(self.words[position:]), None)
            raise InputError(
                f"`words` must {expectation}. Received: words[{position}]="
                f"{found!r}. Build the vocabulary with `Vocabulary.build`."
            )

    @classmethod
    def build(
        cls, captions: Strings, min_count: int = 1, max_words: int | None = None
    ) -> Self:
        """Builds the vocabulary of the training captions.

        Words come by falling count, words of one count alphabetically.

        Args:
            captions: sequence of strings, of the training split only: words
                seen in no training caption have no trained vector.
            min_count: occurrences below which a word stays unknown.
            max_words: number of words kept, the most frequent ones, not
                counting the two special words; all if None.

        Returns:
            A `Vocabulary`.

        Raises:
            ValueError: If an argument is out of range or no word is left.
        """
        return cls.of_counts(count_words(captions)[0], min_count, max_words)

    @classmethod
    def of_counts(
        cls,
        counts: Mapping[str, int],
        min_count: int = 1,
        max_words: int | None = None,
    ) -> Self:
        """Builds the vocabulary of words that are counted already.

        Args:
            counts: what `count_words` counted.
            min_count: as in `build`.
            max_words: as in `build`.

        Returns:
            A `Vocabulary`.

        Raises:
            ValueError: as `build`.
        """
        checked_number("min_count", min_count, 1, whole=True)
        if max_words is not None:
            max_words = checked_number("max_words", max_words, 1, whole=True)
        kept = [word for word in counts if counts[word] >= min_count]
        kept.sort(key=lambda word: (-counts[word], word))
        if not kept:
            raise InputError(
                "`captions` must hold at least one word that occurs `min_count`"
                f" times. Received: {len(counts)} distinct words, min_count="
                f"{min_count}. Check the captions' split or lower `min_count`."
            )
        return cls((PADDING_WORD, UNKNOWN_WORD, *kept[:max_words]))

    @property
    def size(self) -> int:
        """Number of ids, padding and unknown included."""
        return len(self.words)

    def __len__(self) -> int:
        return len(self.words)

    def save(self, path: Path) -> None:
        """Writes one word a line, UTF-8; the line number is the id + 1.

        The file appears complete or not at all.

        Args:
            path: file to write; an existing one is replaced.
        """
        write_text(path, "".join(f"{word}\n" for word in self.words))

    @classmethod
    def load(cls, path: Path) -> Self:
        """Reads a vocabulary that `save` wrote.

        Args:
            path: file to read.

        Returns:
            A `Vocabulary`.

        Raises:
            FileNotFoundError: If there is no such file.
            ValueError: If the file is damaged; names path and line.
        """
        file = CheckedFile(path)
        words, ends_well = file.lines()
        problem = _first_problem(words)
        if not ends_well:
            problem = (len(words) - 1, "end with a line break")
        if problem:
            position, expectation = problem
            found = next(iter(words[position:]), "end of file")
            advice = "Save the vocabulary again or take it from another run."
            file.refuse(f"to {expectation}", found, position + 1, advice)
        return cls(tuple(words))


class Tokenizer(tf.Module):
    """Maps caption strings to token ids, in the graph.

    The table is a constant of the graph: it travels inside a SavedModel
    without a file beside it.

    Args:
        vocabulary: a `Vocabulary`.
        max_tokens: words after which a caption is cut; never if None.

    Example:
        tokenizer = tbnets.Tokenizer(tbnets.Vocabulary.build(["A dog runs."]))
        tokenizer(["the dog", ""])  # [[1, 3], [1, 0]]
    """

    def __init__(
        self, vocabulary: Vocabulary, max_tokens: int | None = None
    ) -> None:
        super().__init__(name="tokenizer")
        if max_tokens is not None:
            max_tokens = checked_number("max_tokens", max_tokens, 1, whole=True)
        advice = "Make one by tbnets.Vocabulary.build(captions)."
        check_kind("vocabulary", vocabulary, Vocabulary, advice)
        self.vocabulary = vocabulary
        self.max_tokens = max_tokens
        ids = range(vocabulary.size)
        self._table = constant_table(vocabulary.words, ids, UNKNOWN_ID)

    __repr__ = short_repr("vocabulary", "max_tokens")

    def ragged(self, captions: Strings) -> tf.RaggedTensor:
        """Maps captions to ids without padding.

        Args:
            captions: string `[num_captions]`, UTF-8; `num_captions` may be 0.

        Returns:
            int32 `tf.RaggedTensor` `[num_captions, (words)]`; a caption
            without words is one unknown word.
        """
        words = split_words(captions)
        if self.max_tokens is not None:
            words = words[:, : self.max_tokens]
        found = self._table.lookup(words.values)
        ids = words.with_values(tf.cast(found, tf.int32))
        is_empty = tf.cast(tf.equal(words.row_lengths(), 0), tf.int64)
        unknown = tf.fill([tf.reduce_sum(is_empty)], UNKNOWN_ID)
        # There are as many as their sum: to check that would take more ops.
        filled = tf.RaggedTensor.from_row_lengths(
            unknown, is_empty, validate=False
        )
        return tf.concat([ids, filled], axis=1)

    @tf.autograph.experimental.do_not_convert
    def __call__(self, captions: Strings) -> tf.Tensor:
        """Maps captions to ids.

        Args:
            captions: string `[num_captions]`, UTF-8; `num_captions` may be 0.

        Returns:
            int32 `[num_captions, longest]`, padded with 0 on the right;
            `longest` is at least 1, as a caption without words is one
            unknown word.
        """
        ids = self.ragged(captions).to_tensor(PADDING_ID)
        return tf.pad(ids, [[0, 0], [0, tf.maximum(1 - tf.shape(ids)[1], 0)]])


def constant_table(keys, values, default):
    """Returns a table that is a constant of the graph, of int64 values."""
    values = tf.constant(values, tf.int64)
    initial = tf.lookup.KeyValueTensorInitializer(tf.constant(keys), values)
    return tf.lookup.StaticHashTable(initial, default)


def _first_problem(words):
    """Finds the first bad word: `(position, expectation)`, or None."""
    for position, special in enumerate((PADDING_WORD, UNKNOWN_WORD)):
        if len(words) <= position or words[position] != special:
            return position, f"have {special!r} as word {position}"
    seen = set()
    for position, word in enumerate(words):
        if word in seen:
            return position, "name every word once"
        if position > UNKNOWN_ID and len(word.split()) != 1:
            return position, "hold single words, without spaces"
        seen.add(word)
    return None
