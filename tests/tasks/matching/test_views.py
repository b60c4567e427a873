"""Tests of what is drawn of a matching run's examples."""

import dataclasses

import numpy as np
import PIL.Image
import pytest

from tbnets.data.captions import CaptionedImages
from tbnets.tasks.retrieval_scores import RetrievalScores

NUM_IMAGES = 8


@pytest.fixture
def records(tmp_path):
    names = [f"{i}.png" for i in range(NUM_IMAGES)]
    for name in names:
        PIL.Image.new("RGB", (8, 8)).save(tmp_path / name)
    return CaptionedImages(
        image_ids=names,
        captions=[f"caption {i}" for i in range(2 * NUM_IMAGES)],
        caption_to_image=np.repeat(np.arange(NUM_IMAGES), 2),
        split="dev",
        path="captions",
    )


@pytest.mark.parametrize("with_photos", [True, False])
def test_points_are_images_then_captions(records, tmp_path, with_photos):
    images = np.eye(NUM_IMAGES, dtype="float32")
    texts = images[records.caption_to_image]
    folder = tmp_path if with_photos else None
    scores = RetrievalScores(images, texts, records, photos=folder)
    points = scores.points((8, 2))
    np.testing.assert_array_equal(
        points.vectors,
        np.concatenate(list(scores.sides.values())),
    )
    rows = list(zip(*points.columns.values()))
    assert len(rows) == 8 + 16
    # An image carries its first caption, a caption its image.
    assert rows[3] == ("caption 6", "image", "3.png")
    assert rows[8 + 7] == ("caption 7", "caption", "3.png")
    assert (points.thumbnails is not None) == with_photos
    if with_photos:
        assert points.thumbnails.shape == (24, 64, 64, 3)


def test_photo_of_the_same_person_is_a_correct_answer():
    # The embeddings exchange the images 0 and 2 of one person.
    ids, rows = ("a", "b", "c"), np.eye(3, dtype="float32")
    records = CaptionedImages(
        ids, [*"xyz"], np.arange(3), "dev", "", identities=("7", "3", "7")
    )
    for identities, hits in ((records.identities, 3), ((), 1)):
        some = dataclasses.replace(records, identities=identities)
        scores = RetrievalScores(rows, rows[[2, 1, 0]], some)
        distances = dataclasses.replace(scores, pairs=scores._as_pairs)
        for each in (scores, distances):
            metrics = each.metrics()
            assert metrics["text_to_image/recall_at_1"] == hits / 3
            assert metrics["image_to_text/recall_at_1"] == hits / 3
    arrays = RetrievalScores(rows, rows, records).arrays
    assert arrays["positives"].tolist() == [
        *([0, 0], [0, 2]),
        [1, 1],
        *([2, 0], [2, 2]),
    ]
