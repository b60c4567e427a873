"""Tests of runs on a folder of photos and a table of captions alone."""

import csv
import json
import os
import shutil

import numpy as np
import pytest

from tbnets.cli import run_line
from tbnets.errors import MissingFileError
from tbnets.features import text_presets
from tbnets.features.photo_features import PhotoFeatures, build_named_cnn
from tbnets.serving.served import load_saved_model
from tbnets.tasks import own_photos, registry, runs
from tests import photo_files, tiny, verbs
from tests.archives import write_shards
from tests.features import tiny_cnn
from tests.features.test_photo_features import photo
from tests.tiny_runs import prepared, save

NAMES = [f"{number}.jpg" for number in range(12)]
BROKEN = {
    "Bücher/cut.jpg": photo_files.encode()[:-700],
    "a.gif": photo_files.CONTENTS["is a gif.jpg"][:20],
}
PHOTOS = ("--images=photos", "--captions=own.csv")
CNN = (f"--image_encoder={tiny_cnn.NAME}", "--cnn_weights=random")
SIZES = ("--word_dim=6", "--image_units=4", "--text_units=4")


@pytest.fixture(scope="module", autouse=True)
def tiny_is_known(module_eagerly):
    """The networks that read photos and sentences do not matter here."""
    with tiny_cnn.known(), pytest.MonkeyPatch.context() as patch:
        patch.setattr(text_presets, "has_minilm", lambda: False)
        yield


def write_captions(path, names):
    with open(path, "w", newline="", encoding="utf-8") as file:
        rows = csv.writer(file)
        rows.writerow(("image", "caption"))
        for place, name in enumerate(names):
            word = tiny.WORDS[place % len(tiny.WORDS)]
            rows.writerow((name, f"A {word}, {name[:-4]}"))
            rows.writerow((name, f"{word} runs"))


@pytest.fixture(scope="module")
def first(tmp_path_factory):
    """Photos, captions of them and of an absent one; a run that is `begun`.

    Returns their folder, which also holds the features and the run, and the
    run's (session, train). Do not change them.
    """
    root = tmp_path_factory.mktemp("own")
    photos = {name: photo(seed) for seed, name in enumerate(NAMES)}
    for name, content in (photos | BROKEN).items():
        path = root / "photos" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    write_captions(root / "own.csv", [*NAMES, *BROKEN, "absent.jpg"])
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(root)
        return root, begun(settings_for())


@pytest.fixture
def begun_before(first, monkeypatch):
    """Returns (session, train) of the `first` run, in its folder."""
    root, run = first
    monkeypatch.chdir(root)
    return run


