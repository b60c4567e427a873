"""Tests of the vocabulary and of the in-graph tokeniser."""

import os

import numpy as np
import pytest
import tensorflow as tf

from tbnets.text.vocabulary import Tokenizer, Vocabulary
from tests import refusals

CAPTIONS = ["A dog runs.", "a Dog, a cat!"]  # a 3, dog 2, cat 1, runs 1
WORDS = ("", "[UNK]", "a", "dog", "cat", "runs")


def test_build_orders_by_count_then_alphabet():
    assert Vocabulary.build(CAPTIONS).words == WORDS


def test_build_min_count_and_max_words():
    assert Vocabulary.build(CAPTIONS, min_count=2).words == WORDS[:4]
    assert Vocabulary.build(CAPTIONS, max_words=1).words == WORDS[:3]
    assert Vocabulary.build(CAPTIONS, max_words=99).words == WORDS


def test_whole_numbers_may_be_floats():
    vocabulary = Vocabulary.build(["a b b"], max_words=1.0)
    assert vocabulary.words == Vocabulary.build(["b"]).words
    assert Tokenizer(vocabulary, max_tokens=2.0)(["b b b"]).shape == (1, 2)


def test_vocabulary_size_and_equality():
    vocabulary = Vocabulary(WORDS)
    assert vocabulary.size == len(vocabulary) == 6
    assert vocabulary == Vocabulary(list(WORDS))
    assert vocabulary != Vocabulary(WORDS[:5])


@pytest.mark.parametrize(
    ("argument", "captions", "options"),
    [
        ("min_count", CAPTIONS, {"min_count": 0}),
        ("max_words", CAPTIONS, {"max_words": 0}),
        ("captions", CAPTIONS, {"min_count": 9}),
        ("captions", [], {}),
        ("captions", "a dog", {}),
    ],
)
def test_build_refuses(argument, captions, options):
    with refusals.of(argument):
        Vocabulary.build(captions, **options)


@pytest.mark.parametrize(
    "words",
    [
        (),
        ("",),
        ("a", "b"),
        ("", "[UNK]", "a", "a"),
        ("", "[UNK]", ""),
        ("", "[UNK]", "a dog"),
        ("", "[UNK]", "[UNK]"),
    ],
)
def test_vocabulary_refuses_bad_words(words):
    with refusals.of("words"):
        Vocabulary(words)


def test_save_writes_a_word_a_line(tmp_path):
    path = tmp_path / "vocabulary.txt"
    Vocabulary(("", "[UNK]", "\u00e9t\u00e9")).save(path)
    assert path.read_bytes() == b"\n[UNK]\n\xc3\xa9t\xc3\xa9\n"
    assert Vocabulary.load(path).words == ("", "[UNK]", "\u00e9t\u00e9")
    assert os.listdir(tmp_path) == ["vocabulary.txt"]


@pytest.mark.parametrize(
    ("content", "line"),
    [
        (b"", 1),
        (b"a\nb\n", 1),
        (b"\nb\n", 2),
        (b"\n", 2),
        (b"\n[UNK]\ndog\ncat\ndog\n", 5),
        (b"\n[UNK]\n\ncat\n", 3),
        (b"\n[UNK]\na dog\n", 3),
        (b"\n[UNK]\ndog\nca", 4),
        (b"\n[UNK]\ndog\n\xff\n", 4),
    ],
)
def test_load_names_file_and_line(tmp_path, content, line):
    path = tmp_path / "vocabulary.txt"
    path.write_bytes(content)
    with refusals.at(path, line):
        Vocabulary.load(path)
    path.unlink()
    with pytest.raises(FileNotFoundError, match=path.name):
        Vocabulary.load(path)


def test_tokenizer_literal():
    ids = Tokenizer(Vocabulary(WORDS))(
        ["A dog runs!", "", "?!", "zebra", "a [UNK] dog"]
    )
    expected = [[2, 3, 5], [1, 0, 0], [1, 0, 0], [1, 0, 0], [2, 1, 3]]
    assert ids.dtype == tf.int32
    np.testing.assert_array_equal(ids, expected)


@pytest.mark.parametrize(
    ("size", "captions", "expected"),
    [
        (6, [""], [[1]]),
        (6, ["?"], [[1]]),
        (6, ["", "..."], [[1], [1]]),
        (6, tf.zeros([0], tf.string), np.zeros((0, 1))),
        (2, ["a dog", ""], [[1, 1], [1, 0]]),
    ],
)
def test_tokenizer_without_captions_or_words(size, captions, expected):
    ids = Tokenizer(Vocabulary(WORDS[:size]))(captions)
    assert ids.dtype == tf.int32
    np.testing.assert_array_equal(ids, expected)


def test_tokenizer_special_words_in_text_are_ordinary_words():
    # A word "unk" has an id of its own; "[UNK]" in a caption is that word.
    tokenizer = Tokenizer(Vocabulary.build(["[UNK] <PAD>"]))
    np.testing.assert_array_equal(tokenizer(["[UNK]", "<pad>"]), [[3], [2]])


def test_tokenizer_cuts_at_max_tokens():
    tokenizer = Tokenizer(Vocabulary(WORDS), max_tokens=2)
    np.testing.assert_array_equal(
        tokenizer(["a dog runs", ""]), [[2, 3], [1, 0]]
    )
    with refusals.of("max_tokens"):
        Tokenizer(Vocabulary(WORDS), max_tokens=0)


def test_tokenizer_is_the_same_eager_in_graph_and_in_dataset_map():
    tokenizer = Tokenizer(Vocabulary(WORDS))
    captions = ["a dog", "", "zebra runs a cat"]
    eager = tokenizer(captions)
    signature = [tf.TensorSpec([None], tf.string)]
    graph = tf.function(tokenizer, input_signature=signature)
    np.testing.assert_array_equal(graph(tf.constant(captions)), eager)
    dataset = tf.data.Dataset.from_tensors(captions).map(tokenizer)
    np.testing.assert_array_equal(next(iter(dataset)), eager)
