"""Tests of pictures of phrases, with their true and their chosen boxes."""

import numpy as np
import PIL.Image
import pytest

from tbnets.evaluation.grounding import PhraseTable
from tbnets.visualization import boxes as pictures

NUM_PHOTOS = 7
PROPOSALS = np.array([[0, 0, 10, 10], [20, 0, 40, 20]], "float32")
PHOTOS = np.repeat([0, 1, 2, 4, 5, 6], 4)
"""Photo of each phrase: photo 3 has none, other photos have four."""


def phrase_table(similarities, proposals=PROPOSALS):
    """Four phrases of three objects in each photo but the fourth."""
    return PhraseTable(
        np.tile(similarities, (len(PHOTOS), 1)),
        [proposals] * NUM_PHOTOS,
        [f"phrase {row}" for row in range(len(PHOTOS))],
        np.tile([[0, 0, 10, 8.0]], (len(PHOTOS), 1)),
        PHOTOS,
        10 * PHOTOS + np.tile([3, 3, 1, 2], 6),
    )


@pytest.fixture
def draw(tmp_path, monkeypatch):
    """Returns a function that draws a table, and what it passes on."""
    for row in range(NUM_PHOTOS):
        size = (100, 50) if row else (200, 100)  # The first is larger on disk.
        PIL.Image.new("RGB", size).save(tmp_path / f"{row}.png")
    drawn = []
    monkeypatch.setattr(
        pictures,
        "draw_side_by_side",
        lambda photo, truth, found: drawn.append((photo.size, truth, found)),
    )
    names = [f"{row}.png" for row in range(NUM_PHOTOS)]
    sizes = np.tile([[100, 50]], (NUM_PHOTOS, 1))

    def draw_table(table):
        return pictures.draw_phrases(table, tmp_path, names, sizes), drawn

    return draw_table


def test_pictures_show_spread_photos_and_different_objects(draw):
    found, drawn = draw(phrase_table(np.eye(3)[0]))
    assert list(found) == [f"phrases_{number}" for number in range(1, 6)]
    # Of photos 0 1 2 4 5 6, numbers 0, 6 // 5, 12 // 5, 18 // 5 and 24 // 5.
    # Of phrases 0 to 3, the second names the first one's object.
    expected = [[0, 2, 3], [4, 6, 7], [8, 10, 11], [12, 14, 15], [16, 18, 19]]
    for (_, truth, _), rows in zip(drawn, expected, strict=True):
        assert [each.phrase for each in truth] == [f"phrase {x}" for x in rows]


@pytest.mark.parametrize("best, is_right", [(0, True), (1, False)])
def test_the_most_similar_box_is_marked_right_or_wrong(draw, best, is_right):
    similarities = np.eye(3)[best]
    similarities[2] = 9  # Padding.
    _, drawn = draw(phrase_table(similarities))
    _, truth, chosen = drawn[1]
    assert [each.colour for each in chosen] == [0, 1, 2]
    # IoU 80 / 100, or 0.
    assert [each.is_right for each in chosen] == [is_right] * 3
    assert chosen[0].box.tolist() == PROPOSALS[best].tolist()
    assert truth[0].box.tolist() == [0, 0, 10, 8] and truth[0].is_right is None
    # The first photo is twice as large as the boxes assume.
    assert drawn[0][0] == (200, 100)
    assert drawn[0][1][0].box.tolist() == [0, 0, 20, 16]


def test_missing_photos_and_photos_without_candidates(draw, tmp_path):
    (tmp_path / "1.png").unlink()
    found, drawn = draw(phrase_table(np.eye(3)[0], np.zeros((0, 4))))
    assert list(found) == [f"phrases_{number}" for number in (1, 3, 4, 5)]
    assert drawn[0][2] == [] and len(drawn[0][1]) == 3
