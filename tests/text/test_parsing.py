import json
import os
import signal

import pytest

from tbnets.errors import InputError
from tbnets.text import parsing
from tbnets.text.trees import trees_of
from tests import refusals

CALLS, OPENED = [], []


def parse(caption):
    """Puts the words into one phrase; knows nothing of cats."""
    CALLS.append(caption)
    if "cat" in caption:
        raise RuntimeError("no  cats\nhere")
    if "broken" in caption:
        return "(NP (NN broken"
    return f"(NP {caption})"


@pytest.fixture(autouse=True)
def parser(monkeypatch):
    monkeypatch.setattr(
        parsing, "open_parser", lambda *name: OPENED.append(name) or parse
    )
    CALLS.clear()
    OPENED.clear()


CAPTIONS = ["a dog", "a red cat", "a dog", "broken", ""]


def test_each_caption_is_parsed_once_and_failures_are_reported():
    done = []
    found = parsing.parse_captions(CAPTIONS, processes=1, progress=done.append)
    assert sorted(CALLS) == ["", "a dog", "a red cat", "broken"]
    assert sum(done) == 4
    assert found.trees["a dog"] == "(NP a dog)"
    assert found.trees["a red cat"] == "(X (X a) (X (X red) (X cat)))"
    assert found.failures["a red cat"] == "no cats here"
    assert found.failures.keys() == {"a red cat", "broken", ""}
    assert found.trees[""] == "(X -)"
    assert found.num_cached == 0
    parsing.parse_captions([], processes=1)
    assert OPENED == [("embedded", "")]


def test_short_noun_phrases_contain_no_other(monkeypatch):
    tree = (
        "(S (NP (NP (DT a) (NN dog)) (PP (IN on) (NP (NN grass)))) (VB runs))"
    )
    monkeypatch.setattr(parsing, "open_parser", lambda *_: lambda _: tree)
    phrases = parsing.short_noun_phrases("a dog on grass runs")
    assert phrases == ["a dog", "grass"]
    assert parsing.short_noun_phrases("...") == []


def die(*_):
    os.kill(os.getpid(), signal.SIGKILL)


def test_a_killed_parser_process_stops_the_parsing(monkeypatch):
    monkeypatch.setattr(parsing, "_start", die)
    captions = [f"a dog {number}" for number in range(2 * parsing.CHUNK)]
    with refusals.refused("processes"):
        parsing.parse_captions(captions, processes=2)


def test_parsed_captions_are_not_parsed_again(tmp_path):
    cache = tmp_path / "cache.jsonl"
    first = parsing.parse_captions(CAPTIONS, processes=1, cache=cache)
    CALLS.clear()
    more = parsing.parse_captions([*CAPTIONS, "new"], processes=1, cache=cache)
    assert CALLS == ["new"]
    assert more.num_cached == 4
    assert first.trees.items() <= more.trees.items()
    assert more.failures == first.failures
    parsing.parse_captions(["new"], "corenlp", processes=1, cache=cache)
    assert CALLS == ["new", "new"]  # Another parser knows nothing.


def test_parsing_continues_after_a_killed_run_and_names_bad_lines(tmp_path):
    cache, captions = tmp_path / "cache.jsonl", ["a", "b"]
    parsing.parse_captions(captions, processes=1, cache=cache)
    cache.write_bytes(cache.read_bytes()[:-9])
    for count in (1, 2):
        found = parsing.parse_captions(captions, processes=1, cache=cache)
        assert found.num_cached == count
    cache.write_text('{"parser": 3}\n')
    with refusals.at(cache, 1):
        parsing.parse_captions(["a"], processes=1, cache=cache)


def test_a_file_of_trees_reads_back(tmp_path):
    captions = [(f"1.jpg#{i}", caption) for i, caption in enumerate(CAPTIONS)]
    parses = parsing.parse_captions(CAPTIONS, processes=1)
    path = tmp_path / "trees.jsonl"
    parsing.write_parses(path, captions, parses)
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    assert [(row["id"], row["caption"]) for row in rows] == captions
    fallbacks = [row.get("fallback", False) for row in rows]
    assert fallbacks == [False, True, False, True, True]
    trees = trees_of(path, ["broken", "a dog"])
    assert [tree.bracketed() for tree in trees] == ["(X broken)", "(NP a dog)"]
    with pytest.raises(InputError, match="'a mouse'"):
        trees_of(path, ["a mouse", "a dog"])


GOOD = {"id": "1", "caption": "a dog", "tree": "(NP a dog)"}


def test_errors_name_bad_rows_of_trees(tmp_path):
    path = tmp_path / "trees.jsonl"
    changes = {"id": 2}, {"id": "3", "tree": "(NP a"}, {}
    changes += ({"id": "2", "tree": "(NP a (NN dog))"},)
    rows = [json.dumps(GOOD | change) for change in changes]
    for row in ("no json", "[" * 100_000, *rows):
        path.write_text(f"{json.dumps(GOOD)}\n{row}\n")
        with refusals.at(path, 2):
            trees_of(path, ["a dog"])
    # A caption may stand twice with one tree.
    again = GOOD | {"id": "2", "tree": "(NP  a dog )"}
    path.write_text(f"{json.dumps(GOOD)}\n{json.dumps(again)}\n")
    assert trees_of(path, ["a dog"])[0].bracketed() == "(NP a dog)"


def test_gold_trees_are_found_by_their_words(tmp_path):
    (tmp_path / "7.txt").write_text(
        "(NP (DT A) (NN ring) (. .))\n(NP (-LRB- -LRB-) (NN star ) )\n"
    )
    trees = trees_of(tmp_path, ["( star", "A ring ."])
    assert [tree.words for tree in trees] == [("(", "star"), ("A", "ring", ".")]
    (tmp_path / "none").mkdir()
    with pytest.raises(FileNotFoundError):
        trees_of(tmp_path / "none", [])
    # The second one would take an expression for ever.
    for text, caption in (("(NP (DT A)", "A"), ("a" * 200_000, "")):
        (tmp_path / "7.txt").write_text(f"{text}\n")
        with refusals.at(tmp_path / "7.txt", 1):
            trees_of(tmp_path, [caption])
