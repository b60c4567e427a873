"""Tests of the tools that parse captions and compare parses."""

import json

import pytest

from tbnets.text.trees import trees_of
from tests import verbs

pytest.importorskip("textblob")


def test_captions_are_parsed_and_reused(tmp_path):
    captions, output = tmp_path / "my.csv", tmp_path / "new" / "trees.jsonl"
    captions.write_text(
        "image,caption,split\n"
        "a.jpg,A dog runs on the grass.,train\n"
        "a.jpg,!!!,train\n"
        "b.jpg,A dog runs on the grass.,test\n"
    )
    given = f"--captions={captions}", f"--output={output}", "--processes=1"
    first = verbs.printed("parse_captions", *given)
    assert "3 captions, 1 of them right-branching" in first
    assert "1 x there are no words in it" in first
    written = output.read_text()
    rows = [json.loads(line) for line in written.splitlines()]
    assert [row["id"] for row in rows] == ["a.jpg#0", "a.jpg#1", "b.jpg#0"]
    assert [row.get("fallback") for row in rows] == [None, True, None]
    (tree,) = trees_of(output, ["A dog runs on the grass."])
    assert len(tree.phrases()) == 2  # A dog; the grass.
    again = verbs.printed("parse_captions", *given)
    assert "parsed    0 captions" in again and "2 were cached" in again
    assert output.read_text() == written
    cached = (tmp_path / "new" / "trees.jsonl.cache").read_text().splitlines()
    assert {json.loads(line)["parser"] for line in cached} == {"embedded"}
