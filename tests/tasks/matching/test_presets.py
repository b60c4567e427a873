"""Runs on photos that presets of Keras Hub turn into vectors."""

import json
import shutil

import numpy as np
import pytest

from tbnets import runs, tasks
from tbnets.commands import run_line
from tbnets.errors import InputError
from tbnets.features.photo_features import PhotoFeatures, build_named_cnn
from tbnets.serving.served import load_saved_model
from tbnets.store.shards import open_store
from tbnets.tasks import readers
from tbnets.training import loop
from tests import tiny, verbs
from tests.features.test_photo_features import photo
from tests.tasks.matching.test_own_photos import NAMES, write_captions


@pytest.fixture(scope="module")
def prepared(tmp_path_factory, hub_presets):
    """Photos, captions and two presets."""
    root = tmp_path_factory.mktemp("presets")
    (root / "photos").mkdir()
    for seed, name in enumerate(NAMES):
        (root / "photos" / name).write_bytes(photo(seed))
    write_captions(root / "own.csv", NAMES)
    for kind in ("clip", "resnet"):
        shutil.copytree(hub_presets[kind], root / kind)
    return root


@pytest.fixture
def folder(prepared, tmp_path, monkeypatch, eagerly):
    """The current folder: a copy of what is `prepared`."""
    shutil.copytree(prepared, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def settings_for(*more):
    """Returns the settings of a small run."""
    return run_line.settings(
        tiny.typed(
            "--images=photos",
            "--captions=own.csv",
            "--text_encoder=mean",
            "--min_count=1",
            "--word_dim=4",
            "--image_units=4",
            "--text_units=4",
            "--images_per_batch=4",
            "--epochs=2",
            "--run_dir=run",
            *more,
        )
    )


def begun(*more, resume=False):
    """Returns (session, train) of a run that begins or goes on."""
    settings = settings_for(*more)
    return runs.prepare(settings, runs.start(settings, resume))


def trained(*more, resume=False):
    """Returns the session of a run that was trained to its end."""
    session, train = begun(*more, resume=resume)
    loop.fit(session, train)
    return session


FINE = (
    *("--image_encoder=hub:clip", "--fine_tune", "--image_features="),
    "--images_per_batch=8",
)


def test_a_fine_tuned_preset_goes_on_without_its_folder(folder, hub_presets):
    straight = trained(*FINE, "--run_dir=straight")
    first = build_named_cnn(f"hub:{hub_presets['clip']}", None)
    trained(*FINE, "--epochs=1")
    shutil.rmtree("clip")
    again = trained(*FINE, resume=True)
    assert again.state.epoch == 2
    for one, other in zip(straight.network.weights, again.network.weights):
        np.testing.assert_array_equal(one.numpy(), other.numpy())
    tuned = again.network.image_encoder.network
    moved = [
        np.abs(a - b).max()
        for a, b in zip(tuned.get_weights(), first.network.get_weights())
    ]
    assert 0 < max(moved) < 0.1
    _check_export(folder, runs.open_run("run"))


def _check_export(folder, session):
    """Asks the SavedModel, which must not tell where the preset was."""
    path = runs.export(session)
    told = (path / "assets.extra" / "tbnets.json").read_text()
    assert "hub:clip" in told and str(folder) not in told
    contents = [(folder / "photos" / name).read_bytes() for name in NAMES[:2]]
    read = session.task.data.photo_reader({})
    expected = session.network.embed_images(read(contents), training=False)
    found = load_saved_model(path).embed_images(contents)
    np.testing.assert_allclose(found, expected, atol=1e-5)


def test_a_frozen_preset_keeps_its_weights(folder, hub_presets):
    flags = "--image_encoder=hub:resnet", "--image_size=24", "--epochs=1"
    network = trained(*flags).network
    own = build_named_cnn(f"hub:{hub_presets['resnet']}", None)
    kept = network.image_encoder.network.get_weights()
    for one, other in zip(kept, own.network.get_weights()):
        np.testing.assert_array_equal(one, other)
    assert network.input_shapes["images"] == (None, 24, 24, 3)


def test_features_of_a_recipe_are_those_in_the_exported_graph(folder):
    (folder / "clip.flags").write_text("--cnn=hub:clip\n")
    session, train = begun(
        "--image_features=clip.flags",
        "--cnn_weights=hub:clip",
        "--data_root=.",
    )
    rows = train.images.batch(range(len(train.records.image_ids)))
    contents = [
        (folder / "photos" / name).read_bytes()
        for name in train.records.image_ids
    ]
    alone = settings_for("--image_features=hub:clip", "--data_root=.")
    [same] = tasks.open_task(alone).data.missing()
    assert (folder / "made" / f"clip-{same.digest}").is_dir()
    features = PhotoFeatures(build_named_cnn("hub:clip", None))
    np.testing.assert_allclose(features(contents), rows, atol=1e-5)
    model = load_saved_model(runs.export(session))
    expected = session.network.embed_images(rows)
    np.testing.assert_allclose(
        model.embed_images(contents), expected, atol=1e-5
    )
    settings = readers.start_at_photo(session.settings, "imagenet")
    with pytest.raises(InputError, match="must be the preset that made"):
        readers.photo_reader(
            session.state.fitted["image_features_made_by"],
            settings,
            session.task.data.opened.given,
        )


def test_own_photos_are_read_by_a_preset(folder):
    own = ("--cnn=hub:clip", "--cnn_weights=imagenet")
    session, _ = begun(*own)
    made_by = session.state.fitted["image_features_made_by"]
    assert made_by["cnn"] == "hub:CLIPBackbone"
    assert str(folder) not in json.dumps(made_by)
    (folder / "moved").mkdir()
    (folder / "clip").rename("moved/clip")
    again = settings_for("--cnn=hub:moved/clip", "--cnn_weights=imagenet")
    assert runs.start(again, True)
    session = runs.prepare(again, runs.start(again, True))[0]
    reader = session.task.data.photo_reader(made_by)
    assert reader.dim == session.state.fitted["image_dim"] == 6


def test_the_tool_extracts_by_a_preset(folder):
    line = ("--images=photos", "--layers=P2,last", "--output=features")
    verb = "extract_image_features"
    ended = verbs.run(verb, *line, "--cnn=hub:resnet")
    assert ended.returncode == 0, ended.stderr
    assert open_store("features").dim == 64 + 6
    told = verbs.ask(verb, *line, "--cnn=hub:resnet_18_imagnet")[2]
    assert "Did you mean resnet_18_imagenet" in told
