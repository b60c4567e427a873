"""Captions as word pieces: literal ones, and those of `tokenizers`."""

import json

import pytest
import tensorflow as tf

from tbnets.errors import InputError
from tbnets.serving.saved_files import check_ops
from tbnets.text.word_pieces import WordPieces
from tests import tiny_bert

ODD = [
    "",
    " \t\n",
    "The CAFÉ, running dogs!",
    "A dog\u200bs red\u3000dog \ufffd\x00\x07",
    "中文 dog",
    "[MASK] a [CLS]dog[SEP]runs [mask] [UNK]y",
    "a" * 100,
    "é" * 101,
    "ΑΣ ΣΑΣ ς İstanbul ẞ",
    "a\u0301\u0300 cafe\u0301 ﬁne ＡＢＣ x²",
    "emoji 😀👍🏽 👨‍👩‍👧 \ue000 private \U0001f1e9\U0001f1ea",
    "«a» “dog” ‘run’ — 3+4=7 <b> ^_^ `x` ~|~",
    "हिन्दी परीक्षण עִבְרִית العربيّة 한국어",
    "##s ## runs",
    "dog " * 300,
]


def pieces(captions, most=50, **normalizer):
    """Returns the pieces of captions by their names."""
    config = tiny_bert.tokenizer_config(**normalizer)
    rows = WordPieces(config, most).ragged(captions).to_list()
    return [[tiny_bert.WORDS[number] for number in row] for row in rows]


def test_captions_are_split_into_the_longest_pieces():
    assert pieces(["The CAFÉ, running dogs!", ""]) == [
        [
            *("[CLS]", "the", "cafe", ",", "run", "##ning", "dog", "##s"),
            *("[UNK]", "[SEP]"),
        ],
        ["[CLS]", "[SEP]"],
    ]
    assert pieces(["a dog [MASK]"], most=4) == [["[CLS]", "a", "dog", "[SEP]"]]


def test_rows_are_padded_with_0():
    tokenizer = WordPieces(tiny_bert.tokenizer_config(), 50)
    assert tokenizer(["a dog", ""]).numpy().tolist() == [
        [2, 5, 6, 3],
        [2, 3, 0, 0],
    ]
    assert tokenizer(tf.constant([], tf.string)).shape[0] == 0


def test_serving_supports_the_ops():
    tokenizer = WordPieces(tiny_bert.tokenizer_config(), 50)
    check_ops("captions", tokenizer.graph_def())


def test_digest_depends_on_words_and_settings():
    config = tiny_bert.tokenizer_config()
    digests = {WordPieces(config, most).sha256() for most in (50, 60)}
    cased = tiny_bert.tokenizer_config(lowercase=False)
    digests.add(WordPieces(cased, 50).sha256())
    config["model"]["vocab"]["blue"] = len(tiny_bert.WORDS)
    digests.add(WordPieces(config, 50).sha256())
    assert len(digests) == 4


def test_other_kinds_of_tokenizers_raise_an_error():
    config = tiny_bert.tokenizer_config()
    config["model"]["type"] = "BPE"
    with pytest.raises(InputError, match="BPE"):
        WordPieces(config, 50)


@pytest.mark.parametrize(
    "normalizer", [{}, {"lowercase": False}, {"strip_accents": False}]
)
def test_ids_equal_those_of_tokenizers(normalizer):
    tokenizers = pytest.importorskip("tokenizers")
    config = tiny_bert.tokenizer_config(**normalizer)
    other = tokenizers.Tokenizer.from_str(json.dumps(config))
    other.enable_truncation(50)
    wanted = [encoding.ids for encoding in other.encode_batch(ODD)]
    assert WordPieces(config, 50).ragged(ODD).to_list() == wanted
