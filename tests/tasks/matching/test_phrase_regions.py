"""Phrases and regions, asked of a network that learned whole photos alone."""

import json
import shutil

import numpy as np
import pytest

from tbnets.data.store.opening import open_features
from tbnets.data.store.writer import FeatureWriter
from tbnets.evaluation.choices import CHOICE_ARGUMENTS, Choice, answers
from tbnets.tasks import runs
from tbnets.tasks.matching.phrase_regions import phrase_region_scores
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
    writer.add_shard(ids, photos)
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


def test_phrases_are_compared_with_the_regions_of_their_photo(run, folder):
    scores = scores_of(run, folder)
    network = run.network
    reader = run.task.texts.reader(run.state.fitted)
    photos = run.task.split("test").images
    known = scores.phrases
    assert known.num_phrases > 20
    names = [known.images.image_ids[row] for row in known.phrase_to_image]
    ids = run.task.split("test").records.image_ids
    assert [ids[photo] for photo in scores.images] == names
    for photo in (0, 5):
        rows = np.flatnonzero(scores.images == photo)
        words = [known.phrases[row] for row in rows]
        store = scores.regions.store
        features, boxes = store.regions(scores.regions.rows[photo])
        seen = np.concatenate([features, photos.batch(np.array([photo]))])
        expected = network.embed_text(reader(words)).numpy() @ np.transpose(
            network.embed_images(seen).numpy()
        )
        found = scores.similarities[photo]
        np.testing.assert_allclose(found, expected, atol=1e-5)
        assert found.shape[1] == len(boxes) + 1


def test_where_an_averaged_region_lies_does_not_count(run, folder):
    found = scores_of(run, folder, "averages").similarities
    expected = scores_of(run, folder).similarities
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_array_equal(one, other)
    with refused("--regions"):
        scores_of(run, folder, "quarters")


def test_a_photo_that_is_a_region_is_no_other_candidate(run, folder):
    store = open_features(folder / "crops")
    made_by = MADE_BY | {"proposals": {"whole_photo": True}}
    features, boxes = [], []
    photos = run.task.split("test").images
    scores = scores_of(run, folder)
    for photo, row in enumerate(scores.regions.rows):
        some, own = store.regions(row)
        whole = photos.batch(np.array([photo]))
        features.append(np.concatenate([some, whole]))
        boxes.append(np.append(own, [[0, 0, *store.sizes[row]]], axis=0))
    ids = [store.ids[row] for row in scores.regions.rows]
    values = ids, features, boxes, store.sizes[0, 0]
    tiny_scenes.write_regions(folder / "with_photos", *values, made_by)
    found = scores_of(run, folder, "with_photos")
    for photo in range(len(ids)):
        np.testing.assert_array_equal(
            found.candidates(photo), scores.candidates(photo)
        )
    for one, other in zip(found.similarities, scores.similarities, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-6)
    assert found.metrics() == scores.metrics()


def test_they_are_measured_by_any_choice_of_a_candidate(run, folder):
    scores = scores_of(run, folder)
    usual = scores.metrics()
    assert usual["correspondence_links"] == scores.phrases.num_phrases
    chance = usual["correspondence_chance"]
    assert chance < usual["correspondence_accuracy"] <= 1
    options = ("expected_overlap", 0.2, 0.5)
    found, right = scores.metrics(**dict(zip(CHOICE_ARGUMENTS, options))), []
    candidates = scores.regions.candidates
    truth = scores.phrases.boxes
    for photo, rows in enumerate(scores.phrases_of_photos):
        boxes = candidates(photo)
        ranked, _ = answers(scores.similarities[photo], boxes, Choice(*options))
        for box, best in zip(truth[rows], ranked.argmax(axis=1)):
            center = (boxes[best][:2] + boxes[best][2:]) / 2
            right.append(
                (box[:2] <= center).all() and (center <= box[2:]).all()
            )
    expected = pytest.approx(np.mean(right))
    assert found["correspondence_pointing_accuracy"] == expected
    with refused("choice"):
        scores.metrics(choice="mean_box")


def test_the_verb_prints_and_writes_them(run, folder, tmp_path):
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


def test_what_can_not_be_asked_is_refused(run, folder, monkeypatch):
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
