"""Tests of extracting regions into a store."""

import numpy as np
import PIL.Image
import pytest

from tbnets.data.images import read_photo
from tbnets.data.store.shards import open_store
from tbnets.data.store.writer import FeatureWriter
from tbnets.features.extraction import extract_regions
from tbnets.features.regions import AveragedFeatures
from tests.features.test_averaged_regions import two_depths
from tests.features.test_photo_features import photo

BOXES = {
    "a": [[0, 0, 30, 40], [3, 4, 10, 9]],
    "b": [],
    "c": [[1, 1, 2, 2]],
    "d": [[0, 0, 20, 20], [5, 5, 30, 40]],
}


@pytest.fixture(scope="module")
def extractor():
    return AveragedFeatures(two_depths(), ["last", "early"])


@pytest.fixture
def photos(tmp_path):
    """Writes four photos of 30 x 40 pixels; `(id, path)` of each."""
    found = [(key, tmp_path / f"{key}.jpg") for key in BOXES]
    for seed, (_, path) in enumerate(found):
        path.write_bytes(photo(seed))
    with PIL.Image.open(found[3][1]) as last:  # Of another kind.
        last.save(found[3][1], "BMP")
    return found


def write_proposals(path, size=(30, 40)):
    writer = FeatureWriter(path, {"by": "hand"}, 0, kind="regions")
    for key, boxes in BOXES.items():
        scores = np.arange(len(boxes)) + 0.5
        boxes = np.reshape(boxes, (-1, 4))
        sizes = None if size is None else [size]
        count = [len(boxes)]
        writer.add_shard([key], None, boxes, count, scores, sizes=sizes)
    writer.finish()
    return open_store(path)


def new_writer(path, extractor):
    made_by = extractor.description()
    return FeatureWriter(path, made_by, extractor.dim, "float16", "regions")


def test_store_has_features_boxes_scores_and_sizes(photos, extractor, tmp_path):
    proposals = write_proposals(tmp_path / "boxes")
    writer = new_writer(tmp_path / "s", extractor)
    steps = []
    failures = extract_regions(
        photos, proposals, extractor, writer, progress=steps.append
    )
    writer.finish()
    store = open_store(tmp_path / "s")
    assert failures == [] and sum(steps) == 4
    assert store.ids == tuple("abcd")
    assert store.counts.tolist() == [2, 0, 1, 2]
    assert store.sizes.tolist() == [[30, 40]] * 4
    for row, (key, path) in enumerate(photos):
        boxes = np.reshape(BOXES[key], (-1, 4))
        features, stored = store.regions(row)
        expected = extractor(read_photo(path), boxes).astype(np.float16)
        np.testing.assert_array_equal(features, expected)
        np.testing.assert_array_equal(stored, boxes)
        assert store.boxes(row)[1].tolist() == [0.5, 1.5][: len(boxes)]


def test_stopped_and_gone_on_it_is_the_same_bytes(photos, extractor, tmp_path):
    proposals = write_proposals(tmp_path / "boxes")
    straight = new_writer(tmp_path / "straight", extractor)
    extract_regions(photos, proposals, extractor, straight, shard_images=2)
    straight.finish()

    def stop(_):
        stop.count += 1
        if stop.count == 3:
            raise KeyboardInterrupt

    stop.count = 0
    writer = new_writer(tmp_path / "s", extractor)
    with pytest.raises(KeyboardInterrupt):
        extract_regions(
            photos,
            proposals,
            extractor,
            writer,
            shard_images=2,
            progress=stop,
        )
    writer = new_writer(tmp_path / "s", extractor)
    assert writer.done == {"a", "b"}
    extract_regions(photos, proposals, extractor, writer, shard_images=2)
    writer.finish()
    for path in (tmp_path / "straight").iterdir():
        assert (tmp_path / "s" / path.name).read_bytes() == path.read_bytes()


def test_photo_that_does_not_decode_is_noted(photos, extractor, tmp_path):
    proposals = write_proposals(tmp_path / "boxes")
    content = photos[1][1].read_bytes()
    photos[1][1].write_bytes(content[:200])
    writer = new_writer(tmp_path / "s", extractor)
    [(path, reason)] = extract_regions(photos, proposals, extractor, writer)
    assert path == photos[1][1] and "does not decode" in reason
    assert writer.done == set("acd") and list(writer.failed) == ["b"]
    photos[1][1].write_bytes(content)
    assert extract_regions(photos, proposals, extractor, writer) == []
    assert writer.done == set("abcd") and writer.failed == {}


def test_photo_of_another_size_is_named(photos, extractor, tmp_path):
    proposals = write_proposals(tmp_path / "boxes", size=(30, 41))
    writer = new_writer(tmp_path / "s", extractor)
    with pytest.raises(ValueError, match="'a' has 30 x 41 .* of 30 x 40"):
        extract_regions(photos, proposals, extractor, writer)
    unknown = write_proposals(tmp_path / "unknown", size=None)
    assert extract_regions(photos, unknown, extractor, writer) == []


def test_photos_without_proposals_are_noted(photos, extractor, tmp_path):
    writer = FeatureWriter(tmp_path / "boxes", {}, 0, kind="regions")
    boxes = {"counts": [1, 0], "scores": [0.5], "sizes": [(30, 40)] * 2}
    writer.add_shard(
        ["a", "c"], None, [[0, 0, 5, 5]], failed={"d": "was empty"}, **boxes
    )
    writer.finish()
    proposals = open_store(tmp_path / "boxes")
    writer, steps = new_writer(tmp_path / "s", extractor), []
    failures = extract_regions(
        photos,
        proposals,
        extractor,
        writer,
        shard_images=1,
        progress=steps.append,
    )
    writer.finish()
    assert sum(steps) == 4
    assert dict(failures) == {
        photos[1][1]: "has no proposals",
        photos[3][1]: "has no proposals, where it was empty",
    }
    store = open_store(tmp_path / "s")
    assert store.ids == ("a", "c") and store.counts.tolist() == [1, 0]
    # Who reads the features of such a photo is told why there are none.
    with pytest.raises(ValueError, match="first 'b': has no proposals"):
        store.rows(["a", "b"])
    # Once there are proposals, the same extraction goes on.
    writer = new_writer(tmp_path / "s", extractor)
    proposals = write_proposals(tmp_path / "all")
    assert extract_regions(photos, proposals, extractor, writer) == []
    assert writer.done == set("abcd") and writer.failed == {}


def test_proposals_of_other_photos_are_refused(photos, extractor, tmp_path):
    proposals = write_proposals(tmp_path / "boxes")
    writer = new_writer(tmp_path / "s", extractor)
    others = [(f"photos/{key}", path) for key, path in photos]
    with pytest.raises(ValueError, match="4 of 4 missing .*first 'photos/a'"):
        extract_regions(others, proposals, extractor, writer)
