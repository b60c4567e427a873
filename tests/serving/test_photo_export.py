"""Tests of networks trained on features and served from photos."""

import csv
import shutil

import numpy as np
import pytest

from tbnets.data.store.opening import open_features
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


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Photos, captions, weights and features; `tiny_cnn` is known."""
    folder = tmp_path_factory.mktemp("photos")
    with tiny_cnn.known():
        write_all(folder)
        yield folder


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
        writer.add_shard(list(ids), features(contents).numpy())
        writer.finish()


@pytest.fixture(scope="module")
def exported_twice(folder, tmp_path_factory):
    """A run exported from its features, and opened again for the photo.

    Yields:
        The opened session and both models; the second is of half precision.
    """
    place = tmp_path_factory.mktemp("twice")
    stores = [shutil.copytree(folder / name, place / name) for name in STORES]
    settings = tiny.settings(
        folder,
        place / "run",
        captions_format="table",
        captions="captions.csv",
        epochs=1,
        image_features=",".join(map(str, stores)),
        image_transform="signed_sqrt",
        images="photos",
    )
    session, _ = prepared(settings)  # The network is not trained.
    save(session, "best")
    served = load_saved_model(runs.export(session))
    for store in stores:  # The run describes how features are made.
        shutil.rmtree(store)
    opened = runs.open_run(
        place / "run",
        adjust=lambda found: found.replace(cnn_weights="cnn.weights.h5"),
    )
    path = runs.export(opened, half_precision=True)
    with loaded_once():
        yield opened, served, load_saved_model(path)


def test_a_photo_embeds_as_its_features_side_by_side(folder, exported_twice):
    session, of_features, of_photos = exported_twice
    assert not of_features.takes_photos and of_photos.takes_photos
    for model, version in ((of_features, "1"), (of_photos, "2")):
        assert model.path == session.run_dir / "saved_model" / version
    names = ("test0.jpg", "train5.jpg", "dev2.jpg")
    features = open_features(*(str(folder / name) for name in STORES))
    rows = features.take(features.rows(names))
    expected = session.network.embed_images(rows)
    np.testing.assert_allclose(
        of_features.embed_images(rows), expected, atol=1e-5
    )
    contents = [(folder / "photos" / name).read_bytes() for name in names]
    images = of_photos.embed_images(contents)
    for found in (images, of_photos.embed_features(rows)):
        assert (found * expected).numpy().sum(axis=1).min() > 0.9999
    texts = ["dog runs", ""]
    np.testing.assert_allclose(
        of_photos.similarity(contents, texts),
        images @ of_photos.embed_text(texts).T,
        atol=1e-5,
    )
    assert of_photos.embed_images([]).shape == (0, expected.shape[1])
    assert of_photos.similarity([], ["dog runs"]).shape == (0, 1)


@pytest.mark.parametrize(
    "told, name",
    [
        ({"regions": "warp"}, "--cnn_weights"),
        ({"regions": "roi_average"}, "--cnn_weights"),
        (None, "--cnn_weights"),
        ({"weights_sha256": "0" * 64}, "weights"),
    ],
)
def test_parts_that_no_photo_gives_are_refused(
    exported_twice, monkeypatch, told, name
):
    session = exported_twice[0]
    made_by = session.state.fitted["image_features_made_by"]
    first, second = made_by["side_by_side"]
    parts = [first, {**second, **told} if told else {}]
    monkeypatch.setitem(made_by, "side_by_side", parts)
    with refused(name):
        runs.export(session)


def test_example_queries_are_answered_by_photos(exported_twice, tmp_path):
    session, _, model = exported_twice
    text = session.task.answer(model.path, ["dog runs"], tmp_path)
    assert "test0.jpg  dog runs" in text
    assert (tmp_path / "answers.png").is_file()


def test_a_published_model_searches(folder, exported_twice):
    model, photos = exported_twice[2], folder / "photos"
    paths = sorted(photos.iterdir())
    embeddings = model.embed_images(paths)
    cosines = model.embed_text(["dog runs", "cat"]) @ embeddings.T
    found = model.search(["dog runs", "cat"], photos, top=2)
    names = [str(path) for path in paths]
    for answers, row in zip(found, cosines):
        # Photos of noise nearly tie: the cosine is compared, not the name.
        values = [answer.similarity for answer in answers]
        own = [row[names.index(answer.image)] for answer in answers]
        assert len({answer.image for answer in answers}) == 2
        np.testing.assert_allclose(values, own, atol=1e-5)
        np.testing.assert_allclose(values, -np.sort(-row)[:2], atol=1e-5)
    [[(best, value, _)]] = model.search(["dog runs"], embeddings, top=1)
    assert value == pytest.approx(cosines[0, best], abs=1e-5)
    assert value == pytest.approx(cosines[0].max(), abs=1e-5)
    contents = [path.read_bytes() for path in paths[:2]]
    [answers] = model.search(["cat"], contents)
    assert {answer.image for answer in answers} == {0, 1}
    assert model.search([], photos) == []
    assert model.search(["cat"], []) == [[]]
