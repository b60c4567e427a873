"""Tests of the embeddings of a folder of photos, and of their cache."""

import functools
import os
import threading

import numpy as np
import PIL.Image
import pytest

from tbnets.data import archives
from tbnets.data.pictures import BrokenImageError, read_square
from tbnets.data.store.writer import FeatureWriter
from tbnets.features import cache
from tbnets.serving import embedding_cache
from tbnets.serving.checksums import identity_of
from tests import photo_files
from tests.refusals import refused

COLOURS = {"a.png": (255, 0, 0), "b.png": (0, 255, 0), "c.png": (0, 0, 255)}


class MeanColour:
    """Embeds photos by their mean colour, and counts them.

    Args:
        path: folder whose files are its own.
        stop_after: photos after which it fails; None for never.
    """

    embedding_dim = 3
    signatures = ("embed_image",)

    def __init__(self, path, stop_after=None):
        (path / "variables").mkdir(parents=True, exist_ok=True)
        (path / "saved_model.pb").write_bytes(b"graph")
        self.path = path
        self.count = 0
        self._stop_after = stop_after
        self._lock = threading.Lock()

    def try_images(self, contents):
        reasons = [""] * len(contents)
        rows = np.zeros((len(contents), 3), np.float32)
        for place, content in enumerate(contents):
            try:
                pixels = read_square(content, 2)
                rows[place] = pixels.mean((0, 1), np.float32) / 255
            except BrokenImageError as error:
                reasons[place] = error.reason
        with self._lock:
            self.count += reasons.count("")
        if self._stop_after is not None and self.count > self._stop_after:
            raise KeyboardInterrupt
        return rows, reasons


@pytest.fixture
def model(tmp_path):
    return MeanColour(tmp_path / "model")


@pytest.fixture
def photos(tmp_path):
    folder = tmp_path / "photos"
    folder.mkdir()
    for name, colour in COLOURS.items():
        draw(folder / name, colour)
    return folder


def draw(path, colour):
    PIL.Image.new("RGB", (2, 2), colour).save(path)


def stores_of(folder):
    """Returns the folders of the stores in a cache."""
    return sorted(folder.glob("embeddings-*"))


def assert_found(found, colours):
    """The photos are there, in order, with their mean colours."""
    ids, embeddings = found
    assert ids == list(colours)
    wanted = np.array(list(colours.values()), np.float32) / 255
    np.testing.assert_array_equal(embeddings, wanted)
    assert embeddings.dtype == np.float32


def embed(model, folder, place=None, **options):
    """Returns what is found, and how many photos were embedded for it."""
    before = model.count
    found = embedding_cache.embed_folder(model, folder, place, **options)
    return found, model.count - before


def test_second_search_embeds_nothing(model, photos, tmp_path):
    photos.chmod(0o700)
    found, count = embed(model, photos)
    assert_found(found, COLOURS)
    assert count == 3
    cache = tmp_path / "photos.tbnets"
    (store,) = stores_of(cache)
    # Embeddings of private photos are private.
    assert cache.stat().st_mode & 0o7777 == 0o700
    again, count = embed(MeanColour(model.path), photos)
    assert_found(again, COLOURS)
    assert count == 0
    assert stores_of(cache) == [store]
    # Nothing is written among the user's own files.
    assert sorted(os.listdir(photos)) == sorted(COLOURS)


def test_only_new_and_changed_photos_are_embedded(model, photos):
    embed(model, photos)
    (photos / "sub").mkdir()
    draw(photos / "sub" / "d.png", (255, 255, 0))
    draw(photos / "b.png", (255, 255, 255))
    (photos / "c.png").rename(photos / "renamed.png")
    (photos / "a.png").rename(photos / "sub" / "moved.png")
    colours = {
        "b.png": (255, 255, 255),
        "renamed.png": (0, 0, 255),
        "sub/d.png": (255, 255, 0),
        "sub/moved.png": (255, 0, 0),
    }
    found, count = embed(model, photos)
    assert_found(found, colours)
    assert count == 2
    # A touched photo is read again, but its content is known.
    os.utime(photos / "renamed.png", ns=(0, 12345))
    assert embed(model, photos)[1] == 0


def test_embeddings_of_a_model_on_a_server_are_not_saved(
    model, photos, tmp_path
):
    model.path = "http://localhost:8501/colours"
    with refused("model"):
        identity_of(model)
    assert embed(model, photos)[1] == embed(model, photos)[1] == 3
    assert not (tmp_path / "photos.tbnets").exists()


