"""The tokeniser in plain Python gives the ids of the tokeniser in the graph."""

import random

import numpy as np
import pytest
import tensorflow as tf

from tbnets.text.plain_tokenizer import PlainTokenizer
from tbnets.text.vocabulary import (
    Tokenizer,
    Vocabulary,
    character_tables,
    split_words,
)

CAPTIONS = [
    "A dog's T-shirt, isn't it? They do n't.",
    "The man 's 'quoted' rock'n'roll and y'all'd've",
    "",
    "!!",
    "Café Ünïcode ﬁne ① ½ ｆｕｌｌ",
    "猫が座る 中々〇",
    "e\u0301 a\u030a\u0323",
    "dogs’ `tails´ 's n't",
]
WORDS = ("", "[UNK]", "a", "dog", "dont", "isnt", "s", "café", "猫", "the")


@pytest.fixture(scope="module")
def plain():
    return PlainTokenizer(WORDS, character_tables(), 12)


def assert_split_as_in_graph(plain, texts):
    found, expected = plain.split(texts), split_words(texts)
    assert [*map(len, found)] == expected.row_lengths().numpy().tolist()
    joined = tf.strings.reduce_join(expected, -1, separator=" ").numpy()
    assert [" ".join(words).encode() for words in found] == joined.tolist()


def test_plain_tokenizer_gives_the_ids_of_the_graph(plain):
    expected = Tokenizer(Vocabulary(WORDS), 12)(CAPTIONS)
    np.testing.assert_array_equal(plain(CAPTIONS), expected)
    assert plain(CAPTIONS).dtype == np.int32
    np.testing.assert_array_equal(plain(["", ""]), [[1], [1]])
    assert plain([]).shape == (0, 1)
    np.testing.assert_array_equal(plain([b"a \xff dog"]), [[2, 3]])


def characters(points):
    return [chr(point) for point in points if not 0xD800 <= point < 0xE000]


def test_characters_next_to_apostrophes_are_split_as_in_the_graph(plain):
    some = characters([*range(0x600), *range(0x600, 0x110000, 89)])
    texts = [text for one in some for text in (f"a'{one}", f"{one}'s n't")]
    assert_split_as_in_graph(plain, texts)


def test_random_texts_are_split_as_in_the_graph(plain):
    rng, pieces = random.Random(0), "aisntdlmrve'’` .é中々①\u0301\u00a0\tßn't"
    texts = [
        "".join(rng.choices(pieces, k=rng.randint(0, 14))) for _ in range(3000)
    ]
    assert_split_as_in_graph(plain, texts)


@pytest.mark.real_data
def test_all_characters_are_split_as_in_the_graph(plain):
    # The other planes have no characters, or only private ones.
    for first, step in ((0, 1), (0x10000, 3), (0x20000, 9), (0xE0000, 9)):
        some = characters(range(first, first + (1 << 16), step))
        assert_split_as_in_graph(plain, [f"{one} a{one}b" for one in some])


@pytest.mark.parametrize(
    ("words", "tables"),
    [
        (("", "a"), {"folded": {}, "kinds": []}),
        (("", "[UNK]", "a", "a"), {"folded": {}, "kinds": []}),
        (WORDS, {"folded": {}}),
        (WORDS, {"folded": {"ab": "c"}, "kinds": []}),
        (WORDS, {"folded": {}, "kinds": [[1, 2]]}),
        (WORDS, []),
    ],
)
def test_damaged_tables_are_errors(words, tables):
    with pytest.raises(ValueError):
        PlainTokenizer(words, tables)


def test_captions_that_are_not_text_are_errors(plain):
    with pytest.raises(TypeError):
        plain([3])
    for captions in "a dog", ["\ud800"]:
        with pytest.raises(ValueError):
            plain(captions)
