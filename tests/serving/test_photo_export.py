"""Tests of networks trained on features and served from photos."""

import csv
import shutil

import numpy as np
import pytest
import tensorflow as tf

from tbnets import runs
from tbnets.features import extraction
from tbnets.features.cnn import build_cnn
from tbnets.features.photo_features import PhotoFeatures
from tbnets.serving import served_model
from tbnets.store.shards import open_store
from tbnets.store.writer import FeatureWriter
from tbnets.training import loop
from tests import tiny
from tests.features.test_photo_features import photo

SIDE = 48
COUNTS = {"train": 6, "dev": 3, "test": 3}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Photos, captions, weights and features."""
    folder = tmp_path_factory.mktemp("photos")
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
    cnn = build_cnn("SqueezeNet", image_size=SIDE)
    cnn.network.save_weights(str(folder / "cnn.weights.h5"))
    features = PhotoFeatures(cnn, ["conv1", "last"])
    writer = FeatureWriter(
        folder / "store", features.description(), features.dim
    )
    extraction.extract(photos, features, writer)
    writer.finish()
    return folder


def settings_for(folder, run_dir, **changes):
    return tiny.settings(
        folder,
        run_dir,
        captions_format="table",
        captions="captions.csv",
        epochs=1,
        **{
            "cnn_weights": "cnn.weights.h5",
            "image_features": "store",
            **changes,
        },
    )


def trained(settings):
    """Trains without tracing, as the export is what is tested."""
    session, examples = runs.prepare(settings, runs.start(settings, False))
    tf.config.run_functions_eagerly(True)
    try:
        loop.fit(session, examples)
        runs.finish(session)
    finally:
        tf.config.run_functions_eagerly(False)
    return session


@pytest.mark.parametrize("transform", ["signed_sqrt,ternary", "ternary", ""])
def test_a_photo_embeds_as_its_stored_features(folder, tmp_path, transform):
    settings = settings_for(folder, tmp_path / "run", image_transform=transform)
    session = trained(settings)
    model = served_model.load_saved_model(runs.export(session))
    features = open_store(folder / "store")
    rows = features.take(features.rows(["test0.jpg", "train5.jpg"]))
    expected = session.network.embed_images(rows)
    contents = [
        (folder / "photos" / name).read_bytes()
        for name in ("test0.jpg", "train5.jpg")
    ]
    np.testing.assert_allclose(
        model.embed_images(contents), expected, atol=1e-4
    )
    np.testing.assert_allclose(model.embed_features(rows), expected, atol=1e-5)
    assert model.embed_images([]).shape == (0, expected.shape[1])
    assert model.similarity([], ["dog runs"]).shape == (0, 1)


def test_example_queries_are_answered_by_photos(folder, tmp_path):
    settings = settings_for(folder, tmp_path / "run", images="photos")
    session = trained(settings)
    text = session.task.answer(
        runs.export(session), ["dog runs"], tmp_path / "run"
    )
    assert "test0.jpg  dog runs" in text
    assert (tmp_path / "run" / "answers.png").is_file()


def test_other_weights_are_refused(folder, tmp_path):
    other = build_cnn("SqueezeNet", image_size=SIDE)
    other.network.save_weights(str(tmp_path / "other.weights.h5"))
    settings = settings_for(
        folder,
        tmp_path / "run",
        cnn_weights=tmp_path / "other.weights.h5",
    )
    session = trained(settings)
    with pytest.raises(ValueError, match="those the features were extracted"):
        runs.export(session)


def test_features_of_unknown_making_start_no_photo(folder, tmp_path):
    store = open_store(folder / "store")
    np.save(tmp_path / "x_ims.npy", store.take(range(len(store))))
    (tmp_path / "x_ids.txt").write_text("\n".join(store.ids) + "\n")
    settings = settings_for(
        folder, tmp_path / "run", image_features=tmp_path / "x_ims.npy"
    )
    session = trained(settings)
    with pytest.raises(ValueError, match="do not tell what made them"):
        runs.export(session)


def test_a_run_is_exported_again_from_the_photo(folder, tmp_path):
    store = shutil.copytree(folder / "store", tmp_path / "store")
    settings = settings_for(
        folder, tmp_path / "run", image_features=store, cnn_weights=""
    )
    session = trained(settings)
    served = served_model.load_saved_model(runs.export(session))
    assert not served.takes_image_bytes
    shutil.rmtree(store)  # What it knows of the photos is in the run.
    opened = runs.open_run(tmp_path / "run")
    opened.settings.cnn_weights = "cnn.weights.h5"
    path = runs.export(opened)
    assert path.name == "2"
    assert served_model.load_saved_model(path).takes_image_bytes


def test_a_run_on_a_ternary_store_of_before_starts_at_no_photo(
    folder, tmp_path
):
    session = trained(settings_for(folder, tmp_path / "run"))
    made_by = session.state.fitted["image_features_made_by"]
    made_by["ternary"] = {"low": -0.25, "high": 0.15}
    with pytest.raises(ValueError, match="stored as ternary by an earlier"):
        runs.export(session)
