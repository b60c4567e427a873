"""Tests of a run's folder: how it starts, opens and ends."""

import json
import os
import pathlib
import shutil

import numpy as np
import PIL.Image
import pytest

from tbnets import startup
from tbnets.errors import UserError
from tbnets.serving.saved_files import read_metadata
from tbnets.tasks import registry, runs
from tbnets.training import checkpoints, summary
from tests import lifecycle, tiny
from tests.refusals import refused
from tests.tiny_runs import prepared, save
from tests.tiny_runs import trained as train

# Which graph is traced is no matter here.
pytestmark = pytest.mark.usefixtures("module_eagerly")


@pytest.fixture(scope="module")
def folder(tiny_run):
    return tiny_run.captioned


@pytest.fixture(scope="module")
def run(tiny_run):
    return tiny_run()


test_it_opens = lifecycle.opens_with_the_same_results
test_it_exports = lifecycle.exports_the_same_results


def test_run_folder_holds_what_the_documents_name(run):
    assert {*os.listdir(run.run_dir)} - {"saved_model"} == {
        "settings.json",
        "run.flags",
        "vocabulary.txt",
        "training.lock",
        "checkpoints",
        "tensorboard",
        "curves.png",
        "metrics.json",
    }
    written = json.loads((run.run_dir / "metrics.json").read_text())
    assert written["versions"]["kernels"] == startup.kernels()
    assert written["test"] == run.report["test"]
    split = {"name": "test", "images": 6, "captions": 12}
    assert written["test_split"] == split
    last, best = (
        checkpoints.read_checkpoint(run.session.checkpoint(name)).state
        for name in ("last", "best")
    )
    sums = [row["dev/recall_sum"] for row in last.history]
    assert len(sums) == last.epoch == run.settings.epochs
    assert best.epoch == sums.index(max(sums)) + 1 == run.report["best_epoch"]
    assert best.best_metric == max(sums) == written["dev"]["recall_sum"]


def edited(run, tmp_path, **changes):
    """Returns a copy of a run with changed settings.json."""
    run_dir = shutil.copytree(run.run_dir, tmp_path / "run")
    path = run_dir / "settings.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))
    return run_dir


def test_edited_settings_file_does_not_change_the_network(run, tmp_path):
    run_dir = edited(
        run, tmp_path, image_transform=["l2"], word_dim=7, margin=9.0
    )
    images = np.arange(16, dtype="float32").reshape(2, 8)
    found, wanted = runs.open_run(run_dir), run.opened
    assert found.settings.features.image_transform == []
    assert found.settings.loss.margin == wanted.settings.loss.margin
    np.testing.assert_array_equal(
        found.network.embed_images(images), wanted.network.embed_images(images)
    )


def saved_run(settings):
    """Returns the folder of a run whose first network was saved as best."""
    return save(prepared(settings)[0], "best").run_dir.resolve()


def num_test_images(run_dir, **options):
    session = runs.open_run(run_dir, **options)
    return session.task.load("test", session.state.fitted).images.shape


@pytest.fixture
def home(tmp_path, monkeypatch):
    """Returns the current folder, where a run is started."""
    monkeypatch.delenv("TBNETS_DATA", raising=False)
    (tmp_path / "home").mkdir()
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "home")
    return tmp_path / "home"


def test_a_run_opens_from_another_folder(home, monkeypatch):
    tiny.write_precomputed(home / "data")
    # Features where a tool leaves them: here, not below the data root.
    tiny.write_precomputed(home / "features")
    files = {"captions": "{split}_caps.txt"}
    files["image_features"] = "features/{split}_ims.npy"
    settings = tiny.settings("data", "run", **files)
    run_dir = saved_run(settings)
    assert num_test_images(run_dir) == (8,)
    elsewhere = home.parent / "elsewhere"
    monkeypatch.chdir(elsewhere)
    # Other data of the same name are not those of the run.
    (elsewhere / "data").mkdir()
    assert num_test_images(run_dir) == (8,)
    # What is named now starts from here.
    (home / "data").rename("moved")
    with pytest.raises(UserError, match="home/data"):
        num_test_images(run_dir)
    assert num_test_images(run_dir, data_root="moved") == (8,)
    monkeypatch.setenv("TBNETS_DATA", "moved")
    assert num_test_images(run_dir) == (8,)
    with pytest.raises(UserError, match="elsewhere/absent"):
        num_test_images(run_dir, data_root="absent")
    # A run that was moved with its data opens there.
    monkeypatch.delenv("TBNETS_DATA")
    pathlib.Path("moved").rename(home / "data")
    home.rename(home.parent / "moved")
    monkeypatch.chdir(home.parent / "moved")
    assert num_test_images("run") == (8,)
    assert run_dir == home / "run" and not home.exists()


def test_exported_metadata_has_the_epoch(run):
    metadata = read_metadata(run.model.path)["metadata"]
    assert metadata["epoch"] == run.report["best_epoch"]


