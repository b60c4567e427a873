"""Tests of reading files of word vectors."""

import struct

import numpy as np
import pytest

from tbnets.text.vocabulary import count_words
from tbnets.text.word_vectors import coverage, read_word_vectors
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
    "byte_order_mark_glove": b"\xef\xbb\xbf" + text(),
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
def test_all_kinds_give_the_same(file, kind):
    found = read_word_vectors(file(GOOD[kind]), ["cat", "", "bird", "dog", "a"])
    assert found.words == ("cat", "dog", "a")
    np.testing.assert_array_equal(
        found.vectors, [WORDS["cat"], WORDS["dog"], WORDS["A"]]
    )
    assert found.vectors.dtype == np.float32


def test_no_word_is_found(file):
    found = read_word_vectors(file(text()), ["bird"])
    assert found.words == () and found.vectors.shape == (0, 3)


@pytest.mark.parametrize("make", [binary, text])
def test_own_spelling_comes_before_others(file, make):
    words = {
        "DOG": (0, 0, 0),
        "Dog": (9, 9, 9),
        "dog": (1, 1, 1),
        "don't": (2, 2, 2),
        "Don't": (3, 3, 3),
    }
    found = read_word_vectors(file(make(words)), ["dog", "dont"])
    np.testing.assert_array_equal(found.vectors, [[1, 1, 1], [2, 2, 2]])


def test_words_with_spaces_are_passed_over(file):
    content = text({". .": (1, 2, 3), **WORDS})
    # The first row tells the length, so it is one without spaces.
    content = text({"x": (0, 0, 0)}) + content
    assert read_word_vectors(file(content), ["dog"]).words == ("dog",)


NAN = float("nan")
TWO = struct.pack("<f", 2.0)
# Line that is named -> contents; None of binary files, which have no lines.
BAD = {
    None: [
        binary()[:-3],
        binary({"dog": (1, 2, 3), "c" * 40: (4, 5, 6)})[:-13],
        binary().replace(TWO, b"\x00\x00A\x00@", 1),
        binary().replace(b"cat", b"\ncat", 1),
        binary().replace(b"\ncat", b"cat", 1),
        binary({"dog": (1, 2, 3), "c\nt": (4, 5, 6)}, newline=b""),
        b"\x1f\x8b\x08abc",
        b"PK\x03\x04abc",
    ],
    1: [
        binary({"dog": (1, NAN, 3)}),
        text(header=b"4 3\n"),
        binary(header=b"2 4\n"),
        binary(header=b"2 3\n"),
        binary(header=b"99999999999 3\n"),
        text({"dog": (1, "two", 3)}),
        text({"dog": ("1_0", 2, 3)}),
        text({"dog": (1, 1e99, 3)}),
        b"",
        b"x" * 3_000_000,
    ],
    2: [
        binary(header=b"9" * 4000 + b" 3\n"),
        binary(header=b"3 0\n"),
        text(header=b"3 4\n"),
        text({"x": (1, 1, 1), "dog": (1, NAN, 3)}),
    ],
    4: [
        text() + b"bird 1 2\n",
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
def test_bad_files_are_named(file, line, content):
    path = file(content)
    with refusals.at(path, line):
        read_word_vectors(path, ["dog", "cat"])


@pytest.mark.parametrize("content", [text()[:-1], text()[:-3]])
def test_a_last_line_that_may_be_cut_is_told(file, content):
    path = file(content)
    with pytest.warns(UserWarning, match="vectors:3: "):
        found = read_word_vectors(path, ["A"])
    assert found.vectors.shape == (1, 3)


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(FileNotFoundError, match="none"):
        read_word_vectors(tmp_path / "none", ["dog"])


def test_progress_adds_up_to_the_file(file):
    for content in (text(), binary(newline=b"")):
        read = []
        read_word_vectors(file(content), [], read.append)
        header = content.index(b"\n") + 1 if content is not text() else 0
        assert sum(read) in (len(content), len(content) - header)


@pytest.mark.real_data
def test_real_files_cover_what_their_notes_say(data_root):
    captions = [
        line.split("\t")[1]
        for line in (data_root / "flickr8k/Flickr8k.token.txt")
        .read_text("utf-8")
        .splitlines()
    ]
    counts, _ = count_words(captions)
    folder = data_root / "word_vectors"
    shares = {
        "glove_6b_100d.bin": (100, 0.84, 0.87),
        "glove_twitter_25d_10k.txt": (25, 0.90, 0.93),
    }
    for name, (dim, low, high) in shares.items():
        vectors = read_word_vectors(folder / name, counts)
        assert vectors.dim == dim
        assert low < coverage(vectors, counts)["token_share"] < high
