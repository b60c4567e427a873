"""An exported localizer called with lists: what it finds, what it refuses."""

import numpy as np
import pytest

from tbnets.data.images import BrokenImageError
from tbnets.errors import InputError
from tbnets.serving.inputs import MOST_WORDS
from tbnets.serving.served import load_saved_model
from tests import tiny_localizer
from tests.refusals import refused

BOXES = np.array(list(tiny_localizer.BOXES.values()), "float32")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("localizer")
    tiny_localizer.write_photo(folder / "photo.png")
    tiny_localizer.write_model(folder / "1")
    return folder


@pytest.fixture(scope="module")
def model(folder):
    return load_saved_model(folder / "1")


def test_localizer_has_its_signatures(model, folder):
    assert model.has("localize", "embed_phrases", "score")
    assert not model.has("embed_text")
    with refused("signature"):
        model.embed_text(["red"])
    with refused("signature"):
        model.search(["red"], folder, cache=False)
    assert model.takes_photos and model.takes_captions
    assert model.embedding_dim == 3
    assert "red" in model.vocabulary.words
    assert model.metadata["max_tokens"] == MOST_WORDS


def test_phrases_are_compared_with_boxes_and_features(model, folder):
    phrases = ["red", "blue and red"]
    # "and" is unknown, [1, 1, 1]: [2, 1, 2] / 3.
    expected = [[1, 0], [2 / 3, 2 / 3]]
    found = model.localize(phrases, folder / "photo.png", BOXES)
    np.testing.assert_allclose(found, expected, atol=2e-2)
    colours = [[200, 0, 0], [0, 0, 200]]
    found = model.similarity(phrases, colours)
    np.testing.assert_allclose(found, expected, atol=1e-6)
    embeddings = model.embed_phrases(phrases), model.embed_regions(colours)
    lists = [rows.tolist() for rows in embeddings]
    for sides in (embeddings, lists):
        np.testing.assert_allclose(model.compare(*sides), found, atol=1e-6)
    assert model.localize(phrases, folder / "photo.png", []).shape == (2, 0)


def test_find_returns_the_best_box_of_each_phrase(model, folder):
    near = BOXES[0] + [1, 0, 1, 0]  # Overlaps the first one by 39 / 41.
    boxes = np.stack([near, *BOXES])
    red, blue = model.find(
        ["red", "blue"], folder / "photo.png", top=3, boxes=boxes
    )
    # The near copy of the red box is no answer of its own.
    assert [box.tolist() for box, _ in red] == BOXES.tolist()
    assert [box.tolist() for box, _ in blue][0] == BOXES[1].tolist()
    assert red[0][1] == pytest.approx(1, abs=1e-3)
    [[best]] = model.find(["red"], folder / "photo.png", boxes=boxes)
    assert best[0].tolist() == BOXES[0].tolist()
    assert model.find(["red"], folder / "photo.png", boxes=[]) == [[]]


def test_find_supports_other_choices(model, folder):
    photo = folder / "photo.png"
    boxes = np.stack([BOXES[0] + [2, 0, 2, 0], *BOXES])
    # Both red boxes weigh about as much: the mean lies between them.
    [[(mean, similarity)]] = model.find(
        ["red"], photo, boxes=boxes, choice="mean_box", choice_temperature=50
    )
    assert mean.dtype == np.float32
    np.testing.assert_allclose(mean, BOXES[0] + [1, 0, 1, 0], atol=0.02)
    assert similarity == model.find(["red"], photo, 2, boxes)[0][0][1]
    assert model.find(["red"], photo, 1, [], "mean_box") == [[]]
    [[(alone, _)]] = model.find(["red"], photo, 1, BOXES[1], "mean_box")
    assert alone.tolist() == BOXES[1].tolist()


def test_boxes_are_proposed_as_in_training(model, folder):
    pytest.importorskip("cv2")
    boxes = model.propose(folder / "photo.png")
    assert 0 < len(boxes) <= 30
    for name, box in tiny_localizer.BOXES.items():
        [[(found, similarity)]] = model.find([name], folder / "photo.png")
        assert similarity > 0.9
        assert tiny_localizer.is_centred_in(found, box)


def test_error_about_a_broken_photo_names_it(model, folder):
    cut = (folder / "photo.png").read_bytes()[:-30]
    (folder / "cut.png").write_bytes(cut)
    for call, photo, name in (
        (model.localize, cut, f"{len(cut)} bytes"),
        (model.find, folder / "none.png", "none.png"),
        (model.find, folder / "cut.png", "cut.png"),
    ):
        with pytest.raises(BrokenImageError, match=name):
            call(["red"], photo, boxes=BOXES)
    with refused("phrases"):
        model.localize("red", folder / "photo.png", BOXES)


def test_model_of_features_takes_no_photos(tmp_path, folder):
    model = load_saved_model(tiny_localizer.write_model(tmp_path / "1", None))
    assert not model.takes_photos
    with pytest.raises(InputError):
        model.localize(["red"], folder / "photo.png", BOXES)