def write_own(folder, *rows):
    """Writes a table of (image, caption, split), and the photos in it."""
    for i, (name, _, _) in enumerate(rows):
        path = folder / "photos" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        PIL.Image.new("RGB", (9, 9), (60 * i % 256, 99, 0)).save(path)
    lines = ["image,caption,split", *map(",".join, rows)]
    (folder / "own.csv").write_text("\n".join(lines) + "\n")


OWN = {
    "captions": "own.csv",
    "images": "photos",
    "image_features": "",
    "image_encoder": "small",
    "image_size": 8,
    "epochs": 1,
}


TABLE = [
    (f"{split}/{'ab'[i % 2]}/{i}.png", f"a {tiny.WORDS[i]} runs", split)
    for split, count in (("train", 4), ("dev", 2), ("test", 3))
    for i in range(count)
]


@pytest.fixture(scope="module")
def photo_run(tmp_path_factory):
    """Returns a session on the photos of `TABLE`, and its SavedModel."""
    folder = tmp_path_factory.mktemp("photos")
    write_own(folder, *TABLE)
    session = train(tiny.settings(folder, folder / "run", **OWN))
    runs.finish(session)
    return session, runs.export(session)


def test_example_queries_find_photos_in_subfolders(photo_run, tmp_path):
    session, model = photo_run
    text = session.task.answer(model, ["a dog"], tmp_path)
    for name, caption, _ in TABLE[-3:]:
        assert f"{name}  {caption}" in text
    # One image has a caption with the words of the question.
    assert '"a dog" among 3 images, hits: 1' in text
    (told,) = (line for line in text.splitlines() if "a dog runs" in line)
    assert told.split()[2] == "yes" and "\n\nhit: a caption of" in text
    assert (tmp_path / "answers.png").is_file()
    shown = session.run_dir / "tensorboard"
    # Dev queries are drawn as the first epoch is the best so far.
    tags = tiny.events(shown)
    assert tags["2_answers/1"] == tags["2_answers/2"] == {1}
    assert "2_answers/3" not in tags
    assert (shown / "points_sprite.png").is_file()


FIRST = [
    ("dog.jpg", "A dog runs in the snow.", "train"),
    ("dog.jpg", "A brown dog outside.", "train"),
    ("cat.jpg", "A cat sleeps.", "dev"),
]


def test_run_without_a_test_split_reports_dev(photo_run, folder, tmp_path):
    write_own(tmp_path, *FIRST)
    for line in OWN, {**OWN, "test_split": ""}:
        settings = tiny.settings(tmp_path, tmp_path / "run", **line)
        task = registry.open_task(settings)
        task.check(["a"])
        assert task.test_split == "" and task.last.name == "dev"
    _, model = photo_run  # Any that takes photos.
    assert "cat.jpg  A cat sleeps." in task.answer(model, ["a"], tmp_path)
    settings = tiny.settings(folder, tmp_path / "run", test_split="")
    session, _ = prepared(settings)
    session.state.epoch = session.state.best_epoch = 1
    session.state.history = [{"dev/recall_sum": 1.0, "seconds": 1.0}]
    best = save(session).network.get_weights()
    session.network.image_branch.set_weights(
        [0 * one for one in session.network.image_branch.get_weights()]
    )
    report = runs.finish(session)
    # What is measured has the weights of the best epoch.
    for one, other in zip(best, session.network.get_weights(), strict=True):
        np.testing.assert_array_equal(one, other)
    assert "recall_sum" in report["dev"]
    assert not {"test", "test_split"} & report.keys()


def test_query_without_photos_raises_an_error_before_training(folder, tmp_path):
    photos = {"cnn_weights": "w.h5", "export": True}
    settings = tiny.settings(folder, tmp_path / "run", **photos)
    with refused("--images"):
        prepared(settings, queries=["a dog"])
    assert not (tmp_path / "run").exists()


def test_finished_run_has_metrics_and_an_export(run, tmp_path):
    exports = shutil.ignore_patterns("saved_model")
    run_dir = shutil.copytree(run.run_dir, tmp_path / "run", ignore=exports)
    settings = run.settings.replace(run_dir=str(run_dir))
    assert summary.finished(settings, run_dir)
    assert not summary.finished(settings.replace(epochs=4), run_dir)
    exporting = settings.replace(export=True)
    assert not summary.finished(exporting, run_dir)
    shutil.copytree(run.model.path, run_dir / "saved_model" / "1")
    assert summary.finished(exporting, run_dir)
    assert summary.finished(exporting.replace(schedule="cosine"), run_dir)
    # A run that was stopped before its report has something left to do.
    (run_dir / "metrics.json").unlink()
    assert not summary.finished(settings, run_dir)
    assert not summary.finished(settings, run.stopped)


def test_run_stopped_by_patience_is_finished(folder, tmp_path):
    run_dir = tmp_path / "run"
    settings = tiny.settings(folder, run_dir, epochs=9, patience=2)
    session, _ = prepared(settings)
    session.state.epoch, session.state.best_epoch = 3, 1
    save(session, "last")
    (run_dir / "metrics.json").write_text('{"epochs": 3}')
    assert summary.finished(settings, run_dir)
    assert not summary.finished(settings.replace(patience=3), run_dir)
