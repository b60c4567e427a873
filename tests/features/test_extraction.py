"""Tests of extractions into stores: of photos, of regions and of proposals."""

import threading

import numpy as np
import PIL.Image
import pytest
import tensorflow as tf

from tbnets.data import images
from tbnets.data.images import read_photo
from tbnets.data.pictures import CHANGED
from tbnets.data.store.reader import open_store
from tbnets.data.store.writer import FeatureWriter
from tbnets.errors import InputError
from tbnets.features import extraction
from tbnets.features.photo_features import PhotoFeatures
from tbnets.features.proposals import Proposer
from tbnets.features.regions import AveragedFeatures
from tests import refusals
from tests.features.test_photo_features import photo, vector
from tests.features.test_regions import two_depths
from tests.features.tiny_cnn import tiny_cnn

COUNT = 10
CONTENT = [tf.TensorSpec([], tf.string)]


@pytest.fixture(scope="module", autouse=True)
def decoders_traced_once():
    """Traces the decoder of photos once for all extractions of regions."""
    decode = images.decode_photo
    traced = tf.function(lambda content: decode(content), CONTENT)

    def decode_photo(content, side=None):
        return decode(content, side) if side else traced(content)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(images, "decode_photo", decode_photo)
        yield


class WholePhotos:
    """Extracts the features of photos."""

    def __init__(self):
        self.features = PhotoFeatures(tiny_cnn(), ["full_network"])
        self.features.decode = tf.function(self.features.decode, CONTENT)
        self.store = self.features.description(), self.features.dim

    def extract(self, photos, writer, **options):
        return extraction.extract_photos(
            photos, self.features, writer, batch_size=2, **options
        )

    def assert_row(self, store, row, path):
        expected = vector(self.features, path.read_bytes())
        np.testing.assert_allclose(
            store.take([row])[0], expected, rtol=1e-4, atol=1e-6
        )


class Regions:
    """Extracts the features of up to two boxes a photo."""

    def __init__(self):
        self.extractor = AveragedFeatures(two_depths(), ["last", "early"])
        made_by, dim = self.extractor.description(), self.extractor.dim
        self.store = made_by, dim, "float16", "regions"

    def extract(self, photos, writer, proposals=None, **options):
        proposals = proposals or write_boxes(
            photos[0][1].parent / "boxes", photos
        )
        return extraction.extract_regions(
            photos, proposals, self.extractor, writer, **options
        )

    def assert_row(self, store, row, path):
        boxes = boxes_of(path)
        features, stored = store.regions(row)
        expected = self.extractor(read_photo(path), boxes).astype("float16")
        np.testing.assert_array_equal(features, expected)
        np.testing.assert_array_equal(stored, boxes)
        assert store.boxes(row)[1].tolist() == [0.5, 1.5][: len(boxes)]
        assert store.sizes[row].tolist() == size_of(path)


class Proposals:
    """Writes what is proposed for photos."""

    def __init__(self):
        pytest.importorskip("cv2", reason="needs the extra: tbnets[regions]")
        self.proposer = Proposer(limit=9)
        self.store = self.proposer.description(), 0, "float32", "regions"

    def extract(self, photos, writer, workers=2, **options):
        return extraction.propose_photos(
            photos, self.proposer, writer, workers=workers, **options
        )

    def assert_row(self, store, row, path):
        found, expected = store.boxes(row), self.proposer(read_photo(path))
        for one, other in zip(found, expected, strict=True):
            np.testing.assert_array_equal(one, other)
        assert store.sizes[row].tolist() == size_of(path)


def boxes_of(path):
    """Returns no box, one or two for a photo."""
    boxes = [[0, 0, 20, 20], [3, 4, 10, 9]]
    return np.reshape(boxes[: int(path.stem) % 3], (-1, 4))


def size_of(path):
    return [20 + int(path.stem), 30]


def write_boxes(path, photos, higher=0, has_sizes=True, failed=None):
    """Writes the boxes of photos; a store that is there stays."""
    writer = FeatureWriter(path, {"by": "hand"}, 0, kind="regions")
    for key, file in photos:
        if key not in writer.done and key not in (failed or {}):
            boxes, (width, height) = boxes_of(file), size_of(file)
            sizes = [(width, height + higher)] if has_sizes else None
            scores = np.arange(len(boxes)) + 0.5
            given = [len(boxes)], scores
            writer.add([key], None, boxes, *given, sizes=sizes)
    writer.add([], None, failed=failed or {})
    writer.finish()
    return open_store(path)


@pytest.fixture(scope="module", params=[WholePhotos, Regions, Proposals])
def work(request):
    return request.param()


@pytest.fixture(scope="module")
def regions():
    return Regions()


@pytest.fixture
def photos(tmp_path):
    """Writes photos of some sizes, the last one of another kind."""
    (tmp_path / "photos").mkdir()
    found = []
    for i in range(COUNT):
        path = tmp_path / "photos" / f"{i}.jpg"
        path.write_bytes(photo(i, size=(30, 20 + i)))
        found.append((f"photo {i}", path))
    with PIL.Image.open(path) as last:
        last.save(path, "BMP")
    return found


