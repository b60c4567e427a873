"""Tests of networks trained on features and served from photos."""

import csv
import functools
import pathlib
import shutil
import tempfile

import keras
import numpy as np
import pytest

from tbnets.data.store.opening import open_features
from tbnets.data.store.shards import open_store
from tbnets.data.store.writer import FeatureWriter
from tbnets.errors import InputError
from tbnets.features import extraction
from tbnets.features.cnn import build_cnn
from tbnets.features.photo_features import PhotoFeatures
from tbnets.serving.served import load_saved_model
from tbnets.tasks import runs
from tests import photo_files, tiny
from tests.features import tiny_cnn
from tests.features.test_photo_features import photo
from tests.refusals import refused
from tests.serving.test_export import run_client
from tests.tiny_runs import prepared, save

COUNTS = {"train": 6, "dev": 3, "test": 3}
STORES = ("store", "large", "store", "store")
"""Feature stores side by side, neither sorted nor symmetric."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Photos, captions, weights and features; `tiny_cnn` is known."""
    folder = tmp_path_factory.mktemp("photos")
    with tiny_cnn.known():
        write_all(folder)
        yield folder


def write_all(folder):
    """Writes photos, captions, weights and features; `tiny_cnn` is known."""
    shutil.copytree(_written().name, folder, dirs_exist_ok=True)


@functools.cache
def _written():
    """Returns a `TemporaryDirectory` with them, once a process."""
    made = tempfile.TemporaryDirectory()
    folder = pathlib.Path(made.name)
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
    return made


def write_features(folder, photos):
    """Writes weights of a network, and what it makes of photos.

    Another store is of larger photos, cut into ten.
    """
    weights = str(folder / "cnn.weights.h5")
    cnn = build_cnn(tiny_cnn.NAME, top=False)
    cnn.network.save_weights(weights)
    large = build_cnn(tiny_cnn.NAME, weights, 12, top=False)
    for name, features in {
        "store": PhotoFeatures(cnn, ["first", "last"]),
        "large": PhotoFeatures(large, ["last"], "ten"),
    }.items():
        writer = FeatureWriter(
            folder / name, features.description(), features.dim
        )
        extraction.extract_photos(photos, features, writer)
        writer.finish()


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


def begun(settings):
    """Returns a session of a network that was not trained."""
    return prepared(settings)[0]


@pytest.fixture(scope="module")
def exported_twice(folder, tmp_path_factory):
    """A run exported from its features, and opened again for the photo.

    Returns:
        The opened session and both models.
    """
    place = tmp_path_factory.mktemp("twice")
    stores = [
        shutil.copytree(folder / name, place / name, dirs_exist_ok=True)
        for name in STORES
    ]
    settings = settings_for(
        folder,
        place / "run",
        image_features=",".join(map(str, stores)),
        image_transform="signed_sqrt",
        cnn_weights="",
    )
    session = begun(settings)
    save(session, "best")
    served = load_saved_model(runs.export(session))
    for store in {*stores}:  # The run describes how features are made.
        shutil.rmtree(store)
    opened = runs.open_run(
        place / "run",
        adjust=lambda found: found.replace(cnn_weights="cnn.weights.h5"),
    )
    return opened, served, load_saved_model(runs.export(opened))


def test_a_photo_embeds_as_its_features_side_by_side(folder, exported_twice):
    session, _, model = exported_twice
    features = open_features(*(str(folder / name) for name in STORES))
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


def test_other_weights_are_refused(folder, tmp_path):
    keras.utils.set_random_seed(7)
    other = build_cnn(tiny_cnn.NAME, top=False)
    other.network.save_weights(str(tmp_path / "other.weights.h5"))
    settings = settings_for(
        folder,
        tmp_path / "run",
        cnn_weights=tmp_path / "other.weights.h5",
    )
    with refused("weights"):
        runs.export(begun(settings))


def test_features_of_unknown_making_start_no_photo(folder, tmp_path):
    store = open_store(folder / "store")
    np.save(tmp_path / "x_ims.npy", store.take(range(len(store))))
    (tmp_path / "x_ids.txt").write_text("\n".join(store.ids) + "\n")
    settings = settings_for(
        folder, tmp_path / "run", image_features=tmp_path / "x_ims.npy"
    )
    with refused("--cnn_weights"):
        runs.export(begun(settings))


def test_a_run_is_exported_again_from_the_photo(exported_twice):
    session, first, second = exported_twice
    assert not first.takes_photos and second.takes_photos
    assert first.path == session.run_dir / "saved_model" / "1"
    assert second.path == session.run_dir / "saved_model" / "2"


