"""Tests of what recipes make of photos, and where that is kept."""

import types

import pytest

from tbnets.data.open import Data
from tbnets.data.sources import Sources
from tbnets.recipes.kinds import Recipes
from tbnets.store.shards import open_store
from tests import verbs
from tests.features import tiny_cnn
from tests.features.test_photo_features import photo

FEATURES = f"--cnn={tiny_cnn.NAME}\n--cnn_weights=random\n"
REGIONS = f"{FEATURES}--regions=boxes.flags\n--layers=second\n"
NAMES = ("a.jpg", "b.png", "more/c.jpg")


@pytest.fixture(scope="module", autouse=True)
def tiny_is_known():
    with tiny_cnn.known():
        yield


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The folder of the start, with photos, captions and recipes."""
    (tmp_path / "photos" / "more").mkdir(parents=True)
    for i, name in enumerate(NAMES):
        format = "PNG" if name.endswith("png") else "JPEG"
        (tmp_path / "photos" / name).write_bytes(photo(i, format=format))
    rows = zip(NAMES, ("red", "blue", "green"), ("train", "dev", "test"))
    lines = ["image,caption,split", *map(",".join, rows)]
    (tmp_path / "captions.csv").write_text("\n".join([*lines, ""]))
    (tmp_path / "tiny.flags").write_text(FEATURES)
    (tmp_path / "tiny_regions.flags").write_text(REGIONS)
    (tmp_path / "boxes.flags").write_text("--limit=3\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def opened(**sources):
    given = {
        "captions": "captions.csv",
        "captions_format": "table",
        "images": "photos",
        "image_features": "tiny.flags",
        **sources,
    }
    settings = types.SimpleNamespace(reads=lambda flag: given.get(flag))
    return Data(Sources(**given), recipes=Recipes(settings))


def extract(*flags):
    """Makes a store by the tool; returns what its files hold."""
    verbs.ask(
        "extract_image_features",
        "--images=photos",
        "--captions=captions.csv",
        f"--cnn={tiny_cnn.NAME}",
        "--cnn_weights=random",
        "--output=by_tool",
        *flags,
    )


def files(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_features_are_those_of_the_tool_and_made_once(folder, capsys):
    data = opened()
    rows = data.split("train").images
    [made] = (folder / "data" / "made").glob("tiny-*")
    extract()
    assert files(made) == files(folder / "by_tool")
    assert open_store(made).ids == NAMES
    assert rows.batch([0]).shape == (1, 3)
    assert "making    data/made/tiny-" in capsys.readouterr().err
    assert opened().split("test").images.batch([0]).shape == (1, 3)
    assert capsys.readouterr().err == ""
