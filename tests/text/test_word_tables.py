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
    with_new_dims,
)


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


def test_embedding_table_by_hand():
    vectors = WordVectors(
        ("cat", "dog"), np.array([[1, 2], [3, 6]], np.float32)
    )
    vocabulary = Vocabulary(("", "[UNK]", "dog", "bird"))
    table = embedding_table(vectors, vocabulary)
    # Dog is the only known word, so that the others have its mean and no
    # spread.
    np.testing.assert_array_equal(table, [[0, 0], [3, 6], [3, 6], [3, 6]])


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


def test_embedding_table_refuses():
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


def test_new_dims_stand_behind_the_old():
    table = np.arange(6000, dtype=np.float32).reshape(2000, 3)
    found = with_new_dims(table, 2, seed=1)
    assert (found.shape, found.dtype) == ((2000, 5), np.float32)
    np.testing.assert_array_equal(found[:, :3], table)
    new = found[1:, 3:]
    assert -0.05 <= new.min() < -0.049 and 0.049 < new.max() <= 0.05
    assert abs(new.mean()) < 0.002  # 0.029 / sqrt(4000) is 0.0005.
    np.testing.assert_array_equal(found[0, 3:], 0)
    np.testing.assert_array_equal(found, with_new_dims(table, 2, seed=1))
    assert np.any(found != with_new_dims(table, 2, seed=2))
    np.testing.assert_array_equal(with_new_dims(table, 0), table)
