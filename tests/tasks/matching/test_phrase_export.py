"""A network of whole photos, exported to find what phrases name in one."""

import json
import shutil

import make_zoo
import numpy as np
import pytest
from zoo_making.served import phrase_scores

from tbnets.data.store.reader import open_features
from tbnets.data.store.writer import FeatureWriter
from tbnets.evaluation.boxes import iou
from tbnets.serving.served import load_saved_model
from tbnets.tasks import runs
from tests import tiny_scenes, verbs
from tests.features import tiny_cnn
from tests.refusals import refused
from tests.tasks.recipes import test_made
from tests.tools.test_make_zoo import CARD
from tests.verbs import call

BOXES = [[0, 0, 20, 20], [5, 5, 30, 40], [10, 2, 25, 12], [0, 0, 30, 40]]
CNN = f"--cnn={tiny_cnn.NAME}\n--cnn_weights=random\n--layers=second\n"
CHOICE = {"choice": "expected_overlap", "choice_temperature": 0.3}


@pytest.fixture(scope="module", autouse=True)
def quickly(module_eagerly):
    """Nothing here differs in a graph but what is exported, which is one."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Photos, captions, averages of boxes, and a run that was begun."""
    folder = test_made.write_given(tmp_path_factory.mktemp("given"))
    (folder / "second.flags").write_text(CNN)
    write_boxes(folder / "boxes")
    with pytest.MonkeyPatch.context() as patch, tiny_cnn.known():
        patch.chdir(folder)
        test_made.extract(
            "averages",
            folder,
            "--regions=boxes",
            "--region_features=roi_average",
            "--layers=second",
        )
        store = open_features("averages")
        features, boxes = zip(*map(store.regions, range(len(store.ids))))
        made_by = {**store.made_by, "regions": "warp"}
        values = store.ids, features, boxes, 40, made_by
        tiny_scenes.write_regions("crops", *values)
        trained = verbs.train(
            *("--images=photos", "--captions=captions.csv", "--noexport"),
            "--image_features=second.flags",
            *("--text_encoder=mean", "--word_dim=6", "--min_count=1"),
            *("--image_units=4", "--text_units=4", "--run_dir=run"),
            *("--epochs=1", "--batch_normalization=none"),
        )
        assert trained.returncode == 0, trained.stderr
        yield folder


def write_boxes(path):
    """Writes a store of the same boxes of each photo."""
    made_by = {"method": "edge_boxes", "limit": 3, "iou_threshold": 0.6}
    made_by |= {"longest_side": 500, "min_area": 0.005, "whole_photo": True}
    writer = FeatureWriter(path, made_by, 0, kind="regions")
    scores = [4, 3, 2, 1] * 3
    writer.add(test_made.NAMES, None, BOXES * 3, [4] * 3, scores)
    writer.finish()


def export(*more):
    """Exports the run by the verb."""
    flags = ("--cnn_weights=random", "--output=model/1", *more)
    call("export", "--run_dir=run", *flags)


@pytest.fixture(scope="module")
def model(folder):
    chosen = (f"--{name}={value}" for name, value in CHOICE.items())
    export("--regions=averages", *chosen)
    return load_saved_model("model/1")


def test_phrases_are_compared_with_boxes_of_a_photo(model, folder):
    store, phrases = open_features(folder / "averages"), ["red", "a blue one"]
    features, boxes = store.regions(1)
    expected = model.similarity(phrases, features[:, :-5])
    photo = folder / "photos" / store.ids[1]
    found = model.localize(phrases, photo, boxes)
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5)


def test_exported_model_chooses_boxes_as_the_export_set(model, folder):
    photo = folder / "photos" / test_made.NAMES[0]

    def boxes_of(**choice):
        found = model.find(["red", "blue"], photo, 3, BOXES, **choice)
        return [[box.tolist() for box, _ in one] for one in found]

    assert boxes_of() == boxes_of(**CHOICE)
    assert boxes_of(choice="mean_box") != boxes_of()


def test_export_without_regions_of_photos_raises_an_error(model):
    with refused("--cnn_weights"):
        export("--regions=crops", "--output=model/2")
    with refused("--choice"):
        export("--choice=mean_box")
    with refused("--regions"):
        call("export", "--run_dir=run", "--regions=averages")


def write_phrases(path):
    """Writes what each photo's caption names."""
    words = zip(test_made.NAMES, ("red", "blue", "green"))
    rows = [{"image": n, "phrase": w, "box": BOXES[1]} for n, w in words]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_run_and_export_have_equal_metrics(model, tmp_path):
    phrases = write_phrases(tmp_path / "phrases.jsonl")
    session, given = runs.open_run("run"), ("test", str(phrases))
    both = phrase_scores(session, model, *given, "averages")
    first, second = (each.table.similarities for each in both)
    assert first.shape == (1, len(BOXES)) and np.ptp(first)
    np.testing.assert_allclose(first, second, atol=1e-5)


def test_zoo_model_is_evaluated_on_phrases(
    folder, model, tmp_path, monkeypatch
):
    def copied(session, path, fitted, *, metadata, endpoints, **options):
        """Checks the arguments of an export, and copies the `model`."""
        assert fitted["image_features_made_by"]["regions"] == "roi_average"
        assert metadata == {"choice": model.metadata["metadata"]["choice"]}
        assert endpoints.functions.keys() == model.metadata["signatures"].keys()
        return shutil.copytree("model/1", path)

    monkeypatch.setattr(make_zoo.runs, "export", copied)
    phrases = write_phrases(tmp_path / "phrases.jsonl")
    (tmp_path / "card.md").write_text(CARD)
    line = (
        *("make_zoo", "--run_dir=run", "--name=tiny", "--cnn_weights=random"),
        *(f"--zoo={tmp_path}", f"--card={tmp_path / 'card.md'}"),
        *(f"--phrases={phrases}", "--images=photos"),
        *(f"--{name}={value}" for name, value in CHOICE.items()),
        "--most_lost=300",
    )
    call(*line, "--regions=averages")
    found = json.loads((tmp_path / "tiny/metrics.json").read_text())
    photo = folder / "photos" / test_made.NAMES[2]
    [[(box, _)]] = model.find(["green"], photo, 1, BOXES)
    is_right = iou([box], [BOXES[1]])[0, 0] >= 0.5
    assert found["test"]["phrase_to_region/num_queries"] == 1
    assert found["test"]["phrase_to_region/recall_at_1"] == is_right
    assert found["takes"] == "photos with boxes"
