"""Splits captions into words and maps words to token ids."""

import collections
import dataclasses
import functools
from collections.abc import Mapping

import numpy as np
import tensorflow as tf
import tensorflow_text as tf_text
from typing_extensions import Self

from tbnets.checks import (
    Integers,
    Path,
    Strings,
    checked_number,
    refuse_single,
    short_repr,
)
from tbnets.errors import InputError
from tbnets.files import CheckedFile, write_text
from tbnets.text.plain_tokenizer import (
    HAN_LETTER,
    HAN_NUMBER,
    LETTER,
    MARK_OR_NUMBER,
    OTHER,
    PADDING_ID,
    PADDING_WORD,
    UNKNOWN_ID,
    UNKNOWN_WORD,
    first_problem,
)


class PaddedRows:
    """Rows of varying length, for use as the texts of `Examples`.

    The width of a batch is the length of its longest row, rounded up so that
    few distinct shapes occur.

    Args:
        values: int32 `[n, ...]`, all rows of word ids (without 0) or of tree
            nodes, concatenated.
        lengths: int `[num_rows]`.
    """

    dtype = tf.int32
    least_step = 4
    shape: tuple[int | None, ...]

    def __init__(self, values: np.ndarray, lengths: Integers) -> None:
        self.values = np.asarray(values, np.int32)
        self.shape = (None, *self.values.shape[1:])
        self.lengths = np.asarray(lengths, np.int64)
        self._starts = np.cumsum(self.lengths) - self.lengths

    __repr__ = short_repr("shape", rows=lambda rows: len(rows.lengths))

    def batch(self, rows: Integers) -> np.ndarray:
        """Returns int32 `[len(rows), width, ...]`, padded with 0."""
        lengths = self.lengths[rows]
        width = padded_width(int(lengths.max(initial=1)), self.least_step)
        positions = np.arange(width)
        is_value = positions < lengths[:, None]
        batch = np.zeros((*is_value.shape, *self.shape[1:]), np.int32)
        rows_of_values = self._starts[rows][:, None] + positions
        batch[is_value] = self.values[rows_of_values[is_value]]
        return batch


