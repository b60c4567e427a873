"""Tests of the tool that finds the boxes that phrases name in a photo."""

import json
import pathlib
import sys
import types

import numpy as np
import PIL.Image
import pytest

from tbnets.cli import localize
from tbnets.data import images
from tbnets.visualization.boxes import COLOURS
from tests import saved_models, tiny_localizer
from tests.verbs import ask


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("localize")
    tiny_localizer.write_model(folder / "model" / "1")
    tiny_localizer.write_model(folder / "features" / "1", None)
    photo = tiny_localizer.write_photo(folder / "photo.png")
    (folder / "cut.png").write_bytes(photo.read_bytes()[:-30])
    (folder / "file").touch()
    for name in ("black.png", "black.PNG"):
        PIL.Image.new("RGB", (60, 40)).save(folder / name)
    return folder


@pytest.fixture(scope="module")
def answers(folder):
    """Name of a question -> (standard output, standard error, error)."""
    pytest.importorskip("cv2")
    model, photo = f"--model={folder}/model", f"{folder}/photo.png"
    questions = {
        "colours": [
            *(model, f"--json={folder}/found.json", "--top=2"),
            *(
                f"--output={folder}/drawn.png",
                photo,
                "red",
                "blue",
                "a thing, red",
            ),
        ],
        "mean boxes": [
            *(model, "--choice=mean_box", f"--output={folder}/out"),
            *(photo, "red"),
        ],
        "no size": [model, "--choice_area_exponent=1", photo, "red"],
        "no warmth": [model, "--choice_temperature=0.2", photo, "red"],
        "too cold": [
            *(model, "--choice=mean_box", "--choice_temperature=0"),
            *(photo, "red"),
        ],
        "unknown": [model, photo, "a zebra", "..."],
        "nothing there": [model, f"{folder}/black.png", "red"],
        "several": [
            *(model, f"--json={folder}/several.json"),
            *(f"--output={folder}/drawn.d/", photo, f"{folder}/cut.png"),
            *(f"{folder}/black.PNG", "red"),
        ],
        "to a program": [model, "--json=-", photo, "zebra"],
        "two of one name": [model, "--output=.", photo, "a/photo.png", "red"],
        "no phrase": [model, photo],
        "empty phrase": [model, photo, " "],
        "no text": [model, photo, "a \udcff"],
        "no photo": [model, f"{folder}/none.jpg", "red"],
        "cut photo": [model, f"{folder}/cut.png", "red"],
        "no ending": [model, f"--output={folder}/a.out", photo, "red"],
        "no folder to draw in": ["--model=none", "--output=file", photo, "red"],
        "one for two": [model, "--output=a.png", photo, photo, "red"],
        "over the photo": [model, f"--output={photo}", photo, "red"],
        "no folder": [model, f"--json={folder}/none/a.json", photo, "red"],
        "no model": [f"--model={folder}/none", photo, "red"],
        "whole images": ["--model=scenes_embedding", photo, "red"],
        "features": [f"--model={folder}/features", photo, "red"],
    }
    with saved_models.loaded_once(), pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        found = {n: ask("localize", *line) for n, line in questions.items()}
        patch.setitem(sys.modules, "cv2", None)
        found["no opencv"] = ask("localize", model, photo, "red")
    return found


def test_each_phrase_has_its_box(answers, folder):
    out, err, failure = answers["colours"]
    assert (err, failure) == ("", "")
    titles = [line for line in out.splitlines() if line.startswith('"')]
    note = "(unknown words: a, thing)"
    assert titles == ['"red"', '"blue"', f'"a thing, red" {note}']
    record = json.loads((folder / "found.json").read_text())
    said = [one["phrase"] for one in record["phrases"]]
    assert said == ["red", "blue", "a thing, red"]
    assert record["phrases"][2]["unknown_words"] == ["a", "thing"]
    for one, box in zip(record["phrases"], tiny_localizer.BOXES.values()):
        first, second = one["regions"]
        assert tiny_localizer.is_centred_in(first["box"], box)
        assert first["similarity"] > second["similarity"]
        printed = "".join(f"{edge:8.1f}" for edge in first["box"])
        assert printed in out


def test_a_name_without_ending_is_a_folder(answers, folder):
    assert answers["mean boxes"][2] == ""
    assert [path.name for path in (folder / "out").iterdir()] == [
        "photo.localized.png"
    ]


def test_mean_boxes_are_found(answers):
    out, err, failure = answers["mean boxes"]
    assert (err, failure) == ("", "")
    usual = answers["colours"][0]
    assert out.splitlines()[2] not in usual
    assert out.splitlines()[2][:18] in usual  # Rank and similarity.


