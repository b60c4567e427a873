"""Tests of the vocabulary and of the in-graph tokeniser."""

import os

import numpy as np
import pytest
import tensorflow as tf

from tbnets.text import vocabulary as words_lib
from tbnets.text.vocabulary import Tokenizer, Vocabulary

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


def test_build_counts_across_batches(monkeypatch):
    monkeypatch.setattr(words_lib, "_SPLIT_BATCH", 1)
    assert Vocabulary.build(CAPTIONS).words == WORDS


def test_vocabulary_size_and_equality():
    vocabulary = Vocabulary(WORDS)
    assert vocabulary.size == len(vocabulary) == 6
    assert vocabulary == Vocabulary(list(WORDS))
    assert vocabulary != Vocabulary(WORDS[:5])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"captions": CAPTIONS, "min_count": 0}, "`min_count` must be a"),
        ({"captions": CAPTIONS, "max_words": 0}, "`max_words` must be a"),
        ({"captions": CAPTIONS, "min_count": 9}, "`captions` must hold"),
        ({"captions": []}, "`captions` must hold"),
        ({"captions": "a dog"}, "`captions` must be a list"),
    ],
)
def test_build_refuses(arguments, message):
    with pytest.raises(ValueError, match=message):
        Vocabulary.build(**arguments)


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
    with pytest.raises(ValueError, match="`words` must"):
        Vocabulary(words)


def test_save_writes_a_word_a_line(tmp_path):
    path = tmp_path / "vocabulary.txt"
    Vocabulary(("", "[UNK]", "\u00e9t\u00e9")).save(path)
    assert path.read_bytes() == b"\n[UNK]\n\xc3\xa9t\xc3\xa9\n"
    assert Vocabulary.load(path).words == ("", "[UNK]", "\u00e9t\u00e9")
    assert os.listdir(tmp_path) == ["vocabulary.txt"]


def test_save_that_fails_keeps_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "vocabulary.txt"
    Vocabulary(WORDS).save(path)

    def disk_full(_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", disk_full)
    with pytest.raises(OSError, match="No space left"):
        Vocabulary(WORDS[:3]).save(path)
    assert Vocabulary.load(path).words == WORDS
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
    with pytest.raises(ValueError, match=f"vocabulary.txt:{line}: expected"):
        Vocabulary.load(path)


def test_load_missing_file(tmp_path):
    with pytest.raises(FileNotFoundError, match="nowhere.txt"):
        Vocabulary.load(tmp_path / "nowhere.txt")


def test_tokenizer_literal():
    ids = Tokenizer(Vocabulary(WORDS))(
        ["A dog runs!", "", "?!", "zebra", "a [UNK] dog"]
    )
    expected = [[2, 3, 5], [1, 0, 0], [1, 0, 0], [1, 0, 0], [2, 1, 3]]
    assert ids.dtype == tf.int32
    np.testing.assert_array_equal(ids, expected)


def test_tokenizer_special_words_in_text_are_ordinary_words():
    # A word "unk" has an id of its own; "[UNK]" in a caption is that word.
    tokenizer = Tokenizer(Vocabulary.build(["[UNK] <PAD>"]))
    np.testing.assert_array_equal(tokenizer(["[UNK]", "<pad>"]), [[3], [2]])


@pytest.mark.parametrize("captions", [[""], ["?"], ["", "..."]])
def test_tokenizer_only_empty_captions(captions):
    ids = Tokenizer(Vocabulary(WORDS))(captions)
    np.testing.assert_array_equal(ids, [[1]] * len(captions))


def test_tokenizer_no_captions():
    ids = Tokenizer(Vocabulary(WORDS))(tf.zeros([0], tf.string))
    assert ids.shape == (0, 1)
    assert ids.dtype == tf.int32


def test_tokenizer_without_words_knows_none():
    ids = Tokenizer(Vocabulary(WORDS[:2]))(["a dog", ""])
    np.testing.assert_array_equal(ids, [[1, 1], [1, 0]])


def test_tokenizer_cuts_at_max_tokens():
    tokenizer = Tokenizer(Vocabulary(WORDS), max_tokens=2)
    np.testing.assert_array_equal(
        tokenizer(["a dog runs", ""]), [[2, 3], [1, 0]]
    )
    with pytest.raises(ValueError, match="`max_tokens` must be"):
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


def test_tokenizer_ids_do_not_depend_on_the_other_captions():
    tokenizer = Tokenizer(Vocabulary(WORDS))
    alone = tokenizer(["a dog"])
    beside = tokenizer(["a dog", "a cat runs a dog"])
    np.testing.assert_array_equal(beside[:1, :2], alone)
    np.testing.assert_array_equal(beside[:1, 2:], [[0, 0, 0]])
