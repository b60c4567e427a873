"""Bad rows of phrases end a run before it writes anything."""

import json

import pytest

from tbnets.tasks import runs
from tests import tiny_phrases

ROW = {"image": "dev0.jpg", "phrase": "a sky", "box": [90, 0, 140, 50]}
"""A box beyond its photo, of [100, 100] pixels."""


@pytest.mark.parametrize(
    "line, place", [("{", r"phrases.jsonl:2: "), (json.dumps(ROW), "dev0.jpg")]
)
def test_a_bad_row_ends_a_run(tmp_path, line, place):
    folder = tiny_phrases.write_phrases(tmp_path / "data")
    path = folder / "phrases.jsonl"
    first, *others = path.read_text().splitlines()
    path.write_text("\n".join([first, line, *others]) + "\n")
    settings = tiny_phrases.settings(folder, tmp_path / "run")
    with pytest.raises(ValueError, match=place):
        runs.prepare(settings, runs.start(settings, False))
    assert not (tmp_path / "run").exists()
