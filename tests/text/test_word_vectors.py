"""Tests of files of word vectors, and of tables made of them."""

import struct

import numpy as np
import pytest

from tbnets.errors import InputError
from tbnets.text.vocabulary import Vocabulary, count_words
from tbnets.text.word_vectors import (
    WordVectors,
    centred,
    coverage,
    coverage_line,
    embedding_table,
    read_word_vectors,
    with_new_dims,
)
from tests import refusals

WORDS = {"dog": (1.0, 2.0, 3.0), "cat": (4.0, 5.0, 6.0), "A": (7.0, 8.0, 9.0)}


def binary(words=WORDS, header=None, newline=b"\n"):
    content = header or b"%d 3\n" % len(words)
    for word, row in words.items():
        content += word.encode() + b" " + struct.pack("<3f", *row) + newline
    return content


def text(words=WORDS, header=b""):
    rows = [f"{w} {' '.join(map(str, row))}\n" for w, row in words.items()]
    return header + "".join(rows).encode()


GOOD = {
    "word2vec_binary": binary(),
    "word2vec_binary_without_newlines": binary(newline=b""),
    "word2vec_text": text(header=b"3 3\n"),
    "glove": text(),
    "glove_without_last_newline": text()[:-1],
    "glove_windows": text().replace(b"\n", b"\r\n"),
    "byte_order_mark_text": b"\xef\xbb\xbf" + text(header=b"3 3\n"),
    "byte_order_mark_binary": b"\xef\xbb\xbf" + binary(),
    "trailing_spaces": text().replace(b"\n", b" \n"),
}


@pytest.fixture
def file(tmp_path):
    def write(content):
        (tmp_path / "vectors").write_bytes(content)
        return tmp_path / "vectors"

    return write


@pytest.mark.filterwarnings("ignore:.*expected a newline after the last")
@pytest.mark.parametrize("kind", GOOD)
def test_all_formats_give_the_same_vectors(file, kind):
    found = read_word_vectors(file(GOOD[kind]), ["cat", "", "bird", "dog", "a"])
    assert found.words == ("cat", "dog", "a")
    expected = np.float32([WORDS["cat"], WORDS["dog"], WORDS["A"]])
    np.testing.assert_array_equal(found.vectors, expected, strict=True)


EXPECTED = [[1, 1, 1], [2, 2, 2]]


@pytest.mark.parametrize("make", [binary, text])
def test_exact_spelling_comes_before_other_spellings(file, make):
    names = ("DOG", "Dog", "dog", "don't", "Don't")
    words = dict(zip(names, np.float32([[0] * 3, [9] * 3, *EXPECTED, [3] * 3])))
    found = read_word_vectors(file(make(words)), ["dog", "dont"])
    np.testing.assert_array_equal(found.vectors, EXPECTED)


NAN = float("nan")
TWO = struct.pack("<f", 2.0)
# Line that is named -> contents; None of binary files, which have no lines.
BAD = {
    None: [
        binary()[:-3],
        binary().replace(TWO, b"\x00\x00A\x00@", 1),
        binary().replace(b"cat", b"\ncat", 1),
        binary().replace(b"\ncat", b"cat", 1),
        b"\x1f\x8b\x08abc",
    ],
    1: [
        text(header=b"4 3\n"),
        binary(header=b"2 4\n"),
        binary(header=b"99999999999 3\n"),
        text({"dog": (1, "two", 3)}),
        text({"dog": (1, 1e99, 3)}),
        b"",
        b"x" * 3_000_000,
    ],
    2: [
        binary(header=b"9" * 4000 + b" 3\n"),
        text(header=b"3 4\n"),
        text({"x": (1, 1, 1), "dog": (1, NAN, 3)}),
    ],
    4: [
        text() + b"bird 1 2 3 4\n",
        text() + b"\n" + text({"x": (1, 1, 1)}),
        text() + text({"dog": (1, 1, 1)}),
    ],
}