@pytest.mark.parametrize(
    "told, name",
    [
        ({"regions": "warp"}, "--cnn_weights"),
        ({"regions": "roi_average"}, "--cnn_weights"),
        (None, "--cnn_weights"),
        ({"weights_sha256": "0" * 64}, "weights"),
    ],
)
def test_parts_that_no_photo_gives_are_refused(folder, tmp_path, told, name):
    stores = {"image_features": "store,large"}
    session = begun(settings_for(folder, tmp_path / "run", **stores))
    parts = session.state.fitted["image_features_made_by"]["side_by_side"]
    parts[1] = {**parts[1], **told} if told else {}
    with refused(name):
        runs.export(session)


@pytest.fixture(scope="module")
def published(folder, tmp_path_factory):
    """Returns a session, and its model as the zoo has them."""
    run_dir = tmp_path_factory.mktemp("published") / "run"
    changes = {"image_transform": "", "images": "photos"}
    session = begun(settings_for(folder, run_dir, **changes))
    path = runs.export(session, run_dir / "1", half_precision=True)
    return session, load_saved_model(path)


def test_example_queries_are_answered_by_photos(published, tmp_path):
    session, model = published
    text = session.task.exporter.answer(model.path, ["dog runs"], tmp_path)
    assert "test0.jpg  dog runs" in text
    assert (tmp_path / "answers.png").is_file()


def test_a_published_model_needs_no_tbnets(folder, published, tmp_path):
    session, model = published
    store = open_store(folder / "store")
    names = [f"{split}{i}.jpg" for split in COUNTS for i in range(3)]
    wanted = session.network.embed_images(store.take(store.rows(names)))
    contents = [(folder / "photos" / name).read_bytes() for name in names]
    served = run_client(
        tmp_path,
        model.path,
        image_bytes=np.array(contents),
        captions=np.array([b"dog runs", b""]),
    )
    assert (served["image"] * wanted).numpy().sum(axis=1).min() > 0.9999
    np.testing.assert_allclose(
        served["score"], served["image"] @ served["text"].T, atol=1e-5
    )


@pytest.mark.parametrize(
    "kind",
    [
        {"size": (7, 90)},
        {"size": (300, 200)},
        {"mode": "L"},
        {"mode": "CMYK"},
        {"mode": "RGBA", "format": "PNG"},
        {"mode": "P", "format": "PNG"},
    ],
)
def test_a_published_model_takes_photos_of_any_kind(published, kind, tmp_path):
    path = tmp_path / "photo"
    path.write_bytes(photo_files.encode(**kind))
    # A string is a path, bytes are content.
    found = published[1].embed_images([path, str(path), path.read_bytes()])
    np.testing.assert_allclose((found**2).sum(axis=1), 1, atol=1e-5)
    # Rows of one batch are the same to the last bit on some CPUs alone.
    np.testing.assert_allclose(found[0], found[2], atol=1e-6)
    np.testing.assert_allclose(found[1], found[2], atol=1e-6)


@pytest.mark.parametrize(
    "content", [b"no picture", b"", b"GIF89a" + bytes(20), photo()[:300]]
)
def test_what_is_no_photo_is_named_and_the_next_is_answered(published, content):
    model = published[1]
    for ask in (
        model.embed_images,
        lambda some: model.similarity(some, ["dog runs"]),
    ):
        with pytest.raises(InputError, match=r"images\[1\]"):
            ask([photo(), content])
        assert ask([photo()]).shape[0] == 1


def test_a_photo_that_is_not_there_is_named(published):
    with pytest.raises(InputError, match="none.jpg"):
        published[1].embed_images(["none.jpg"])
    with refused("images"):
        published[1].embed_images("none.jpg")


def test_a_published_model_searches(folder, published):
    model, photos = published[1], folder / "photos"
    paths = sorted(photos.iterdir())
    embeddings = model.embed_images(paths)
    cosines = model.embed_text(["dog runs", "cat"]) @ embeddings.T
    found = model.search(["dog runs", "cat"], photos, top=2)
    names = [str(path) for path in paths]
    for answers, row in zip(found, cosines):
        # Photos of noise nearly tie: the cosine is compared, not the name.
        values = [value for _, value in answers]
        own = [row[names.index(name)] for name, _ in answers]
        assert len({name for name, _ in answers}) == 2
        np.testing.assert_allclose(values, own, atol=1e-5)
        np.testing.assert_allclose(values, -np.sort(-row)[:2], atol=1e-5)
    [[(best, value)]] = model.search(["dog runs"], embeddings, top=1)
    assert value == pytest.approx(cosines[0, best], abs=1e-5)
    assert value == pytest.approx(cosines[0].max(), abs=1e-5)
    contents = [path.read_bytes() for path in paths[:2]]
    assert {name for name, _ in model.search(["cat"], contents)[0]} == {0, 1}
    assert model.search([], photos) == []
    assert model.search(["cat"], []) == [[]]
