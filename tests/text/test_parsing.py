import json

import pytest

from tbnets.text import parsing
from tbnets.text.tree_files import read_gold_trees, read_parses, trees_of


class Parser:
    """Puts the words into one phrase; knows nothing of cats."""

    calls = []

    def parse(self, caption):
        self.calls.append(caption)
        if "cat" in caption:
            raise RuntimeError("no  cats\nhere")
        if "broken" in caption:
            return "(NP (NN broken"
        return f"(NP {caption})"


@pytest.fixture(autouse=True)
def parser(monkeypatch):
    monkeypatch.setattr(parsing, "open_parser", lambda *_: Parser())
    Parser.calls = []


CAPTIONS = ["a dog", "a red cat", "a dog", "broken", ""]


def test_each_caption_is_parsed_once_and_failures_are_told():
    done = []
    found = parsing.parse_captions(CAPTIONS, processes=1, progress=done.append)
    assert sorted(Parser.calls) == ["", "a dog", "a red cat", "broken"]
    assert sum(done) == 4
    assert found.trees["a dog"] == "(NP a dog)"
    assert found.trees["a red cat"] == "(X (X a) (X (X red) (X cat)))"
    assert found.failures["a red cat"] == "no cats here"
    assert "stay open" in found.failures["broken"]
    assert found.trees[""] == "(X -)"
    assert found.num_cached == 0


def test_one_process_opens_one_parser(monkeypatch):
    opened = []
    monkeypatch.setattr(
        parsing, "open_parser", lambda *name: opened.append(name) or Parser()
    )
    parsing.parse_captions(CAPTIONS, processes=1)
    assert opened == [("embedded", "")]
    parsing.parse_captions([], processes=1)
    assert len(opened) == 1


def test_what_was_parsed_is_known_again(tmp_path):
    cache = tmp_path / "cache.jsonl"
    first = parsing.parse_captions(CAPTIONS, processes=1, cache=cache)
    Parser.calls.clear()
    more = parsing.parse_captions([*CAPTIONS, "new"], processes=1, cache=cache)
    assert Parser.calls == ["new"]
    assert more.num_cached == 4
    assert first.trees.items() <= more.trees.items()
    assert more.failures == first.failures
    parsing.parse_captions(["new"], "corenlp", processes=1, cache=cache)
    assert Parser.calls == ["new", "new"]  # Another parser knows nothing.


def test_a_killed_run_leaves_half_a_line(tmp_path):
    cache = tmp_path / "cache.jsonl"
    parsing.parse_captions(["a", "b"], processes=1, cache=cache)
    cache.write_bytes(cache.read_bytes()[:-9])
    found = parsing.parse_captions(["a", "b"], processes=1, cache=cache)
    assert found.num_cached == 1
    again = parsing.parse_captions(["a", "b"], processes=1, cache=cache)
    assert again.num_cached == 2


def test_a_bad_line_of_the_cache_is_named(tmp_path):
    cache = tmp_path / "cache.jsonl"
    cache.write_text('{"parser": 3}\n')
    with pytest.raises(ValueError, match=r"cache.jsonl:1: expected a JSON"):
        parsing.parse_captions(["a"], processes=1, cache=cache)


def test_reasons_are_counted_without_their_numbers():
    failures = {"a": "3 tags for 4 words", "b": "5 tags for 6 words", "c": "x"}
    found = parsing.count_reasons(failures)
    assert found == [("N tags for N words", 2), ("x", 1)]


def test_a_file_of_trees_reads_back(tmp_path):
    captions = [(f"1.jpg#{i}", caption) for i, caption in enumerate(CAPTIONS)]
    parses = parsing.parse_captions(CAPTIONS, processes=1)
    path = tmp_path / "trees.jsonl"
    parsing.write_parses(path, captions, parses)
    found = read_parses(path)
    assert [(row.id, row.caption) for row in found] == captions
    assert [row.is_fallback for row in found] == [
        False,
        True,
        False,
        *[True] * 2,
    ]
    assert found[0].tree.bracketed() == "(NP a dog)"
    trees = trees_of(path, ["broken", "a dog"])
    assert [tree.bracketed() for tree in trees] == ["(X broken)", "(NP a dog)"]
    with pytest.raises(ValueError, match="1 of 2 captions, first 'a mouse'"):
        trees_of(path, ["a mouse", "a dog"])


def test_bad_rows_are_named_and_good_ones_read(tmp_path):
    path = tmp_path / "trees.jsonl"
    good = {"id": "1", "caption": "a dog", "tree": "(NP a dog)"}
    rows = [
        json.dumps(good),
        "no json",
        json.dumps(good | {"id": 2}),
        json.dumps(good | {"id": "3", "tree": "(NP a dog"}),
        json.dumps(good),
        "[" * 100_000,
    ]
    path.write_text("\n".join(rows) + "\n")
    problems = []
    assert len(read_parses(path, problems=problems)) == 1
    assert [problem.line for problem in problems] == [2, 3, 4, 5, 6]
    assert "caption 3" in problems[2].message
    assert "as in line 1" in problems[3].message
    with pytest.raises(ValueError, match=r"trees.jsonl:2: expected"):
        read_parses(path)


def test_gold_trees_of_endless_words_take_no_time(tmp_path):
    (tmp_path / "7.txt").write_text("a" * 200_000 + "\n")
    with pytest.raises(ValueError, match=r"7.txt:1: expected a tree"):
        read_gold_trees(tmp_path)


def test_gold_trees_are_found_by_their_words(tmp_path):
    (tmp_path / "7.txt").write_text(
        "(NP (DT A) (NN ring) (. .))\n(NP (-LRB- -LRB-) (NN star))\n"
    )
    found = read_gold_trees(tmp_path)
    assert [(row.id, row.caption) for row in found] == [
        ("7#0", "A ring ."),
        ("7#1", "( star"),
    ]
    assert trees_of(tmp_path, ["A ring ."])[0].words == ("A", "ring", ".")
    with pytest.raises(FileNotFoundError, match="must hold gold trees"):
        read_gold_trees(tmp_path / "none")
    (tmp_path / "7.txt").write_text("(NP (DT A)\n")
    with pytest.raises(ValueError, match=r"7.txt:1: expected a tree"):
        read_gold_trees(tmp_path)