@pytest.fixture
def folder(first, tmp_path, monkeypatch):
    """The current folder: a copy of the `first` folder, without the run."""
    without = shutil.ignore_patterns("runs")
    shutil.copytree(first[0], tmp_path, ignore=without, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def session(first, folder):
    """The session of the `first` run, as if it had been begun in `folder`."""
    shutil.copytree(first[0] / "runs", "runs")
    path = folder / "runs" / "photos" / "settings.json"
    record = json.loads(path.read_text()) | {"started_in": str(folder)}
    path.write_text(json.dumps(record))
    return first[1][0]


def settings_for(*more, photos=PHOTOS):
    """Returns the settings of a small run, its usual flags taken."""
    small = (*CNN, *SIZES, "--epochs=2", "--min_count=1")
    return with_usual(*photos, *small, *more)


def with_usual(*words):
    """Returns the settings of a line, with the usual flags of its photos."""
    line = tiny.typed(*words)
    resolved = run_line.resolve(line)
    files = registry.open_task(resolved.settings).usual_files
    return resolved.with_usual(files).settings


def begun(settings):
    """Begins a run and keeps checkpoints, without training."""
    session, examples = prepared(settings)
    return save(session), examples


def ids_of(session, *splits):
    return {
        image_id
        for split in splits
        for image_id in session.task.split(split).records.image_ids
    }


EVERY = ("train", "dev", "test")


def test_invalid_photos_are_skipped_with_their_captions(folder, capsys):
    shutil.rmtree(folder / "photos.tbnets")
    session, _ = begun(settings_for())
    assert session.run_dir == runs.pathlib.Path("runs/photos")
    fitted = session.state.fitted
    reasons = fitted["left_out"]
    assert set(reasons) == {*BROKEN, "absent.jpg"}
    assert ids_of(session, *EVERY) == set(NAMES)
    # Each file is named once, however often splits are loaded.
    told = capsys.readouterr().err
    for split in EVERY:
        session.task.load(split, fitted)
    told += capsys.readouterr().err
    assert told.count("absent.jpg") == 1
    lines = (session.run_dir / "left_out.txt").read_text("utf-8").splitlines()
    assert dict(line.split("\t") for line in lines) == reasons


def test_skipped_photos_and_splits_are_kept_in_the_checkpoint(
    session, folder, tmp_path_factory, monkeypatch
):
    before = {split: ids_of(session, split) for split in EVERY}
    shutil.copy("photos/0.jpg", "photos/a.gif")  # Mended since.
    (folder / "photos" / "new.jpg").write_bytes(photo(99))
    write_captions("own.csv", [*NAMES, *BROKEN, "absent.jpg", "new.jpg"])
    monkeypatch.chdir(tmp_path_factory.mktemp("elsewhere"))
    again = runs.open_run(folder / "runs" / "photos")
    assert ids_of(again, *EVERY) == {*NAMES, "new.jpg"}
    for split in EVERY:
        assert ids_of(again, split) - {"new.jpg"} == before[split]
    split = next(s for s in EVERY if "new.jpg" in ids_of(again, s))
    scores = again.task.scores(
        again.network, again.task.load(split, again.state.fitted)
    )
    assert len(scores.image_embeddings) == len(ids_of(again, split))


def test_photo_that_became_invalid_is_named(session, folder):
    name = next(iter(ids_of(session, "train")))
    path = folder / "photos" / name
    path.write_bytes(path.read_bytes()[:-300])
    for _ in ("cut", "gone"):
        again = runs.open_run("runs/photos")
        with pytest.raises(MissingFileError, match=f"'{name}'"):
            again.task.load("train", again.state.fitted)
        path.unlink(missing_ok=True)


def test_splits_are_drawn_from_valid_photos(begun_before):
    # By their hashes, the three that are none would have been the test split.
    session, _ = begun_before
    sizes = [len(ids_of(session, split)) for split in EVERY]
    assert sizes == [8, 2, 2]  # A fifth of 12 is 2.
    queries = session.task.example_queries
    assert len(queries) == 2
    assert set(queries) <= set(session.task.split("test").records.captions)


def test_run_from_a_model_extracts_features_like_the_model(session):
    before = session
    with open("own.csv", "a") as file:
        file.writelines(f"{name},A zebra at dusk\n" for name in NAMES)
    name = "--from=runs/photos"
    settings = settings_for(name, "--run_dir=runs/more", "--image_units=4")
    assert settings.optimizer.learning_rate == 0.001
    session, _ = prepared(settings)
    fitted, words = session.state.fitted, before.state.fitted["words"]
    assert fitted["words"] == [*words, *sorted({"at", "dusk", "zebra"})]
    key = "image_features_made_by"
    assert fitted[key] == before.state.fitted[key]
    weights = before.network.image_branch.get_weights()
    for one, two in zip(weights, session.network.image_branch.get_weights()):
        np.testing.assert_array_equal(one, two)


def test_captions_in_the_photo_folder_need_no_flag(folder):
    path = folder / "photos" / "metadata.csv"
    write_captions(path, NAMES)
    text = path.read_text().replace("image,caption", "file_name,text")
    path.write_text(text.replace(".jpg,", ","))  # Names without extension.
    found = run_line.resolve(tiny.typed("--images=photos"))
    assert found.settings.captions.captions == str(path)
    assert found.source("captions") == "default with other flags"
    data = registry.open_task(found.settings)
    names = {name for x in EVERY for name in data.split(x).records.names}
    assert names == {*NAMES}
    assert "without folder and extension" in data.notes({})["names"]


def test_archives_need_one_flag_and_give_equal_features(folder):
    photos = {name: photo(seed) for seed, name in enumerate(NAMES)} | BROKEN
    samples = [
        {name: content, f"{name[:-4]}.txt": f"A {tiny.WORDS[0]}.\nIt runs."}
        for name, content in photos.items()
    ]
    write_shards(folder / "shards", "{}.tar", samples, 3)
    settings = settings_for(photos=["--images=shards"])
    other = settings_for(photos=["--captions=shards"])
    assert settings.replace(run_dir="") == other.replace(run_dir="")
    session, train = prepared(settings)
    assert ids_of(session, *EVERY) == {*NAMES}
    assert session.task.own_photos.left_out.keys() == BROKEN.keys()
    contents = [photos[name] for name in train.records.image_ids]
    features = PhotoFeatures(build_named_cnn(tiny_cnn.NAME, "random"))
    np.testing.assert_allclose(
        train.images.batch(range(len(contents))), features(contents), atol=1e-4
    )
    assert os.listdir(folder / "shards.tbnets")


def test_only_invalid_photos_raise_an_error(folder):
    for name in NAMES:
        (folder / "photos" / name).write_bytes(b"GIF89a")
    with pytest.raises(own_photos.NoPhotos, match="'0.jpg'"):
        prepared(settings_for())
    assert not (folder / "runs").exists()


def test_flags_on_the_command_line_override_usual_flags(begun_before):
    line = tiny.typed(*PHOTOS, *CNN, "--epochs=3")
    resolved = run_line.resolve(line)
    files = registry.open_task(resolved.settings).usual_files
    resolved = resolved.with_usual(files)
    settings, source = resolved.settings, resolved.source
    assert (settings.epochs, settings.optimizer.learning_rate) == (3, 0.001)
    assert source("epochs") == "the command line"
    assert source("word_dim") == "configs/usual/photos_network.flags"
    assert source("min_count") == "configs/usual/photos_120.flags"


@pytest.mark.parametrize(
    "num_photos, values",
    [
        (119, (100, 32, 1, 0.4, 0.5)),
        (120, (60, 128, 2, 0.4, 0.5)),
        (600, (60, 128, 2, 0.2, 0.3)),
        (3000, (24, 128, 5, 0.2, 0.3)),
    ],
)
def test_usual_flags_change_with_the_number_of_photos(num_photos, values):
    names = own_photos.usual_files(num_photos)
    found = tiny.typed(*(f"--flagfile=usual/{name}" for name in names)).values
    changing = ("epochs", "images_per_batch", "min_count")
    changing += ("input_dropout", "word_dropout")
    assert tuple(found[name] for name in changing) == values


def test_usual_flags_follow_the_loss_and_the_model_to_start_from():
    every = {*own_photos.usual_files(10)}
    softmax = {*own_photos.usual_files(10, has_triplets=False)}
    begun = {*own_photos.usual_files(10, None)}
    assert every - softmax == {"photos_triplets"}
    assert every - begun == {"photos_network", "photos_words"}
    assert begun - every == {"photos_from"}


@pytest.mark.parametrize(
    ("share", "encoder"), [(0.9, "minilm,mean"), (0.7, "mean")]
)
def test_english_captions_use_the_installed_encoder(
    begun_before, monkeypatch, share, encoder
):
    monkeypatch.setattr(text_presets, "has_minilm", lambda: True)
    monkeypatch.setattr(text_presets, "minilm_share", lambda captions: share)
    settings = with_usual(*PHOTOS, *CNN)
    assert settings.texts.text_encoder == encoder
    assert settings.loss.is_triplet_loss == (encoder == "mean")
    own = with_usual(*PHOTOS, *CNN, "--text_encoder=gru")
    assert own.texts.text_encoder == "gru"


def test_one_command_from_photos_to_answers(folder):
    done = verbs.train(*PHOTOS, *CNN, *SIZES, "--epochs=1")
    assert not done.returncode, done.stderr
    run_dir = folder / "runs" / "photos"
    assert (run_dir / "answers.png").is_file()
    assert "--text_encoder=mean" in (run_dir / "run.flags").read_text()
    settings = json.loads((run_dir / "settings.json").read_text())
    assert settings["image_encoder"] == tiny_cnn.NAME
    model = load_saved_model(run_dir)
    assert model.takes_photos
    assert os.listdir(folder / "photos.tbnets")
    opened = runs.open_run(run_dir)
    train_split = opened.task.load("train", opened.state.fitted)
    name = train_split.records.image_ids[0]
    np.testing.assert_allclose(
        model.embed_images([folder / "photos" / name]),
        opened.network.embed_images(train_split.images.batch([0])),
        atol=1e-4,
    )
