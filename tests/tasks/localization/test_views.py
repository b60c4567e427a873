"""Tests of what is drawn of a run of phrase localization."""

import types

import numpy as np
import PIL.Image
import pytest

from tbnets.tasks.localization import scores
from tbnets.tasks.localization.scores import LocalizationScores
from tbnets.visualization import boxes as pictures

NUM_PHOTOS = 7
PROPOSALS = np.array([[0, 0, 10, 10], [20, 0, 40, 20]], "float32")


@pytest.fixture
def examples(tmp_path):
    """Seven photos, the fourth without phrases; four phrases of three things
    in each other one.
    """
    for row in range(NUM_PHOTOS):
        size = (100, 50) if row else (200, 100)  # The first lies there larger.
        PIL.Image.new("RGB", size).save(tmp_path / f"{row}.png")
    photos = np.repeat([0, 1, 2, 4, 5, 6], 4)
    phrases = types.SimpleNamespace(
        phrases=[f"phrase {row}" for row in range(len(photos))],
        phrase_to_image=photos,
        phrase_to_chain=10 * photos + np.tile([3, 3, 1, 2], 6),
        boxes=np.tile([[0, 0, 10, 8.0]], (len(photos), 1)),
        image_sizes=np.tile([[100, 50]], (NUM_PHOTOS, 1)),
        images=types.SimpleNamespace(
            num_images=NUM_PHOTOS, file_name=lambda row: f"{row}.png"
        ),
    )
    return types.SimpleNamespace(phrases=phrases)


def test_photos_are_spread_and_phrases_name_different_things(examples):
    shown = scores.drawn_phrases(examples.phrases)
    # Of photos 0 1 2 4 5 6, numbers 0, 6 // 5, 12 // 5, 18 // 5 and 24 // 5.
    assert list(shown) == [0, 1, 2, 4, 5]
    # Of phrases 0 to 3 the second names what the first does.
    assert shown[0].tolist() == [0, 2, 3]


def scores_of(examples, folder, similarities):
    proposals = [PROPOSALS] * NUM_PHOTOS
    return LocalizationScores(
        similarities, examples.phrases, proposals, photos=folder
    )


def draw(monkeypatch, examples, folder, similarities):
    drawn = []
    monkeypatch.setattr(
        pictures,
        "draw_side_by_side",
        lambda photo, truth, found: drawn.append((photo.size, truth, found)),
    )
    similarities = np.tile(similarities, (24, 1))
    return scores_of(examples, folder, similarities).pictures(), drawn


@pytest.mark.parametrize("best, is_right", [(0, True), (1, False)])
def test_the_best_region_is_right_or_wrong(
    monkeypatch, examples, tmp_path, best, is_right
):
    similarities = np.eye(3)[best]
    similarities[2] = 9  # Beyond the regions of the photo.
    found, drawn = draw(monkeypatch, examples, tmp_path, similarities)
    assert list(found) == ["1", "2", "3", "4", "5"]
    size, truth, chosen = drawn[1]
    assert [one.phrase for one in truth] == ["phrase 4", "phrase 6", "phrase 7"]
    assert [one.colour for one in chosen] == [0, 1, 2]
    # IoU 80 / 100, or 0.
    assert [one.is_right for one in chosen] == [is_right] * 3
    assert chosen[0].box.tolist() == PROPOSALS[best].tolist()
    assert truth[0].box.tolist() == [0, 0, 10, 8] and truth[0].is_right is None
    # The first photo is twice as large as that of the regions.
    assert drawn[0][0] == (200, 100)
    assert drawn[0][1][0].box.tolist() == [0, 0, 20, 16]


def test_a_photo_may_be_gone_or_without_regions(
    monkeypatch, examples, tmp_path
):
    (tmp_path / "1.png").unlink()
    monkeypatch.setattr(f"{__name__}.PROPOSALS", np.zeros((0, 4)))
    found, drawn = draw(monkeypatch, examples, tmp_path, np.eye(3)[0])
    assert list(found) == ["1", "3", "4", "5"]
    assert drawn[0][2] == [] and len(drawn[0][1]) == 3


def test_without_photos_nothing_is_drawn(examples):
    assert scores_of(examples, None, None).pictures() == {}
