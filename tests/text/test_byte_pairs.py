"""Captions as byte pairs: literal ones, and those of Keras Hub."""

import json

import pytest
import tensorflow as tf

from tbnets.extras.hub import texts as byte_pairs
from tbnets.extras.hub.texts import BytePairs, byte_letters
from tbnets.serving.saved_files import check_ops

ODD = [
    "Two dogs run in 2009's 100%",
    "a dog's cat runs!",
    "",
    " tab\t and\nnew\x0blines ",
    "Ünïcode ÉCOLE \u00a0 z e\u0301cole \u2003thin\u2009space \x85 x",
    "日本語 dog नमस्ते a\u0300\u0301b ½ ² Ⅷ ١٢ a\u200bb",
    "don't o'clock re-do ...!!'s 'S 👍🏽 👨‍👩‍👧 ẞ",
]


def named(merges):
    """Returns (piece -> id, merges) of all bytes and of some merges."""
    letters = byte_letters()
    names = [*letters, *(one + "</w>" for one in letters)]
    names += [one.replace(" ", "") for one in merges]
    names = [*dict.fromkeys(names), "<|startoftext|>", "<|endoftext|>"]
    return {name: row for row, name in enumerate(names)}, merges


def pieces(merges, captions, most=77):
    """Returns the pieces of captions by their names."""
    vocabulary, _ = named(merges)
    names = list(vocabulary)
    made = BytePairs(vocabulary, merges)(captions, most)
    return [[names[row] for row in rows] for rows in made.to_list()]


def test_merges_are_applied_in_order():
    merges = ["o g</w>", "d o", "d og</w>", "a a"]
    # "dog": "o g</w>" comes before "d o"; of "aaa" the left two.
    assert pieces(merges, ["Dog do DOGS", "aaa", ""]) == [
        ["dog</w>", "d", "o</w>", "do", "g", "s</w>"],
        ["aa", "a</w>"],
        [],
    ]


def test_letters_digits_and_punctuation_are_separate_words():
    found = pieces(["' s</w>"], ["It's 10!?\u00a0é"])[0]
    wanted = ["i", "t</w>", "'s</w>", "1</w>", "0</w>", "!", "?</w>"]
    assert found == [*wanted, "Ã", "©</w>"]


def test_long_captions_and_words_are_cut(monkeypatch):
    assert pieces(["z z"], ["abc d", "e"], 2) == [["a", "b"], ["e</w>"]]
    monkeypatch.setattr(byte_pairs, "MOST_BYTES", 3)
    assert pieces(["z z"], ["abcdef"]) == [["a", "b", "c</w>"]]


def test_byte_pairs_of_no_captions_and_of_invalid_utf8():
    read = BytePairs(*named(["d o"]))
    assert read(tf.constant([], tf.string), 9).shape == (0, None)
    assert read(tf.constant([b"\xff do"]), 9).row_lengths().numpy() == [5]
    spec = tf.TensorSpec([None], tf.string)
    graph = tf.function(lambda x: read(x, 9), input_signature=[spec])
    check_ops("captions", graph.get_concrete_function().graph.as_graph_def())


def learned(captions):
    """Returns (piece -> id, merges) that are learned of captions."""
    tokenizers = pytest.importorskip("tokenizers")
    found = tokenizers.Tokenizer(
        tokenizers.models.BPE(end_of_word_suffix="</w>")
    )
    found.normalizer = tokenizers.normalizers.Lowercase()
    found.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(
        add_prefix_space=False
    )
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=2000, end_of_word_suffix="</w>", show_progress=False
    )
    found.train_from_iterator(captions, trainer)
    merges = json.loads(found.to_str())["model"]["merges"]
    merges = [" ".join(one) for one in merges if "Ġ" not in "".join(one)]
    return named([one for one in merges if one.count(" ") == 1])


def test_ids_equal_the_ids_of_keras_hub(data_root):
    hub = pytest.importorskip("keras_hub")
    text = (data_root / "flickr8k/dataset_flickr8k.json").read_text()
    images = json.loads(text)["images"]
    captions = [one["raw"] for each in images for one in each["sentences"]]
    vocabulary, merges = learned(captions[::16])
    assert len(merges) > 500
    captions = [*captions[:1500], *ODD]
    own = hub.models.CLIPTokenizer(vocabulary, merges)(captions)
    found = BytePairs(vocabulary, merges)(captions, 999)
    assert found.to_list() == own