@pytest.mark.parametrize(
    "line, content",
    [(line, content) for line, some in BAD.items() for content in some],
    ids=lambda value: str(value)[:40],
)
def test_errors_name_bad_files_of_word_vectors(file, line, content):
    path = file(content)
    with refusals.at(path, line):
        read_word_vectors(path, ["dog", "cat"])


@pytest.mark.parametrize("content", [text()[:-1], text()[:-3]])
def test_a_last_line_that_may_be_cut_is_reported(file, content):
    path = file(content)
    with pytest.warns(UserWarning, match="vectors:3: "):
        found = read_word_vectors(path, ["A"])
    assert found.vectors.shape == (1, 3)


def test_coverage_counts_words_and_occurrences():
    vectors = WordVectors(("dog",), np.ones((1, 2), np.float32))
    counts, _ = count_words(["a dog and a dog", "a cat"])
    report = coverage(vectors, counts)
    # dog twice, of a a a and cat dog dog: 2 of 7.
    assert report == {
        "words": 4,
        "known_words": 1,
        "token_share": 2 / 7,
        "most_frequent_missing": ["a", "and", "cat"],
    }
    line = coverage_line(report)
    assert all(part in line for part in ("1 of 4", "28.6 %", "a, and, cat"))
    assert coverage(vectors, {})["token_share"] == 0


def test_random_vectors_have_the_spread_of_the_known_ones():
    generator = np.random.default_rng(0)
    known = generator.normal((5, -5), (0.1, 2), (400, 2)).astype("float32")
    vectors = WordVectors(tuple(f"w{i}" for i in range(400)), known)
    others = [f"x{i}" for i in range(400)]
    vocabulary = Vocabulary(("", "[UNK]", *vectors.words, *others))
    table = embedding_table(vectors, vocabulary, seed=3)
    np.testing.assert_array_equal(table[2:402], known)
    np.testing.assert_allclose(table[402:].mean(axis=0), (5, -5), atol=0.4)
    np.testing.assert_allclose(table[402:].std(axis=0), (0.1, 2), rtol=0.2)
    again = embedding_table(vectors, vocabulary, seed=3)
    np.testing.assert_array_equal(table, again)
    np.testing.assert_array_equal(table[0], 0)


def test_embedding_table_without_known_words_is_rejected():
    vectors = WordVectors(("chat",), np.ones((1, 2), np.float32))
    vocabulary = Vocabulary(("", "[UNK]", "dog"))
    with pytest.raises(InputError):
        embedding_table(vectors, vocabulary)


def test_centred_vectors_by_hand():
    rows = np.array([[1, 10], [3, 10], [5, 16]], np.float32)
    found = centred(WordVectors(("a", "b", "c"), rows, "v.txt"), 0.5)
    # Less the means 3 and 12: -2 -2, 0 -2, 2 4; mean square 32 / 6.
    expected = np.array([[-2, -2], [0, -2], [2, 4]]) * 0.5 / np.sqrt(32 / 6)
    np.testing.assert_allclose(found.vectors, expected, atol=1e-6)
    assert found.vectors.dtype == np.float32
    assert (found.words, found.path) == (("a", "b", "c"), "v.txt")
    np.testing.assert_array_equal(rows[0], (1, 10))
    alike = WordVectors(("a", "b"), np.ones((2, 3), np.float32))
    np.testing.assert_array_equal(centred(alike, 0.5).vectors, 0)


def test_new_dimensions_follow_the_old():
    table = np.arange(6000, dtype=np.float32).reshape(2000, 3)
    found = with_new_dims(table, 2, seed=1)
    np.testing.assert_array_equal(found[:, :3], table)
    new = found[1:, 3:]
    assert -0.05 <= new.min() < -0.049 and 0.049 < new.max() <= 0.05
    np.testing.assert_array_equal(found[0, 3:], 0)
    assert np.any(found != with_new_dims(table, 2, seed=2))
