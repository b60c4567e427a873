"""Tests of what is kept of a folder of photos between two searches."""

import os
import sys
import threading
import time

import numpy as np
import PIL.Image
import pytest

from tbnets.data.pictures import read_square
from tbnets.data.store import npy
from tbnets.errors import InputError
from tbnets.serving import embedding_cache
from tbnets.serving.identity import identity_of
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

    def __init__(self, path, stop_after=None):
        (path / "variables").mkdir(parents=True, exist_ok=True)
        (path / "saved_model.pb").write_bytes(b"graph")
        self.path = path
        self.count = 0
        self._stop_after = stop_after
        self._lock = threading.Lock()

    def try_images(self, contents):
        squares = [read_square(content, 2) for content in contents]
        reasons = [reason for _, reason in squares]
        rows = np.zeros((len(contents), 3), np.float32)
        for row, (pixels, reason) in zip(rows, squares):
            if not reason:
                row[:] = pixels.mean((0, 1), np.float32) / 255
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


def kept_in(folder):
    """Returns the files of the cache."""
    return sorted((folder / "embeddings").rglob(f"*{embedding_cache.SUFFIX}"))


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


def test_the_second_time_nothing_is_embedded(model, photos, tmp_path):
    photos.chmod(0o700)
    found, count = embed(model, photos)
    assert_found(found, COLOURS)
    assert count == 3
    (path,) = kept_in(tmp_path / "photos.tbnets")
    # Embeddings of private photos are private.
    assert (tmp_path / "photos.tbnets").stat().st_mode & 0o7777 == 0o700
    again, count = embed(MeanColour(model.path), photos)
    assert_found(again, COLOURS)
    assert count == 0
    assert kept_in(tmp_path / "photos.tbnets") == [path]
    # Nothing is written among the user's own files.
    assert sorted(os.listdir(photos)) == sorted(COLOURS)


def test_two_batches_are_in_work_at_once(model, photos, monkeypatch):
    draw(photos / "d.png", (9, 9, 9))
    both = threading.Barrier(2, timeout=60)
    try_images = model.try_images
    model.try_images = lambda some: both.wait() >= 0 and try_images(some)
    found, count = embed(model, photos, batch_size=1)
    assert_found(found, {**COLOURS, "d.png": (9, 9, 9)})
    assert count == 4


def test_new_changed_and_removed_photos(model, photos, tmp_path):
    embed(model, photos)
    (photos / "sub").mkdir()
    draw(photos / "sub" / "d.png", (255, 255, 0))
    draw(photos / "b.png", (255, 255, 255))
    (photos / "a.png").unlink()
    colours = {
        "b.png": (255, 255, 255),
        "c.png": (0, 0, 255),
        "sub/d.png": (255, 255, 0),
    }
    found, count = embed(model, photos)
    assert_found(found, colours)
    assert count == 2
    # One file is left, and what was removed is not in it.
    (path,) = kept_in(tmp_path / "photos.tbnets")
    entries = embedding_cache.read_entries(path, identity_of(model))
    assert entries.keys() == colours.keys()
    # Touched alone, a photo counts as changed.
    os.utime(photos / "c.png", ns=(0, 12345))
    assert embed(model, photos)[1] == 1


def test_no_files_tell_a_model_on_a_server(model):
    model.path = "http://localhost:8501/colours"
    with pytest.raises(InputError, match=model.path):
        identity_of(model)


def test_broken_photos_are_told_each_time_but_read_once(
    model, photos, tmp_path, capsys, monkeypatch
):
    (photos / "empty.jpg").write_bytes(b"")
    (photos / "gone.jpg").symlink_to(tmp_path / "nowhere")
    read = []
    read_content = embedding_cache.pictures.read_content

    def counted(photo):
        if not isinstance(photo, bytes):
            read.append(photo.name)
        return read_content(photo)

    monkeypatch.setattr(embedding_cache.pictures, "read_content", counted)
    told = []
    for _ in range(2):
        assert_found(embed(model, photos)[0], COLOURS)
        told.append(capsys.readouterr().err)
    assert told[0] == told[1]
    left_out = photo_files.reasons(told[0].splitlines(), photos)
    assert [*left_out] == ["empty.jpg", "gone.jpg"]
    # A missing photo may be added later, so its absence is not cached.
    assert read == [*COLOURS, "empty.jpg", "gone.jpg", "gone.jpg"]
    draw(photos / "empty.jpg", (9, 9, 9))
    found, count = embed(model, photos)
    assert_found(found, {**COLOURS, "empty.jpg": (9, 9, 9)})
    assert count == 1