def test_broken_photos_are_reported_each_time_but_read_once(
    model, photos, tmp_path, capsys, monkeypatch
):
    (photos / "empty.jpg").write_bytes(b"")
    (photos / "gone.jpg").symlink_to(tmp_path / "nowhere")
    for path in photos.glob("[!g]*"):
        os.utime(path, (1e9, 1e9))
    names, is_file = [], archives.is_file

    def counted(photo):
        names.append(photo.name)
        return is_file(photo)

    monkeypatch.setattr(archives, "is_file", counted)
    reports = []
    for _ in range(2):
        assert_found(embed(model, photos)[0], COLOURS)
        reports.append(capsys.readouterr().err)
        names.append("again")
    assert reports[0] == reports[1]
    left_out = photo_files.reasons(reports[0].splitlines(), photos)
    assert [*left_out] == ["empty.jpg", "gone.jpg"]
    # A missing photo may be added later, so its absence is not cached.
    assert names[names.index("again") + 1 :] == ["gone.jpg", "again"]
    draw(photos / "empty.jpg", (9, 9, 9))
    found, count = embed(model, photos)
    assert_found(found, {**COLOURS, "empty.jpg": (9, 9, 9)})
    assert count == 1


def test_names_that_are_not_text_are_cached(model, photos, capsys):
    name = os.fsdecode(b"b\xfft.png")
    (photos / "x\n\x1b[2J.jpg").write_bytes(b"")
    try:
        draw(photos / name, (1, 2, 3))
    except OSError:
        pytest.skip("this file system has only names that are text")
    colours = {**COLOURS, name: (1, 2, 3)}
    colours = {key: colours[key] for key in sorted(colours)}
    for count in (4, 0):
        found = embed(model, photos)
        assert_found(found[0], colours)
        assert found[1] == count
        report = capsys.readouterr().err
        assert "x\ufffd\ufffd[2J.jpg" in report
        assert "\x1b" not in report


def test_interrupted_search_keeps_its_embeddings(model, photos, monkeypatch):
    monkeypatch.setattr(embedding_cache, "AT_ONCE", 1)
    monkeypatch.setattr(embedding_cache, "PHOTO_BATCH_SIZE", 1)
    stopped = MeanColour(model.path, stop_after=2)
    with pytest.raises(KeyboardInterrupt):
        embedding_cache.embed_folder(stopped, photos)
    found, count = embed(model, photos)
    assert_found(found, COLOURS)
    assert count == 1


def test_an_embedding_is_saved_only_for_the_content_that_was_read(
    model, photos, monkeypatch
):
    read = cache.FileKeys.read

    def read_before_a_change(self, paths):
        keys, reasons = read(self, paths)
        return keys | {"a.png": "0" * 64}, reasons

    monkeypatch.setattr(cache.FileKeys, "read", read_before_a_change)
    others = {name: COLOURS[name] for name in ("b.png", "c.png")}
    assert_found(embed(model, photos)[0], others)
    monkeypatch.undo()
    assert_found(embed(model, photos)[0], COLOURS)


def test_each_model_has_its_own_embeddings(model, photos, tmp_path):
    embed(model, photos)
    other = MeanColour(tmp_path / "other")
    (other.path / "variables" / "variables.index").write_bytes(b"weights")
    assert embed(other, photos)[1] == 3
    assert len(stores_of(tmp_path / "photos.tbnets")) == 2
    # A copy under another name is the same model; its notes do not count.
    copy = MeanColour(tmp_path / "copy")
    (copy.path / "assets.extra").mkdir()
    (copy.path / "assets.extra" / "tbnets.json").write_text("{}")
    assert embed(copy, photos)[1] == 0


def test_a_photo_whose_embedding_is_not_finite_is_left_out(
    model, photos, monkeypatch, capsys
):
    rows = np.eye(3, dtype=np.float32)
    rows[1, 0] = np.nan
    monkeypatch.setattr(model, "try_images", lambda _: (rows, [""] * 3))
    ids, embeddings = embedding_cache.embed_folder(model, photos)
    assert ids == ["a.png", "c.png"]
    assert embeddings.tolist() == [[1, 0, 0], [0, 0, 1]]
    assert "b.png, which has an embedding" in capsys.readouterr().err
    monkeypatch.undo()  # It is tried again.
    assert embed(model, photos)[1] == 1


def test_full_disk_is_reported_once(
    model, photos, tmp_path, capsys, monkeypatch
):
    monkeypatch.setattr(embedding_cache, "PHOTO_BATCH_SIZE", 1)
    write = functools.partial(cache.write_results, write_every=1)
    monkeypatch.setattr(cache, "write_results", write)
    add, calls = FeatureWriter.add, []

    def fill(writer, *arguments, **options):
        calls.append(arguments)
        if len(calls) > 1 and tmp_path in writer.path.parents:
            raise OSError(28, "No space left on device")
        add(writer, *arguments, **options)

    monkeypatch.setattr(FeatureWriter, "add", fill)
    assert_found(embed(model, photos)[0], COLOURS)
    assert capsys.readouterr().err.count("\n") == 1
    monkeypatch.undo()
    assert embed(model, photos)[1] == 2
