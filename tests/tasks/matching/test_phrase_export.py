"""A network of whole photos, exported to find what phrases name in one."""

import numpy as np
import pytest

from tbnets.errors import InputError
from tbnets.serving.served import load_saved_model
from tbnets.store.opening import open_features
from tbnets.store.writer import FeatureWriter
from tests import tiny
from tests.features import tiny_cnn
from tests.recipes import test_made
from tests.tasks.matching.test_own_photos import begun
from tests.verbs import ask

BOXES = [[0, 0, 20, 20], [5, 5, 30, 40], [10, 2, 25, 12]]
CNN = f"--cnn={tiny_cnn.NAME}\n--cnn_weights=random\n--layers=second\n"
CHOICE = {"choice": "expected_overlap", "choice_temperature": 0.3}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Photos, captions, averages of boxes, and a run that was begun."""
    folder = test_made.write_given(tmp_path_factory.mktemp("given"))
    (folder / "second.flags").write_text(CNN)
    made_by = {"method": "edge_boxes", "limit": 3, "iou_threshold": 0.6}
    made_by |= {"longest_side": 500, "min_area": 0.005}
    writer = FeatureWriter(folder / "boxes", made_by, 0, kind="regions")
    writer.add_shard(test_made.NAMES, None, BOXES * 3, [3] * 3, [3, 2, 1] * 3)
    writer.finish()
    with pytest.MonkeyPatch.context() as patch, tiny_cnn.known():
        patch.chdir(folder)
        for name, kind in (("averages", "roi_average"), ("crops", "warp")):
            test_made.extract(
                name,
                folder,
                "--regions=boxes",
                f"--region_features={kind}",
                "--layers=second",
            )
        begun(
            tiny.parse(
                *("--images=photos", "--captions=captions.csv"),
                *("--captions_format=table", "--image_features=second.flags"),
                *("--text_encoder=mean", "--word_dim=6", "--min_count=1"),
                *("--image_units=4", "--text_units=4", "--run_dir=run"),
            )
        )
        yield folder


def export(*more):
    """Exports the run by the verb; returns what it says of a mistake."""
    flags = ("--cnn_weights=random", "--output=model/1", *more)
    return ask("export", "--run_dir=run", *flags)[2]


@pytest.fixture(scope="module")
def model(folder):
    chosen = (f"--{name}={value}" for name, value in CHOICE.items())
    assert not export("--regions=averages", *chosen)
    return load_saved_model("model/1")


def test_phrases_are_compared_with_boxes_of_a_photo(model, folder):
    store, phrases = open_features(folder / "averages"), ["red", "a blue one"]
    features, boxes = store.regions(1)
    expected = model.similarity(phrases, features[:, :-5])
    photo = folder / "photos" / store.ids[1]
    found = model.localize(phrases, photo, boxes)
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5)


def test_boxes_are_chosen_as_it_was_exported(model, folder):
    photo = folder / "photos" / test_made.NAMES[0]

    def boxes_of(**choice):
        found = model.find(["red", "blue"], photo, 3, BOXES, **choice)
        return [[box.tolist() for box, _ in one] for one in found]

    assert boxes_of() == boxes_of(**CHOICE)
    assert boxes_of(choice="mean_box") != boxes_of()


def test_what_finds_nothing_in_photos_is_refused(model):
    message = export("--regions=crops", "--output=model/2")
    assert "of whole photos or of regions by roi_average" in message
    assert "must come with --regions" in export("--choice=mean_box")
    flags = "--run_dir=run", "--regions=averages"
    assert "must come with --cnn_weights" in ask("export", *flags)[2]


def test_a_choice_that_was_damaged_is_refused(model, monkeypatch):
    told = {**model.metadata["metadata"], "choice": {"choice": "best"}}
    monkeypatch.setitem(model.metadata, "metadata", told)
    with pytest.raises(InputError, match="`choice` must be"):
        model.find(["red"], np.zeros((9, 9, 3), np.uint8), boxes=[[0, 0, 9, 9]])