def test_what_no_one_reads_is_read_once_until_someone_does(
    model, photos, monkeypatch, capsys
):
    monkeypatch.setitem(sys.modules, "pillow_heif", None)
    monkeypatch.delitem(PIL.Image.OPEN, "HEIF", raising=False)
    (photos / "d.heic").write_bytes(b"\0\0\0\x18ftypheic" + bytes(40))
    (photos / "e.jpg").write_bytes(b"%PDF-1.4")
    for _ in range(2):
        assert_found(embed(model, photos)[0], COLOURS)
        assert "d.heic" in capsys.readouterr().err
        # All is known by now.
        monkeypatch.setattr(embedding_cache, "_embed", None)
    monkeypatch.undo()
    asked = []
    try_images = model.try_images
    model.try_images = lambda some: asked.append(len(some)) or try_images(some)
    PIL.Image.init()
    monkeypatch.setitem(PIL.Image.OPEN, "HEIF", PIL.Image.OPEN["BMP"])
    assert_found(embed(model, photos)[0], COLOURS)
    assert "d.heic" in capsys.readouterr().err
    assert asked == [1]


def test_no_photo_at_all(model, tmp_path):
    with refused("images"):
        embedding_cache.embed_folder(model, tmp_path)
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "text.jpg").write_bytes(b"text")
    for _ in range(2):
        with refused("images"):
            embedding_cache.embed_folder(model, tmp_path / "sub")
    assert model.count == 0


def test_links_in_a_circle_do_not_hang(model, photos):
    (photos / "sub").mkdir()
    (photos / "sub" / "up").symlink_to(photos)
    (photos / "self.png").symlink_to(photos / "self.png")
    assert_found(embed(model, photos)[0], COLOURS)


def test_names_that_are_no_text(model, photos, capsys):
    name = os.fsdecode(b"b\xfft.png")
    (photos / "x\n\x1b[2J.jpg").write_bytes(b"")
    try:
        draw(photos / name, (1, 2, 3))
    except OSError:
        pytest.skip("this file system has only names that are text")
    colours = {**COLOURS, name: (1, 2, 3)}
    colours = {key: colours[key] for key in sorted(colours)}
    for _ in range(2):
        assert_found(embed(model, photos)[0], colours)
        told = capsys.readouterr().err
        assert "x\ufffd\ufffd[2J.jpg" in told
        assert "\x1b" not in told


def test_ctrl_c_keeps_what_was_embedded(model, photos, monkeypatch):
    monkeypatch.setattr(embedding_cache, "AT_ONCE", 1)
    stopped = MeanColour(model.path, stop_after=2)
    with pytest.raises(KeyboardInterrupt):
        embedding_cache.embed_folder(stopped, photos, batch_size=1)
    found, count = embed(model, photos, batch_size=1)
    assert_found(found, COLOURS)
    assert count == 1


def test_embeddings_are_written_while_others_are_computed(
    model, photos, tmp_path, monkeypatch
):
    monkeypatch.setattr(embedding_cache, "PHOTOS_PER_FILE", 1)
    monkeypatch.setattr(embedding_cache, "AT_ONCE", 1)
    try_images, place = model.try_images, tmp_path / "photos.tbnets"

    def wait_for_files(contents):
        end = time.monotonic() + 60
        while len(kept_in(place)) < model.count and time.monotonic() < end:
            time.sleep(0.01)
        assert len(kept_in(place)) == model.count
        return try_images(contents)

    monkeypatch.setattr(model, "try_images", wait_for_files)
    embedding_cache.embed_folder(model, photos, batch_size=1)
    assert model.count == 3


