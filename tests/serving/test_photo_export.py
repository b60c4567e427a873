"""Tests of networks trained on features and served from photos."""

import csv
import shutil

import numpy as np
import pytest

from tbnets.data.store.reader import open_features
from tbnets.data.store.writer import FeatureWriter
from tbnets.features.cnn import build_cnn
from tbnets.features.photo_features import PhotoFeatures
from tbnets.serving.served import load_saved_model
from tbnets.tasks import runs
from tests import tiny
from tests.features import tiny_cnn
from tests.features.test_photo_features import photo
from tests.refusals import refused
from tests.saved_models import loaded_once
from tests.tiny_runs import prepared, save

COUNTS = {"train": 6, "dev": 3, "test": 3}
STORES = ("store", "large")
"""Feature stores side by side, not sorted by name."""


def write_all(folder):
    """Writes photos, captions, weights and features; `tiny_cnn` is known."""
    (folder / "photos").mkdir()
    rows, photos = [], []
    for split, count in COUNTS.items():
        for i in range(count):
            name = f"{split}{i}.jpg"
            path = folder / "photos" / name
            path.write_bytes(photo(len(rows)))
            photos.append((name, path))
            rows.append((name, f"{tiny.WORDS[i]} runs", split))
    with open(folder / "captions.csv", "w", newline="") as file:
        csv.writer(file).writerows([("image", "caption", "split"), *rows])
    write_features(folder, photos)


def write_features(folder, photos):
    """Writes weights of a network, and what it makes of photos.

    Another store is of larger photos, cut into ten.
    """
    weights = str(folder / "cnn.weights.h5")
    cnn = build_cnn(tiny_cnn.NAME, top=False)
    cnn.network.save_weights(weights)
    large = build_cnn(tiny_cnn.NAME, weights, 12, top=False)
    ids, paths = zip(*photos)
    contents = [path.read_bytes() for path in paths]
    for name, features in {
        "store": PhotoFeatures(cnn, ["first", "last"]),
        "large": PhotoFeatures(large, ["last"], "ten"),
    }.items():
        described = features.description(), features.dim
        writer = FeatureWriter(folder / name, *described)
        # Run eagerly, which is faster than a trace for so few photos.
        writer.add(list(ids), features(contents).numpy())
        writer.finish()


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    """A run on features, opened again for the photo, and its model.

    Yields:
        The folder with the photos, rows of features by the names of their
        photos, the opened session and the model, of half precision.
    """
    folder = tmp_path_factory.mktemp("photos")
    with tiny_cnn.known(), loaded_once():
        write_all(folder)
        settings = tiny.settings(
            folder,
            folder / "run",
            captions="captions.csv",
            epochs=1,
            image_features=",".join(STORES),
            image_transform="signed_sqrt",
            images="photos",
        )
        session, _ = prepared(settings)  # The network is not trained.
        save(session, "best")
        stores = [str(folder / name) for name in STORES]
        features = open_features(*stores)
        names = ("test0.jpg", "train5.jpg", "dev2.jpg")
        rows = dict(zip(names, features.take(features.rows(names))))
        for store in stores:  # The run describes how features are made.
            shutil.rmtree(store)
        opened = runs.open_run(
            folder / "run",
            adjust=lambda found: found.replace(cnn_weights="cnn.weights.h5"),
        )
        path = runs.export(opened, half_precision=True)
        yield folder, rows, opened, load_saved_model(path)


def test_photo_embeds_like_its_concatenated_features(exported):
    folder, features, session, model = exported
    assert model.takes_photos
    assert model.path == session.run_dir / "saved_model" / "1"
    rows = np.stack([*features.values()])
    expected = session.network.embed_images(rows).numpy()
    contents = [(folder / "photos" / name).read_bytes() for name in features]
    images = model.embed_images(contents)
    for found in (images, model.embed_features(rows)):
        assert (found * expected).sum(axis=1).min() > 0.9999
    texts = ["dog runs", ""]
    np.testing.assert_allclose(
        model.similarity(contents, texts),
        images @ model.embed_text(texts).T,
        atol=1e-5,
    )


@pytest.mark.parametrize(
    ("changes", "name"),
    [
        ({"regions": "roi_average"}, "--cnn_weights"),
        ({"weights_sha256": "0" * 64}, "weights"),
    ],
)
def test_features_that_photos_do_not_have_raise_an_error(
    exported, monkeypatch, changes, name
):
    session = exported[2]
    made_by = session.state.fitted["image_features_made_by"]
    first, second = made_by["side_by_side"]
    monkeypatch.setitem(made_by, "side_by_side", [first, second | changes])
    with refused(name):
        runs.export(session)
