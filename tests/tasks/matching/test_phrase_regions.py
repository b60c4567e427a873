"""Phrases and regions, asked of a network that learned whole photos alone."""

import json
import shutil

import numpy as np
import pytest

from tbnets.data.store.reader import open_features
from tbnets.data.store.writer import FeatureWriter
from tbnets.tasks import runs
from tbnets.tasks.phrase_regions import phrase_region_scores
from tests import tiny, tiny_scenes
from tests.refusals import refused
from tests.tiny_runs import trained
from tests.verbs import ask, call

MADE_BY = {"cnn": "Tiny", "layers": ["last"]}
pytestmark = pytest.mark.usefixtures("module_eagerly")


@pytest.fixture(scope="module")
def folder(tiny_run, tmp_path_factory):
    """Scenes whose photos and regions have the same kinds of features."""
    folder = tmp_path_factory.mktemp("data")
    shutil.copytree(tiny_run.scenes, folder, dirs_exist_ok=True)
    photos = np.load(folder / "ims.npy")
    ids = (folder / "ims_ids.txt").read_text().split()
    made_by = MADE_BY | {"pooling": "average"}  # Regions say `regions`.
    writer = FeatureWriter(folder / "photos", made_by, photos.shape[1])
    writer.add(ids, photos)
    writer.finish()
    write_regions(folder, "crops", MADE_BY)
    write_regions(folder, "others", MADE_BY | {"cnn": "Other"})
    averaged = MADE_BY | {"geometry": True, "grids": [1], "scales": [1.0]}
    write_regions(folder, "averages", averaged, places=True)
    write_regions(folder, "quarters", averaged | {"grids": [2]}, places=True)
    return folder


def write_regions(folder, name, made_by, places=False):
    """Copies the store of regions without the number that photos lack.

    With `places`, five numbers follow, as averages of maps have them.
    """
    store = open_features(folder / "regions")
    features, boxes = zip(*map(store.regions, range(len(store.ids))))
    pad = ((0, 0), (0, 5 if places else 0))
    features = [np.pad(x[:, :-1], pad, constant_values=0.5) for x in features]
    values = store.ids, features, boxes, store.sizes[0, 0]
    tiny_scenes.write_regions(folder / name, *values, made_by)


@pytest.fixture(scope="module")
def run(folder, tmp_path_factory):
    """The session of a trained network for whole photos."""
    run_dir = tmp_path_factory.mktemp("runs") / "run"
    changes = {"model": "embedding", "text_encoder": "mean", "loss": "vse++"}
    values = tiny_scenes.arguments(
        folder, run_dir, image_features="photos", epochs=2, **changes
    )
    for name in ("regions", "regions_per_image", "correspondence_epochs"):
        del values[name]
    del values["rnn_units"]
    trained(tiny.parsed(values))
    return runs.open_run(run_dir)


def scores_of(run, folder, regions="crops"):
    phrases = folder / "scenes"
    return phrase_region_scores(
        run, "test", str(phrases), str(folder / regions)
    )


def test_similarities_equal_those_of_embedded_regions(run, folder):
    table = scores_of(run, folder).table
    network = run.network
    reader = run.task.texts.reader(run.state.fitted)
    split, store = run.task.split("test"), open_features(folder / "crops")
    assert len(table.phrases) > 20
    for photo in (0, 5):
        rows = np.flatnonzero(table.images == photo)
        [row] = store.rows([split.records.image_ids[photo]])
        features, boxes = store.regions(row)
        whole = split.images.batch(np.array([photo]))
        texts = network.embed_text(reader([table.phrases[x] for x in rows]))
        seen = network.embed_images(np.concatenate([features, whole]))
        expected = texts.numpy() @ np.transpose(seen.numpy())
        found = table.similarities[rows, : len(boxes) + 1]
        np.testing.assert_allclose(found, expected, atol=1e-5)
        sides = [0, 0, *store.sizes[row]]
        np.testing.assert_allclose(table.candidates[photo][-1], sides)


def test_positions_of_averaged_regions_are_ignored(run, folder):
    found = scores_of(run, folder, "averages").table.similarities
    expected = scores_of(run, folder).table.similarities
    np.testing.assert_array_equal(found, expected)
    with refused("--regions"):
        scores_of(run, folder, "quarters")


def test_a_region_that_is_the_whole_photo_is_one_candidate(run, folder):
    store = open_features(folder / "crops")
    made_by = MADE_BY | {"proposals": {"whole_photo": True}}
    features, boxes = [], []
    split = run.task.split("test")
    ids = list(split.records.image_ids)
    for photo, row in enumerate(store.rows(ids)):
        regions, own = store.regions(row)
        whole = split.images.batch(np.array([photo]))
        features.append(np.concatenate([regions, whole]))
        boxes.append(np.append(own, [[0, 0, *store.sizes[row]]], axis=0))
    values = ids, features, boxes, store.sizes[0, 0]
    tiny_scenes.write_regions(folder / "with_photos", *values, made_by)
    found, scores = (
        scores_of(run, folder, "with_photos"),
        scores_of(run, folder),
    )
    for each, other in zip(found.table.candidates, scores.table.candidates):
        np.testing.assert_array_equal(each, other)
    np.testing.assert_allclose(
        found.table.similarities, scores.table.similarities, atol=1e-6
    )
    assert found.metrics() == scores.metrics()


def test_evaluate_prints_and_writes_phrase_metrics(run, folder, tmp_path):
    path = tmp_path / "metrics.json"
    line = [
        *("evaluate", f"--run_dir={run.run_dir}", f"--json={path}"),
        *(f"--phrases={folder / 'scenes'}", f"--regions={folder / 'crops'}"),
        *("--choice=expected_overlap", "--choice_area_exponent=0.5"),
    ]
    _, _, error = ask(*line)
    assert not error
    found = json.loads(path.read_text())
    assert "image_to_text/recall_at_1" in found
    expected = scores_of(run, folder).metrics(
        choice="expected_overlap", choice_area_exponent=0.5
    )
    assert expected.items() <= found.items()
    for words, name in {
        (line[3],): "--phrases",
        (line[4],): "--regions",
        (*line[3:5], "--combine_with=a"): "--phrases",
        (*line[3:5], "--query_bank=train"): "--phrases",
    }.items():
        with refused(name):
            call(*line[:2], *words)


def test_unsupported_choices_raise_errors(run, folder, monkeypatch):
    def is_refused(regions="crops"):
        with refused("--regions"):
            scores_of(run, folder, regions)

    is_refused("others")
    with monkeypatch.context() as patch:
        patch.setitem(run.state.fitted, "image_features_made_by", {})
        is_refused("regions")
    with monkeypatch.context() as patch:
        patch.setattr(run.task.texts, "reader", lambda fitted: None)
        is_refused()
    monkeypatch.setattr(run.task, "of_phrases", True)
    is_refused()