def padded_width(length, least_step):
    """Rounds a length up to a multiple of a step.

    The step is 4 for lengths up to 32, 8 for lengths up to 64, and so on, but
    at least `least_step`.
    """
    step = max(least_step, 1 << max(0, (length - 1).bit_length() - 3))
    return -(-length // step) * step


# `split_words` splits the training captions and the input of the exported
# `Tokenizer`, so that training and serving agree. It uses one TF Text op, which
# TensorFlow Serving supports.

_SPLIT_BATCH = 8192

_APOSTROPHES = "[\u2018\u2019\u201b\u2032\u02bc\u00b4`]"
_CLITIC = r"'(s|ll|re|ve|d|m)([^\pL\pM\pN]|$)", r" \1\2"
_INNER_APOSTROPHE = r"([\pL\pM\pN])'([\pL\pM\pN])", r"\1\2"
# RE2 patterns and their replacements, in order. Word boundaries are spelt out
# because RE2's \b supports only ASCII letters. Clitics and inner apostrophes
# need two passes, because matches in a chain overlap.
_REWRITES = (
    (r"(\pL) n't([^\pL\pM\pN]|$)", r"\1nt\2"),
    _CLITIC,
    _CLITIC,
    _INNER_APOSTROPHE,
    _INNER_APOSTROPHE,
    (r"[^\pL\pM\pN]+", " "),
    (r"(\p{Han})", r" \1 "),
)


# AutoGraph would take half a second. No branch depends on a tensor.
@tf.autograph.experimental.do_not_convert
def split_words(captions: Strings) -> tf.RaggedTensor:
    """Splits captions into normalised words.

    - Unicode is normalised (NFKC) and case is folded. Bytes that are not UTF-8
      count as punctuation.
    - A word is a run of letters, marks and digits: `T-shirt!` becomes `t`,
      `shirt`.
    - Apostrophes are removed. Clitics become words: `man's` and the `man 's` of
      Penn Treebank text both become `man`, `s`. Other contractions are joined:
      `don't` and `do n't` both become `dont`.
    - Each Han character is a word.

    Args:
        captions: string `[num_captions]`, UTF-8.

    Returns:
        String `tf.RaggedTensor` `[num_captions, (words)]`.

    Raises:
        TypeError: If captions are not strings.
        ValueError: If captions are not one-dimensional.

    Example:
        tbnets.split_words(["A man's T-shirt!"])  # [[a, man, s, t, shirt]]
    """
    text = as_strings(captions)
    text = tf.strings.unicode_transcode(text, "UTF-8", "UTF-8")
    text = tf.strings.regex_replace(text, _APOSTROPHES, "'")
    text = tf_text.case_fold_utf8(text)  # Its mapping includes NFKC.
    for pattern, rewrite in _REWRITES:
        text = tf.strings.regex_replace(text, pattern, rewrite)
    # Only letters, marks, digits and spaces remain. TF Text's tokeniser splits
    # them in the same way, but adds 170 ops that check its offsets.
    return tf.strings.split(text)


_PLANES = (0, 1, 2, 3, 14)
"""Parts of Unicode, of 65536 code points each, with assigned characters. The
characters of the other parts are unassigned or private."""


@functools.lru_cache(1)
def character_tables():
    """Returns the Unicode tables with which a `PlainTokenizer` splits words.

    The result is {"folded": {character: text}, "kinds": [[first, last, kind]]}
    and can be written as JSON. Computing the tables takes two seconds.
    """
    points = [
        point
        for plane in _PLANES
        for point in range(plane << 16, (plane + 1) << 16)
        if not 0xD800 <= point < 0xE000  # Surrogates are no characters.
    ]
    characters = list(map(chr, points))
    text = tf.constant(characters)
    folded = tf_text.case_fold_utf8(
        tf.strings.regex_replace(text, _APOSTROPHES, "'")
    )
    is_letter, is_word, is_han = (
        tf.strings.regex_full_match(text, pattern).numpy()
        for pattern in (r"\pL", r"[\pL\pM\pN]", r"\p{Han}")
    )
    conditions = is_letter & is_han, is_word & is_han, is_letter, is_word
    names = HAN_LETTER, HAN_NUMBER, LETTER, MARK_OR_NUMBER
    kinds, runs = np.select(conditions, names, OTHER).tolist(), []
    for point, kind in zip(points, kinds):
        if kind == OTHER:
            continue
        if runs and runs[-1][1:] == [point - 1, kind]:
            runs[-1][1] = point
        else:
            runs.append([point, point, kind])
    pairs = zip(characters, (each.decode() for each in folded.numpy()))
    return {"folded": {a: b for a, b in pairs if a != b}, "kinds": runs}


def as_strings(captions):
    """Returns a string tensor `[num_captions]`."""
    text = tf.convert_to_tensor(captions, tf.string)
    if text.shape.rank in (1, None):
        return text
    received = f"captions.shape={text.shape}"
    raise InputError("captions", "be strings [num_captions]", received)


def split_in_batches(captions):
    """Yields the words of `_SPLIT_BATCH` captions at a time."""
    for start in range(0, len(captions), _SPLIT_BATCH):
        yield split_words(list(captions[start : start + _SPLIT_BATCH]))


def count_words(captions):
    """Counts the words in a sequence of captions.

    Returns:
        (counts, lengths): a `collections.Counter` of the words in order of
        first occurrence, and int64 `[num_captions]`, the number of words per
        caption.
    """
    refuse_single("captions", captions)
    counts, lengths = collections.Counter(), [np.zeros(0, np.int64)]
    for words in split_in_batches(captions):
        counts.update(words.flat_values.numpy().tolist())
        lengths.append(words.row_lengths().numpy())
    counts = {word.decode("utf-8"): count for word, count in counts.items()}
    return collections.Counter(counts), np.concatenate(lengths)


@dataclasses.dataclass(frozen=True)
class Vocabulary:
    """Lists the words that have an id; a word's position is its id.

    Word 0 is padding, the empty string. Word 1, `[UNK]`, represents unknown
    words.

    Example:
        vocabulary = tbnets.Vocabulary.build(["A dog runs.", "A cat."])
        vocabulary.words  # ("", "[UNK]", "a", "cat", "dog", "runs")
        tbnets.Tokenizer(vocabulary)(["a dog", ""])  # [[2, 4], [1, 0]]

    Args:
        words: strings, starting with the two special words.
    """

    words: tuple[str, ...]

    __repr__ = short_repr("size")

    def __post_init__(self):
        object.__setattr__(self, "words", tuple(self.words))
        if problem := first_problem(self.words):
            position, expectation = problem
            word = next(iter(self.words[position:]), None)
            received = f"words[{position}]={word!r}"
            raise InputError("words", expectation, received)

    @classmethod
    def build(
        cls, captions: Strings, min_count: int = 1, max_words: int | None = None
    ) -> Self:
        """Builds the vocabulary of the training captions.

        Words are sorted by descending count, then alphabetically.

        Args:
            captions: sequence of strings.
            min_count: minimum number of occurrences of a word.
            max_words: maximum number of words, without the two special words;
                None for no limit.

        Raises:
            ValueError: If an argument is out of range or no word remains.
        """
        return cls.of_counts(count_words(captions)[0], min_count, max_words)

    @classmethod
    def of_counts(
        cls,
        counts: Mapping[str, int],
        min_count: int = 1,
        max_words: int | None = None,
    ) -> Self:
        """Builds the vocabulary from `{word: count}`, as `build` does."""
        checked_number("min_count", min_count, 1, whole=True)
        if max_words is not None:
            max_words = checked_number("max_words", max_words, 1, whole=True)
        words = [word for word in counts if counts[word] >= min_count]
        words.sort(key=lambda word: (-counts[word], word))
        if not words:
            expected = f"have a word that occurs at least {min_count} times"
            received = f"{len(counts)} distinct words"
            raise InputError("captions", expected, received)
        return cls((PADDING_WORD, UNKNOWN_WORD, *words[:max_words]))

    @property
    def size(self) -> int:
        """The number of ids, including padding and unknown."""
        return len(self.words)

    def __len__(self) -> int:
        return len(self.words)

    def split(self, texts: Strings) -> list[list[str]]:
        """Splits texts into words, as `split_words` does."""
        lists = split_words(list(texts)).to_list() if len(texts) else []
        return [[word.decode() for word in words] for words in lists]

    def save(self, path: Path) -> None:
        """Writes the words to a UTF-8 file, one per line, sorted by id."""
        write_text(path, "".join(f"{word}\n" for word in self.words))

    @classmethod
    def load(cls, path: Path) -> Self:
        """Reads a vocabulary from a file that `save` wrote.

        Raises:
            ValueError: If the file is damaged.
        """
        file = CheckedFile(path)
        words, ends_well = file.lines()
        problem = first_problem(words)
        if not ends_well:
            problem = (len(words) - 1, "end with a line break")
        if problem:
            position, expectation = problem
            line = next(iter(words[position:]), "end of file")
            file.refuse(f"to {expectation}", line, position + 1)
        return cls(tuple(words))


class Tokenizer(tf.Module):
    """Maps caption strings to token ids with a lookup table in the graph.

    A caption without words becomes one unknown word.

    Args:
        vocabulary: a `Vocabulary`.
        max_tokens: maximum number of words per caption; None for no limit.

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
        self.vocabulary = vocabulary
        self.max_tokens = max_tokens
        ids = range(vocabulary.size)
        self._table = constant_table(vocabulary.words, ids, UNKNOWN_ID)

    __repr__ = short_repr("vocabulary", "max_tokens")

    def ragged(self, captions: Strings) -> tf.RaggedTensor:
        """Maps captions to ids without padding.

        Args:
            captions: string `[num_captions]`, UTF-8.

        Returns:
            An int32 `tf.RaggedTensor` of shape `[num_captions, (words)]`.
        """
        words = split_words(captions)
        if self.max_tokens is not None:
            words = words[:, : self.max_tokens]
        token_ids = self._table.lookup(words.values)
        ids = words.with_values(tf.cast(token_ids, tf.int32))
        is_empty = tf.cast(tf.equal(words.row_lengths(), 0), tf.int64)
        unknown = tf.fill([tf.reduce_sum(is_empty)], UNKNOWN_ID)
        # The lengths are correct by construction. Validation would add ops.
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
            `longest` is at least 1.
        """
        ids = self.ragged(captions).to_tensor(PADDING_ID)
        return tf.pad(ids, [[0, 0], [0, tf.maximum(1 - tf.shape(ids)[1], 0)]])


def constant_table(keys, values, default):
    """Creates an immutable lookup table with int64 values."""
    values = tf.constant(values, tf.int64)
    initial = tf.lookup.KeyValueTensorInitializer(tf.constant(keys), values)
    return tf.lookup.StaticHashTable(initial, default)
