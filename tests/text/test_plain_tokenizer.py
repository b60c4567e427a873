"""The tokeniser in plain Python gives the ids of the tokeniser in the graph."""

import random

import numpy as np
import pytest

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


def in_graph(captions):
    lists = split_words(captions).to_list()
    return [[word.decode() for word in words] for words in lists]


def test_ids_are_those_of_the_graph(plain):
    expected = Tokenizer(Vocabulary(WORDS), 12)(CAPTIONS)
    np.testing.assert_array_equal(plain(CAPTIONS), expected)
    assert plain(CAPTIONS).dtype == np.int32
    np.testing.assert_array_equal(plain(["", ""]), [[1], [1]])
    assert plain([]).shape == (0, 1)
    np.testing.assert_array_equal(plain([b"a \xff dog"]), [[2, 3]])


@pytest.mark.parametrize("form", ["{}", "a{}b", "a'{}", "{}'s n't"])
def test_characters_are_split_as_in_the_graph(plain, form):
    points = [*range(0x600), *range(0x600, 0x110000, 89)]
    texts = [
        form.format(chr(point))
        for point in points
        if not 0xD800 <= point < 0xE000
    ]
    assert plain.split(texts) == in_graph(texts)


def test_random_texts_are_split_as_in_the_graph(plain):
    rng, pieces = random.Random(0), "aisntdlmrve'’` .é中々①\u0301\u00a0\tßn't"
    texts = [
        "".join(rng.choices(pieces, k=rng.randint(0, 14))) for _ in range(3000)
    ]
    assert plain.split(texts) == in_graph(texts)


@pytest.mark.real_data
def test_all_characters_are_split_as_in_the_graph(plain):
    # The other planes have no characters, or only private ones.
    for first in (0x00000, 0x10000, 0x20000, 0x30000, 0xE0000):
        texts = [
            f"{chr(point)} a{chr(point)}b"
            for point in range(first, first + (1 << 16))
            if not 0xD800 <= point < 0xE000
        ]
        assert plain.split(texts) == in_graph(texts)


@pytest.mark.real_data
def test_captions_are_split_as_in_the_graph(plain, data_root):
    path = data_root / "flickr30k/flickr30k.token.txt"
    lines = path.read_text("utf-8").splitlines()
    captions = [line.split("\t")[1] for line in lines]
    assert len(captions) == 158915
    for first in range(0, len(captions), 8192):
        part = captions[first : first + 8192]
        assert plain.split(part) == in_graph(part)


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


def test_captions_that_are_no_texts_are_errors(plain):
    with pytest.raises(TypeError):
        plain([3])
    for captions in "a dog", ["\ud800"]:
        with pytest.raises(ValueError):
            plain(captions)
