"""Tests of the zoo: a model loads as it was published, or not at all."""

import pathlib
import shutil

import numpy as np
import pytest

import tbnets
from tbnets.data.scenes.dataset import draw_scenes
from tbnets.data.scenes.layout import SceneSettings
from tbnets.errors import InputError
from tbnets.serving import zoo
from tbnets.serving.checksums import write_checksums
from tests.refusals import refused
from tests.serving.test_export import write_features_model


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Returns a folder of one tiny model, which is the zoo for a while."""
    folder = tmp_path / "model_zoo"
    write_features_model(folder / "tiny" / "1")
    (folder / "tiny" / "README.md").write_text("# tiny\n")
    write_checksums(folder / "tiny")
    monkeypatch.setattr(zoo, "folder", lambda: folder)
    return folder


def test_zoo_model_is_loaded_by_name(folder):
    (folder / "unfinished").mkdir()
    (folder / "README.md").write_text("# The zoo\n")
    assert tbnets.zoo.names() == ["tiny"]
    model = tbnets.zoo.load("tiny")
    assert model.embed_text(["a dog"]).shape == (1, 4)
    assert model.path == folder / "tiny" / "1"


def test_zoo_models_are_described():
    found = {one.name: one for one in tbnets.zoo.describe()}
    assert list(found) == tbnets.zoo.names()
    photos, boxes = found["flickr8k_photos"], found["entities_localization"]
    assert (photos.task, boxes.task) == ("matching", "localization")
    assert photos.language == "English" and 5e6 < photos.size < 20e6
    assert list(photos.recall) == ["image_to_text", "text_to_image"]
    [recalls] = boxes.recall.values()
    assert 0 < recalls[0] < recalls[1] < recalls[2] < 1
    recall = f"{100 * photos.recall['text_to_image'][0]:.1f}"
    assert recall in str(tbnets.zoo.describe())


def test_model_is_loaded_by_path(folder, tmp_path, monkeypatch):
    own = shutil.copytree(folder / "tiny" / "1", tmp_path / "run" / "1")
    for path in (own, str(own.parent)):
        assert zoo.locate(path) == pathlib.Path(path)
    assert zoo.open_model(own.parent).path == own
    monkeypatch.chdir(tmp_path)
    own.parent.rename(tmp_path / "tiny")  # A name of the zoo is the zoo's.
    assert zoo.locate("tiny") == folder / "tiny"
    for path in ("./tiny", pathlib.Path("./tiny"), pathlib.Path("tiny")):
        assert zoo.locate(path) == pathlib.Path("tiny")


@pytest.mark.parametrize("name", ["tinny", "", "../model_zoo/tiny", "tiny/1"])
def test_error_about_an_unknown_name_lists_the_names(folder, name):
    with refused("name", kind=InputError):
        zoo.load(name)


def link(path):
    path.rename(path.parent.parent / "elsewhere.md")
    path.symlink_to(path.parent.parent / "elsewhere.md")


@pytest.mark.parametrize(
    ("name", "harm"),
    [
        ("1/saved_model.pb", lambda path: path.write_bytes(b"other")),
        ("1/saved_model.pb", pathlib.Path.unlink),
        ("1/more.txt", pathlib.Path.touch),
        ("README.md", link),
    ],
)
def test_changed_zoo_model_is_not_loaded(folder, name, harm):
    harm(folder / "tiny" / name)
    # By its path no less than by name.
    for model in ("tiny", folder / "tiny"):
        with pytest.raises(InputError, match=name):
            zoo.open_model(model)


def test_scenes_localization_finds_phrases():
    [scene] = draw_scenes("test", SceneSettings(0, 0, 1, seed=7))
    phrases = [f"{one.colour} {one.shape}" for one in scene.scene.objects]
    model = tbnets.zoo.load("scenes_localization")
    boxes = np.array(scene.boxes, "float32")
    found = model.find(phrases, np.asarray(scene.image), boxes=boxes)
    np.testing.assert_array_equal([box for [(box, _)] in found], boxes)