def run(work, photos, path, **options):
    """Extracts photos, three at a time; returns those that failed."""
    with FeatureWriter(path, *work.store) as writer:
        failures = work.extract(photos, writer, write_every=3, **options)
        writer.finish()
    return failures


def content_of(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def assert_rows(work, store, photos):
    """Asserts that a store has what photos give, in their order."""
    assert store.ids == tuple(key for key, _ in photos)
    for row, (_, path) in enumerate(photos):
        work.assert_row(store, row, path)


class Killed(BaseException):
    """An error that no code catches."""


def test_resumed_extraction_with_broken_photos_writes_the_same_bytes(
    work, photos, tmp_path, monkeypatch
):
    mended = photos[1][1].read_bytes()
    photos[1][1].write_bytes(mended[:-700])
    for _, path in photos[3:6]:  # All that are written at once.
        path.write_bytes(b"no photo")
    photos[4][1].unlink()
    told, broken = [], [photos[i] for i in (1, 3, 4, 5)]
    good = [one for one in photos if one not in broken]
    straight, path = tmp_path / "straight", tmp_path / "killed"
    failures = run(work, photos, straight, progress=told.append)
    assert sum(told) == COUNT
    assert [path for path, _ in failures] == [path for _, path in broken]
    expected, append, calls = content_of(straight), FeatureWriter.append, []

    def killed(*arguments):
        append(*arguments)
        calls.append(arguments)
        if len(calls) == 2:
            raise Killed

    with monkeypatch.context() as patch, pytest.raises(Killed):
        patch.setattr(FeatureWriter, "append", killed)
        run(work, photos, path)
    told = []
    for some in (photos, good):  # Nothing is extracted twice.
        run(work, some, path, progress=told.append)
        assert sum(told) in (COUNT - 3, COUNT - 6)
        assert content_of(path) == expected
    store = open_store(path)
    assert store.failed == {
        key: why for (key, _), (_, why) in zip(broken, failures)
    }
    photos[1][1].write_bytes(mended)
    assert len(run(work, photos, path)) == 3
    store = open_store(path)
    assert_rows(work, store, [*good, photos[1]])
    assert len(store.failed) == 3


def test_photos_that_change_while_they_are_read_are_left_for_the_next_run(
    work, photos, tmp_path
):
    changing = [photos[1], *photos[3:6]]
    paths = [path for _, path in changing]
    failures = run(
        work, photos, tmp_path / "s", has_changed=lambda path: path in paths
    )
    assert failures == [(path, CHANGED) for path in paths]
    store = open_store(tmp_path / "s")
    assert store.failed == {key: CHANGED for key, _ in changing}
    good = [one for one in photos if one not in changing]
    assert_rows(work, store, good)
    assert run(work, photos, tmp_path / "s") == []
    assert_rows(work, open_store(tmp_path / "s"), [*good, *changing])


def test_proposals_do_not_depend_on_the_number_of_workers(photos, tmp_path):
    cv2 = pytest.importorskip("cv2", reason="needs the extra: tbnets[regions]")
    work = Proposals()
    cv2.setNumThreads(2)  # Another run may have left one.
    threads = threading.active_count()
    for workers in (1, 4):
        run(work, photos, tmp_path / str(workers), workers=workers)
        assert cv2.getNumThreads() == 2
        assert threading.active_count() == threads
    assert content_of(tmp_path / "1") == content_of(tmp_path / "4")
    assert run(work, [], tmp_path / "none") == []
    assert len(open_store(tmp_path / "none")) == 0


def test_proposals_of_other_photos_are_refused(photos, regions, tmp_path):
    proposals = write_boxes(tmp_path / "boxes", photos, higher=1)
    with refusals.refused("proposals") as error:
        run(regions, photos, tmp_path / "s", proposals=proposals)
    assert "'photo 0'" in error.value.fields[2]
    others = [(f"photos/{key}", path) for key, path in photos]
    with refusals.refused("image_ids"):
        run(regions, others, tmp_path / "s", proposals=proposals)
    unknown = write_boxes(tmp_path / "unknown", photos, has_sizes=False)
    assert run(regions, photos, tmp_path / "s", proposals=unknown) == []


def test_photos_without_proposals_are_noted(photos, regions, tmp_path):
    failed = {key: "was empty" for key, _ in photos[4:5]}
    proposals = write_boxes(tmp_path / "boxes", photos[:5], failed=failed)
    told, options = [], {"proposals": proposals}
    options["progress"] = told.append
    failures = run(regions, photos, tmp_path / "s", **options)
    assert sum(told) == COUNT
    assert [path for path, _ in failures] == [path for _, path in photos[4:]]
    reasons = ["was empty" in why for _, why in failures]
    assert reasons == [True] + [False] * (COUNT - 5)
    store = open_store(tmp_path / "s")
    assert_rows(regions, store, photos[:4])
    # Who reads the features of such a photo is told why there are none.
    with pytest.raises(InputError, match="'photo 5': has no proposals"):
        store.rows(["photo 5"])
    # Once there are proposals, the same extraction goes on.
    assert run(regions, photos, tmp_path / "s") == []
    assert_rows(regions, open_store(tmp_path / "s"), photos)
