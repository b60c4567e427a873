"""Tests of the extraction's command line."""

import pytest

from tbnets.data.store.reader import open_store
from tests import verbs
from tests.features import tiny_cnn
from tests.features.test_photo_features import photo


@pytest.fixture(scope="module", autouse=True)
def tiny_is_known(module_eagerly):
    """Which network it is does not matter to most of these tests."""
    with tiny_cnn.known():
        yield


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "photos" / "more").mkdir(parents=True)
    for i, name in enumerate(("a.jpg", "b.png", "more/c.jpg")):
        format = "PNG" if name.endswith("png") else "JPEG"
        (tmp_path / "photos" / name).write_bytes(photo(i, format=format))
    (tmp_path / "captions.csv").write_text(
        "image,caption,split\na.jpg,red,train\nb.png,blue,train\n"
        "more/c.jpg,green,test\n"
    )
    return tmp_path


def run(folder, *flags):
    return verbs.printed(
        "extract_image_features",
        f"--images={folder / 'photos'}",
        f"--cnn={tiny_cnn.NAME}",
        "--cnn_weights=random",
        f"--output={folder / 'store'}",
        *flags,
    )


def test_photos_of_a_folder(folder):
    (folder / "photos" / "a\nb.jpg").write_bytes(photo(3))  # No id.
    text = run(folder)
    assert f"left out: {folder}/photos/a\ufffdb.jpg" in text
    assert "--image_features=" in text
    store = open_store(folder / "store")
    assert (store.ids, store.dim) == (("a.jpg", "b.png", "more/c.jpg"), 3)


def test_all_layers_of_captioned_photos(folder):
    captions = f"--captions={folder / 'captions.csv'}", "--splits=train"
    run(folder, *captions, "--layers=full_network", "--dtype=float16")
    store = open_store(folder / "store")
    assert (store.ids, store.dim) == (("a.jpg", "b.png"), 18)
    assert store.manifest.dtype == "float16"
