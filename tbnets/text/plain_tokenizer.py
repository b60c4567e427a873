"""Maps captions to token ids in plain Python, without TensorFlow.

`vocabulary.Tokenizer` returns the same ids. Python's Unicode tables depend on
its version, so a `PlainTokenizer` uses TensorFlow's tables, which
`vocabulary.character_tables` returns.
"""

import bisect
import re
import unicodedata

import numpy as np

from tbnets.checks import refuse_single
from tbnets.errors import InputError, check_kind

PADDING_WORD = ""
UNKNOWN_WORD = "[UNK]"
PADDING_ID = 0
UNKNOWN_ID = 1
FIRST_WORD_ID = 2
LETTER, MARK_OR_NUMBER, HAN_LETTER, HAN_NUMBER = "LNHJ"
"""Kinds of characters. A Han character is also a letter or a number."""
OTHER = "."
_WORD = f"[a-z{LETTER}{MARK_OR_NUMBER}{HAN_LETTER}{HAN_NUMBER}]"
_END = f"(?!{_WORD})"
# The patterns of `vocabulary.split_words`, for a text in which each character
# but a-z, the space and the apostrophe is replaced by its kind.
_NOT = re.compile(f"[a-z{LETTER}{HAN_LETTER}] n't{_END}")
_CLITIC = re.compile(f"'(?:s|ll|re|ve|d|m){_END}")
_INNER = re.compile(f"(?<={_WORD})'(?={_WORD})")
_WORDS = re.compile(
    f"[{HAN_LETTER}{HAN_NUMBER}]|[a-z{LETTER}{MARK_OR_NUMBER}]+"
)


class _Kinds(dict):
    """Maps a code point to its kind, for `str.translate`."""

    def __init__(self, runs):
        super().__init__((ord(c), c) for c in "abcdefghijklmnopqrstuvwxyz '")
        self._starts = [first for first, _, _ in runs]
        self._runs = runs

    def __missing__(self, point):
        row = bisect.bisect(self._starts, point) - 1
        kind = OTHER
        if row >= 0 and point <= self._runs[row][1]:
            kind = self._runs[row][2]
        self[point] = kind
        return kind


class PlainTokenizer:
    """Maps captions to token ids.

    Args:
        words: the words of the vocabulary; a word's position is its id.
        tables: dict with two keys. `folded` maps each character to its
            case-folded text. `kinds` is a sorted list of ranges of code points,
            `[first, last, kind]`.
        max_tokens: maximum number of words per caption, or None.
    """

    def __init__(self, words, tables, max_tokens=None):
        if problem := first_problem(words):
            position, expectation = problem
            received = f"words[{position}]={[*words, ''][position]!r}"
            raise InputError("words", expectation, received)
        self.words = tuple(words)
        self._ids = {word: row for row, word in enumerate(words)}
        self._max_tokens = max_tokens
        try:
            self._folded = {ord(c): str(t) for c, t in tables["folded"].items()}
            runs = [(int(a), int(b), str(k)) for a, b, k in tables["kinds"]]
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            expected = "have `folded`, a mapping, and `kinds`, lists of three"
            raise InputError("tables", expected, repr(error)) from error
        self._kinds = _Kinds(runs)

    def split(self, captions):
        """Splits captions into words. Returns a list of lists of strings."""
        return [self._split(as_text(row, c)) for row, c in enumerate(captions)]

    def _split(self, text):
        text = text.translate(self._folded)
        if not text.isascii():
            text = unicodedata.normalize("NFC", text)
        kinds = text.translate(self._kinds)
        if "'" in kinds:
            text, kinds = _without_apostrophes(text, kinds)
        return [text[slice(*match.span())] for match in _WORDS.finditer(kinds)]

    def __call__(self, captions) -> np.ndarray:
        """Maps captions to ids, int32 `[num_captions, longest]`.

        Rows are padded with 0 on the right. A caption without words becomes one
        unknown word.
        """
        refuse_single("captions", captions)
        rows = [
            [self._ids.get(word, UNKNOWN_ID) for word in words]
            for words in (w[: self._max_tokens] for w in self.split(captions))
        ]
        longest = max(map(len, rows), default=1) or 1
        ids = np.full((len(rows), longest), PADDING_ID, np.int32)
        for row, values in zip(ids, rows):
            row[: len(values) or 1] = values or UNKNOWN_ID
        return ids


def as_text(row, caption):
    """Returns a caption, a string or UTF-8 bytes, as a string."""
    name = f"captions[{row}]"
    check_kind(name, caption, str, bytes)
    if isinstance(caption, bytes):
        return caption.decode("utf-8", errors="replace")
    try:
        caption.encode()
    except UnicodeEncodeError as error:
        received = f"{caption!r}, which UTF-8 cannot encode"
        raise InputError(name, "be text", received) from error
    return caption


def _without_apostrophes(text, kinds):
    """Removes apostrophes within words, and splits clitics from their words."""
    for pattern, first, replacement in (
        (_NOT, 1, ("", "n", "", "t")),
        (_CLITIC, 0, (" ",)),
        (_INNER, 0, ("",)),
    ):
        pieces, at = ([], []), 0
        for match in pattern.finditer(kinds):
            start = match.start() + first
            end = start + len(replacement)
            for piece, value in zip(pieces, (text, kinds)):
                piece += [value[at:start], *replacement]
            at = end
        if at:
            text = "".join([*pieces[0], text[at:]])
            kinds = "".join([*pieces[1], kinds[at:]])
    return text, kinds


def first_problem(words):
    """Finds the first invalid word of a vocabulary.

    Returns (its position, what is expected there), or None if all are valid.
    """
    for position, special in enumerate((PADDING_WORD, UNKNOWN_WORD)):
        if len(words) <= position or words[position] != special:
            return position, f"have {special!r} as word {position}"
    seen = set()
    for position, word in enumerate(words):
        if word in seen:
            return position, "have every word once"
        if position > UNKNOWN_ID and len(word.split()) != 1:
            return position, "have single words without spaces"
        seen.add(word)
    return None
