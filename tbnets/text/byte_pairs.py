"""Converts captions to CLIP's byte-pair ids with ops that TF Serving supports.

A word starts as a list of bytes. Each step merges the pair of neighbours that
is earliest in the list of merges.

Source: Sennrich et al. 2016; Radford et al. 2021, `simple_tokenizer.py`.
Departures: HTML entities and broken encodings are not repaired, and words are
cut after `MOST_BYTES` bytes.
"""

from collections.abc import Mapping, Sequence

import numpy as np
import tensorflow as tf
import tensorflow_text as tf_text

from tbnets.checks import Strings
from tbnets.text.vocabulary import constant_table

MOST_BYTES = 256
"""Maximum length of a word in bytes. Merging takes quadratic time."""
END_OF_WORD = "</w>"
# RE2 does not count a vertical tab as a space.
_SPACES = r"[\s\v\pZ\x{85}]+"
_WORD = r"'s|'t|'re|'ve|'m|'ll|'d|\pL+|\pN|[^\s\pL\pN]+"
_NONE = np.iinfo(np.int64).max


def byte_letters() -> list[str]:
    """Returns, for each byte, the letter that represents it in vocabularies."""
    printable = {*range(33, 127), *range(161, 173), *range(174, 256)}
    unused = iter(range(256, 512))
    codes = (x if x in printable else next(unused) for x in range(256))
    return [chr(code) for code in codes]


class BytePairs(tf.Module):
    """Maps captions to byte-pair ids.

    Args:
        vocabulary: {piece: id}. The last piece of a word ends in `</w>`.
        merges: lines of the form "first second", sorted by descending priority.
        specials: pieces that are matched literally in a caption.
    """

    def __init__(
        self,
        vocabulary: Mapping[str, int],
        merges: Sequence[str],
        specials: Sequence[str],
    ) -> None:
        super().__init__(name="byte_pairs")
        pairs = [line.split(" ") for line in merges if "#version" not in line]
        letters, ends = byte_letters(), ("", END_OF_WORD)
        ids = [[vocabulary[x + end] for end in ends] for x in letters]
        self._letters = np.array(ids)
        triples = [[vocabulary[x] for x in (a, b, a + b)] for a, b in pairs]
        special_ids = [vocabulary[piece] for piece in specials]
        self._padding = 1 + max(vocabulary.values())
        self._base = self._padding + 1
        first, second, merged = np.array(triples, np.int64).reshape(-1, 3).T
        ranked = np.arange(len(triples)) * self._base + merged
        keys = first * self._base + second
        self._merges = constant_table(keys, ranked, _NONE)
        self._specials = constant_table(list(specials), special_ids, -1)
        escaped = [piece.replace("|", r"\|") for piece in specials]
        self._special = f"({'|'.join(escaped)})"
        self._word = f"{self._special}|{_WORD}"

    @tf.autograph.experimental.do_not_convert
    def __call__(self, captions: Strings, most: int) -> tf.RaggedTensor:
        """Maps each caption to at most `most` ids, without start and end ids.

        Returns an int32 `tf.RaggedTensor` `[num_captions, (pieces)]`.
        """
        words = self._words(captions)[:, :most]  # A word has >= 1 piece.
        distinct, indices = tf.unique(words.values)
        pieces = tf.gather(self._pieces(distinct), indices)
        ids = words.with_values(tf.cast(pieces, tf.int32)).merge_dims(1, 2)
        return ids[:, :most]

    def _words(self, captions):
        text = tf.strings.unicode_transcode(captions, "UTF-8", "UTF-8")
        text = tf_text.normalize_utf8(tf.strings.lower(text), "NFC")
        text = tf.strings.regex_replace(text, _SPACES, " ")
        text = tf.strings.lower(text, "utf-8")
        text = tf.strings.regex_replace(text, self._special, r" \1 ")
        text = tf.strings.regex_replace(text, self._word, r" \0 ")
        # TF Text's `regex_split` would add 290 ops that check its offsets.
        return tf.strings.split(text)

    def _pieces(self, words):
        """Returns each word's piece ids, int64 `[n, (pieces)]`."""
        ids = self._letters_of(words)
        positions = tf.range(tf.shape(ids)[1])[tf.newaxis]

        def ranked(ids):
            return self._merges.lookup(ids[:, :-1] * self._base + ids[:, 1:])

        def merge(ids, ranks):
            best = tf.reduce_min(ranks, axis=1, keepdims=True)
            first = tf.argmin(ranks, axis=1, output_type=tf.int32)[:, None]
            is_found = best < _NONE
            shift = tf.cast(is_found & (positions > first), tf.int32)
            ids = tf.pad(ids, [[0, 0], [0, 1]], constant_values=self._padding)
            ids = tf.gather(ids, positions + shift, batch_dims=1)
            is_merged = is_found & (positions == first)
            ids = tf.where(is_merged, best % self._base, ids)
            return ids, ranked(ids)

        ids, _ = tf.while_loop(
            lambda _, ranks: tf.reduce_any(ranks < _NONE),
            merge,
            (ids, ranked(ids)),
        )
        special = self._specials.lookup(words)[:, tf.newaxis]
        special_ids = tf.where(positions == 0, special, self._padding)
        ids = tf.where(special >= 0, special_ids, ids)
        return tf.RaggedTensor.from_tensor(ids, padding=self._padding)

    def _letters_of(self, words):
        """Returns the ids of each word's bytes, padded to `[n, 2 or more]`."""
        words = tf.strings.substr(words, 0, MOST_BYTES)
        length = tf.strings.length(words)
        width = tf.reduce_max(tf.concat([length, [2]], axis=0))
        codes = tf.io.decode_raw(words, tf.uint8, fixed_length=width)
        letters = tf.gather(self._letters, tf.cast(codes, tf.int32))
        columns, length = tf.range(width), length[:, tf.newaxis]
        ids = tf.where(columns == length - 1, letters[..., 1], letters[..., 0])
        return tf.where(columns < length, ids, self._padding)
