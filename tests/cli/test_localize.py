"""Tests of the tool that finds the boxes that phrases name in a photo."""

import json
import os

import PIL.Image
import pytest

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
    PIL.Image.new("RGB", (60, 40)).save(folder / "black.PNG")
    return folder


MODEL = "--model={folder}/model"
PHOTO = "{folder}/photo.png"


@pytest.fixture(scope="module")
def localize_by(folder):
    """A function of a line, {folder} in it: (output, error output, error)."""
    pytest.importorskip("cv2")

    def call(*words):
        return ask("localize", *(word.format(folder=folder) for word in words))

    with saved_models.loaded_once(), pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        yield call


def test_each_phrase_has_a_box(localize_by, folder, tmp_path):
    path, drawn = tmp_path / "found.json", tmp_path / "photo.localized.png"
    out, err, failure = localize_by(
        *(MODEL, f"--json={path}", "--top=2", f"--output={tmp_path}"),
        *(PHOTO, "red", "blue", "a thing, red"),
    )
    assert (err, failure) == ("", "") and f"{drawn}" in out
    titles = [line for line in out.splitlines() if line.startswith('"')]
    assert titles[:2] == ['"red"', '"blue"']
    found = json.loads(path.read_text())["phrases"]
    assert [one["phrase"] for one in found] == ["red", "blue", "a thing, red"]
    assert found[2]["unknown_words"] == ["a", "thing"]
    for one, box in zip(found, tiny_localizer.BOXES.values()):
        first, second = one["regions"]
        assert tiny_localizer.is_centred_in(first["box"], box)
        assert first["similarity"] > second["similarity"]
        edges = "".join(f"{edge:8.1f}" for edge in first["box"])
        assert f"    1  {first['similarity']:10.3f}{edges}\n" in out
    with PIL.Image.open(drawn) as picture:
        assert picture.size == (640, 427)  # 640 * 80 / 120 = 426.7
        colours = {colour for _, colour in picture.getcolors(1 << 20)}
    assert colours >= {*map(PIL.ImageColor.getrgb, COLOURS[:3])}
    other = tiny_localizer.write_photo(tmp_path / "photo.png")
    assert (folder / "photo.png").read_bytes() == other.read_bytes()


def test_several_photos_are_searched_for_the_same_phrases(
    localize_by, folder, tmp_path
):
    path, drawn = tmp_path / "several.json", tmp_path / "drawn.d"
    out, err, failure = localize_by(
        *(MODEL, f"--json={path}", f"--output={drawn}/"),
        *(PHOTO, "{folder}/cut.png", "{folder}/black.PNG", "red"),
    )
    assert failure == "" and "left out: " in err and "cut.png" in err
    photo, black = json.loads(path.read_text())
    assert photo["photo"] == f"{folder}/photo.png"
    assert black["photo"] == f"{folder}/black.PNG"
    assert len(photo["phrases"][0]["regions"]) == 1
    assert black["phrases"][0]["regions"] == []
    assert "no box is proposed" in out
    names = ["black.localized.png", "photo.localized.png"]
    assert sorted(os.listdir(drawn)) == names
