import pytest

from tbnets.text import parsing
from tbnets.text.trees import read_tree
from tests import refusals


@pytest.fixture(scope="module")
def embedded():
    pytest.importorskip("textblob")
    pytest.importorskip("nltk")
    return parsing.open_parser("embedded")


def test_captions_are_tokenised_as_in_treebanks():
    for caption, wanted in (
        ("A man's dog doesn't run.", "A man 's dog does n't run ."),
        ("can\u2019t stop", "ca n\u2019t stop"),
        ("a T-shirt, (red)", "a T-shirt , ( red )"),
        ("two o'clock at 3.50", "two o'clock at 3.50"),
        *(("the U.S. flag_pole", "the U.S . flag _ pole"), ("", "")),
    ):
        assert parsing.split_tokens(caption) == wanted.split()


@pytest.mark.parametrize(
    "caption, phrases",
    [
        (
            "A young girl in a pink dress climbs into a wooden house .",
            "A young girl in a pink dress|A young girl|a pink dress|"
            "a wooden house",
        ),
        ("A man and a woman", "A man and a woman|A man|a woman"),
        (
            "the edge of a pool of water",
            "the edge of a pool of water|the edge|a pool|water",
        ),
    ],
)
def test_noun_phrases_of_the_embedded_parser(embedded, caption, phrases):
    tree = read_tree(embedded(caption))
    assert list(tree.words) == caption.split()
    found = [" ".join(tree.words[a:b]) for _, a, b in tree.phrases()]
    assert "|".join(one.removesuffix(" .") for one in found) == phrases


def test_the_parser_accepts_unusual_captions(embedded):
    for caption in ("Dogs (two) play / run.", "a and/or b", "100 % 'quoted'"):
        tree = read_tree(embedded(caption))
        assert list(tree.words) == parsing.split_tokens(caption)
    with pytest.raises(ValueError):
        embedded("...")


def test_a_parser_server_that_does_not_run_is_an_error():
    pytest.importorskip("nltk")
    for url in ("http://localhost:9", "nonsense"):
        with pytest.raises(ConnectionError, match=url):
            parsing.open_parser("corenlp", url)
    with refusals.refused("parser", "name"):
        parsing.open_parser("best")


def test_right_branching_parser_cuts_long_captions_and_words():
    parser = parsing.open_parser("right_branching")
    assert parser("A red dog") == "(X (X A) (X (X red) (X dog)))"
    assert parser("") == "(X -)"
    tree = read_tree(parser(" ".join(["cat"] * 5000) + " " + "x" * 9000))
    assert len(tree.words) == 4096
    assert len(read_tree(parser("x" * 10_000)).words[0]) == 200