def test_each_model_has_its_own(model, photos, tmp_path):
    embed(model, photos)
    other = MeanColour(tmp_path / "other")
    (other.path / "variables" / "variables.index").write_bytes(b"weights")
    assert embed(other, photos)[1] == 3
    assert len(kept_in(tmp_path / "photos.tbnets")) == 2
    # A copy under another name is the same model; its notes do not count.
    copy = MeanColour(tmp_path / "copy")
    (copy.path / "assets.extra").mkdir()
    (copy.path / "assets.extra" / "tbnets.json").write_text("{}")
    assert embed(copy, photos)[1] == 0


def forge(path, model, /, dtype=np.float32, **changes):
    """Writes a cache file whose header has some changes."""
    header = {"photos": [["a.png", 1, 2]], "broken": []}
    header = identity_of(model) | header | changes
    npy.write_npz(path, header, {"rows": np.zeros((1, 3), dtype)})


def flip_a_bit(path, model):
    row = np.float32([0, 1, 0]).tobytes()
    path.write_bytes(path.read_bytes().replace(row, row[::-1]))


DAMAGES = {
    "a bit": flip_a_bit,
    "model": lambda path, model: forge(path, model, model="other"),
    "dtype": lambda path, model: forge(path, model, np.float64),
    "more": lambda path, model: forge(path, model, photos=[["a", 1, 2]] * 9),
    "list": lambda path, model: forge(path, model, photos=[1]),
    "broken": lambda path, model: forge(path, model, broken={"a": 1}),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_file_is_told_and_made_again(
    model, photos, tmp_path, capsys, damage
):
    embed(model, photos)
    (path,) = kept_in(tmp_path / "photos.tbnets")
    DAMAGES[damage](path, model)
    found, count = embed(model, photos)
    assert_found(found, COLOURS)
    assert count == 3
    told = capsys.readouterr().err
    assert str(path) in told and told.count("\n") == 1
    # The damaged file is gone.
    assert embed(model, photos)[1] == 0
    assert capsys.readouterr().err == ""
    assert path not in kept_in(tmp_path / "photos.tbnets")


def test_numbers_that_are_none_are_not_kept(model, photos, monkeypatch):
    nan = np.full((3, 3), np.nan, np.float32), [""] * 3
    monkeypatch.setattr(model, "try_images", lambda contents: nan)
    with pytest.raises(InputError, match="a.png"):
        embedding_cache.embed_folder(model, photos)
    monkeypatch.undo()
    assert embed(model, photos)[1] == 3


def test_a_full_disk_in_the_middle(
    model, photos, tmp_path, capsys, monkeypatch
):
    monkeypatch.setattr(embedding_cache, "PHOTOS_PER_FILE", 1)
    write = npy.write_npz

    def full(*arguments):
        if kept_in(tmp_path / "photos.tbnets"):
            raise OSError(28, "No space left on device")
        write(*arguments)

    monkeypatch.setattr(npy, "write_npz", full)
    assert_found(embed(model, photos, batch_size=1)[0], COLOURS)
    assert capsys.readouterr().err.count("\n") == 1
    monkeypatch.undo()
    assert embed(model, photos)[1] == 2


def test_two_at_once_do_not_harm_each_other(model, photos, tmp_path):
    place = tmp_path / "photos.tbnets"
    embed(model, photos)
    first, second = (
        embedding_cache.EmbeddingCache(place, model) for _ in range(2)
    )
    for name, one in (("d.png", first), ("e.png", second)):
        one.add({name: embedding_cache.Entry((1, 2), np.ones(3, np.float32))})
        one.save()
        one.tidy([*COLOURS, name])
    # The first had removed what the second had read; both are there.
    last = embedding_cache.EmbeddingCache(place, model)
    assert last.entries.keys() == {*COLOURS, "d.png", "e.png"}
    last.tidy(last.entries)
    assert len(kept_in(place)) == 1
    assert (
        embedding_cache.EmbeddingCache(place, model).entries.keys()
        == last.entries.keys()
    )
