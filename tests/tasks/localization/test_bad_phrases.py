"""Bad rows of phrases: an error that names them, or left out and told."""

import json

import numpy as np
import pytest

from tbnets.tasks import runs
from tests import tiny_phrases

OBJECT = (
    "<object><name>{chain}</name><bndbox><xmin>{0:.0f}</xmin><ymin>{1:.0f}"
    "</ymin><xmax>{2:.0f}</xmax><ymax>{3:.0f}</ymax></bndbox></object>"
)
PHOTO = (
    "<annotation><filename>{name}</filename><size><width>100</width><height>"
    "100</height></size>{objects}</annotation>"
)


def write_rows(folder):
    """Adds two bad rows to the table: no JSON, and a box beyond the photo."""
    path = folder / "phrases.jsonl"
    first, *others = path.read_text().splitlines()
    row = {"image": "dev0.jpg", "phrase": "a sky", "box": [90, 0, 140, 50]}
    path.write_text("\n".join([first, "{", *others, json.dumps(row)]) + "\n")


def write_entities(folder):
    """Writes the table as Flickr30K Entities; `train3` has a broken file."""
    for part in ("Sentences", "Annotations"):
        (folder / "entities" / part).mkdir(parents=True)
    rows = {}
    for line in (folder / "phrases.jsonl").read_text().splitlines():
        row = json.loads(line)
        rows.setdefault(row["image"].removesuffix(".jpg"), []).append(row)
    for name, said in rows.items():
        text = "\n".join(
            f"[/EN#{row['chain'] + 1}/{row['type']} {row['phrase']}] ."
            for row in said
        )
        boxes = {
            row["chain"] + 1: np.add(row["box"], [1, 1, 0, 0]) for row in said
        }
        objects = "".join(
            OBJECT.format(*box, chain=chain) for chain, box in boxes.items()
        )
        found = PHOTO.format(name=f"{name}.jpg", objects=objects)
        if name == "train3":
            found = found[:-5]
        root = folder / "entities"
        (root / "Sentences" / f"{name}.txt").write_text(text + "\n")
        (root / "Annotations" / f"{name}.xml").write_text(found)


@pytest.fixture
def folder(tmp_path):
    return tiny_phrases.write_phrases(tmp_path / "data")


def prepare(folder, tmp_path, **changes):
    found = tiny_phrases.settings(
        folder, tmp_path / "run", regions_per_phrase=2, **changes
    )
    return runs.prepare(found, runs.start(found, False))


def test_the_first_bad_row_ends_a_run(folder, tmp_path):
    write_rows(folder)
    with pytest.raises(ValueError, match=r"phrases.jsonl:2: "):
        prepare(folder, tmp_path)
    assert not (tmp_path / "run").exists()


def test_bad_rows_may_be_left_out(folder, tmp_path, capsys):
    good, _ = prepare(folder, tmp_path)
    capsys.readouterr()
    write_rows(folder)
    session, train = prepare(folder, tmp_path / "two", skip_bad_rows=True)
    told = capsys.readouterr().out
    assert told.count("left out") == 2, told
    assert "1 bad rows of phrases, read for train; the first" in told
    assert "phrases.jsonl:2: " in told
    assert "read for dev" in told and "in an image of [100, 100]" in told
    assert train.phrases.num_phrases == 60
    assert session.dev.phrases.phrases == good.dev.phrases.phrases


def test_photos_that_can_not_be_read_may_be_left_out(folder, tmp_path, capsys):
    write_entities(folder)
    with pytest.raises(ValueError, match="train3.xml"):
        prepare(folder, tmp_path, phrases="entities")
    _, train = prepare(folder, tmp_path, phrases="entities", skip_bad_rows=True)
    assert "train3.xml" in capsys.readouterr().out
    assert train.phrases.images.num_images == 9
    names = [f"train{i}.jpg" for i in range(10) if i != 3]
    expected = train.features.rows(names)
    np.testing.assert_array_equal(train.image_rows, expected)
    # A thing has three proposals beside its own box, of this photo.
    assert (train.roles.roles == 1).sum(axis=1).tolist() == [3] * 54