def test_a_photo_is_read_once(folder, tmp_path, monkeypatch):
    paths, read = [], images._read_bytes
    monkeypatch.setattr(
        images, "_read_bytes", lambda path: paths.append(path) or read(path)
    )
    regions = [(np.array([1, 2, 3, 4]), 0.5)]

    def find(phrases, photo, top, **choice):
        assert images.read_content(photo)
        return [regions]

    told = {"choice": {"choice": "mean_box", "choice_temperature": 0.2}}
    model = types.SimpleNamespace(
        vocabulary=None, find=find, metadata={"metadata": told}
    )
    photo, drawn = str(folder / "photo.png"), tmp_path / "drawn.png"
    found = localize.localize_all(
        localize.Options(), model, ["red"], [photo], [drawn]
    )
    [one] = found["phrases"]
    assert one["regions"] == [{"box": [1, 2, 3, 4], "similarity": 0.5}]
    assert paths == [photo] and drawn.is_file()
    assert found.items() >= told["choice"].items()


def test_the_boxes_are_drawn(answers, folder):
    assert f"drawn: {folder}/drawn.png" in answers["colours"][0]
    with PIL.Image.open(folder / "drawn.png") as drawn:
        assert drawn.size == (640, 427)  # 640 * 80 / 120 = 426.7
        colours = {colour for _, colour in drawn.getcolors(1 << 20)}
    for colour in COLOURS[:3]:
        assert PIL.ImageColor.getrgb(colour) in colours
    # What no flag asks for is not written.
    assert "drawn" not in answers["unknown"][0]
    names = ["black.PNG", "black.png", "cut.png", "drawn.d", "drawn.png"]
    names += ["features", "file", "found.json", "model", "out", "photo.png"]
    names += ["several.json"]
    assert sorted(path.name for path in folder.iterdir()) == names


def test_several_photos_are_asked_for_the_same(answers, folder):
    out, err, failure = answers["several"]
    assert failure == "" and out.count('"red"') == 2
    for name in ("photo.png", "black.PNG"):
        assert f"{folder}/{name}:\n" in out
    assert "left out: " in err and "cut.png, which does not decode" in err
    records = json.loads((folder / "several.json").read_text())
    alone = json.loads((folder / "found.json").read_text())
    assert records[0].keys() == alone.keys()
    assert [bool(one["phrases"][0]["regions"]) for one in records] == [1, 0]
    drawn = sorted(path.name for path in (folder / "drawn.d").iterdir())
    assert drawn == ["black.localized.png", "photo.localized.png"]


def test_a_phrase_without_a_known_word_is_warned_of(answers):
    out, err, failure = answers["unknown"]
    assert failure == "" and out.count("rank") == 2
    warnings = err.splitlines()
    assert len(warnings) == 2 and 'knows no word of "a zebra"' in warnings[0]


def test_json_stands_alone_on_standard_output(answers):
    out, _, failure = answers["to a program"]
    assert failure == ""
    [phrase] = json.loads(out)["phrases"]
    assert phrase["note"] == "no word of this is known"
    assert len(phrase["regions"]) == 1


def test_a_photo_without_proposals_is_told(answers):
    out, _, failure = answers["nothing there"]
    assert failure == "" and "no box is proposed" in out


@pytest.mark.parametrize(
    "question, message",
    [
        ("no size", "`--choice_area_exponent` must come with --choice=expe"),
        ("no warmth", "must come with --choice=expected_overlap or --cho"),
        ("too cold", "`--choice_temperature` must be a finite number above 0"),
        ("no phrase", "`localize` must be given a photo and a phrase"),
        ("empty phrase", "a phrase or more, of words"),
        ("no text", "`localize` must be asked in UTF-8"),
        ("no photo", "none.jpg', which is not there"),
        ("cut photo", "cut.png', which does not decode"),
        ("no ending", "`--output` must be a file that ends with .png"),
        ("no folder to draw in", "`--output` must be a file that ends"),
        ("one for two", "`--output` must be a folder for several photos"),
        ("over the photo", "`--output` must not be a photo"),
        ("two of one name", "two photos called photo. Draw them one by one"),
        ("no folder", "`--json` must be a file in a folder that is there"),
        ("no model", "`--model` must be a name of the zoo, or a folder"),
        ("whole images", "tools/query.py"),
        ("features", "tools/export.py --cnn_weights=imagenet"),
        ("no opencv", 'pip install "tbnets[regions]"'),
    ],
)
def test_what_can_not_be_answered_is_one_clear_line(answers, question, message):
    out, _, failure = answers[question]
    assert message in failure and "\n" not in failure
    assert out == ""


def test_the_photo_is_left_as_it_is(answers, folder, tmp_path):
    other = tiny_localizer.write_photo(tmp_path / "photo.png")
    written = pathlib.Path(folder / "photo.png").read_bytes()
    assert written == other.read_bytes()
