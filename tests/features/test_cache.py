"""Tests of the cache of vectors: keys of files, and stores by description."""

import hashlib
import os
import shutil
import time

import numpy as np
import PIL.Image
import pytest

from tbnets.data import pictures
from tbnets.data.store.writer import FeatureWriter
from tbnets.features import cache
from tbnets.features import cache as locks
from tbnets.files import try_lock

MADE_BY = {"network": "tiny", "layers": ["last"]}


@pytest.fixture
def paths(tmp_path):
    """Three files that are an hour old, {name: path}."""
    (tmp_path / "photos").mkdir()
    paths = {name: tmp_path / "photos" / name for name in "abc"}
    for name, path in paths.items():
        write(path, name.encode())
    return paths


def write(path, content, age=3600):
    path.write_bytes(content)
    os.utime(path, (time.time() - age,) * 2)


def key(content):
    return hashlib.sha256(content).hexdigest()


def read(paths):
    """Returns the result of `FileKeys.read`, and the names that it read."""
    names, read_file = [], pictures.read_file
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            pictures,
            "read_file",
            lambda x: names.append(x.name) or read_file(x),
        )
        found = cache.FileKeys(paths["a"].parent.parent).read(paths)
    return found, sorted(names)


def test_files_are_read_only_if_their_size_or_time_has_changed(paths):
    keys = {name: key(name.encode()) for name in paths}
    assert read(paths) == ((keys, {}), ["a", "b", "c"])
    assert read(paths) == ((keys, {}), [])
    write(paths["b"], b"x", age=1800)  # Its size is the same.
    assert read(paths) == ((keys | {"b": key(b"x")}, {}), ["b"])


def test_young_file_is_read_again(paths):
    write(paths["a"], b"a", age=0)
    read(paths)
    assert read(paths)[1] == ["a"]


def test_file_that_changes_after_it_was_found_is_noticed(paths, tmp_path):
    files = cache.FileKeys(tmp_path)
    files.read(paths)
    write(paths["a"], b"x", age=1800)
    paths["b"].unlink()
    changed = [name for name in paths if files.has_changed(paths[name])]
    assert changed == ["a"]


def test_processes_share_the_file_of_keys(paths, tmp_path):
    first, second = (cache.FileKeys(tmp_path) for _ in range(2))
    for name, files in zip("ab", (first, second)):
        files.read({name: paths[name]})
    assert read(paths)[1] == ["c"]


def write_store(tmp_path):
    folder = cache.store_folder(tmp_path, "tiny", MADE_BY)
    with FeatureWriter(folder, MADE_BY, 2) as writer:
        writer.add([key(b"a")], np.ones((1, 2)))
        writer.finish()
    return folder


def test_each_description_has_a_store(tmp_path):
    descriptions = MADE_BY, MADE_BY | {"layers": ["first"]}
    folders = {cache.store_folder(tmp_path, "x", y) for y in descriptions}
    assert len(folders) == 2
    reordered = dict(reversed(MADE_BY.items()))
    assert cache.store_folder(tmp_path, "x", reordered) in folders


def flip_a_bit(folder):
    path = folder / "features.npy"
    path.write_bytes(path.read_bytes()[:-1] + b"\x3e")


def test_damaged_store_is_reported_and_removed(tmp_path, capsys):
    folder = write_store(tmp_path)
    flip_a_bit(folder)
    assert cache.open_cached(folder) is None
    assert str(folder) in capsys.readouterr().err
    assert not folder.exists()
    write_store(tmp_path)
    assert cache.open_cached(folder, MADE_BY).ids == (key(b"a"),)


def test_store_that_another_process_replaces_is_kept(tmp_path, monkeypatch):
    folder = write_store(tmp_path)
    lock = open(folder.parent / f".{folder.name}.lock", "wb")
    assert try_lock(lock.fileno())
    flip_a_bit(folder)

    def replace(_):  # Stands for the other process.
        shutil.rmtree(folder)
        write_store(tmp_path)
        lock.close()

    monkeypatch.setattr(locks.time, "sleep", replace)
    assert cache.open_cached(folder, MADE_BY).ids == (key(b"a"),)
    assert lock.closed


def test_store_of_other_settings_is_removed(tmp_path):
    folder = write_store(tmp_path)
    assert cache.open_cached(folder, {"network": "other"}) is None
    assert not folder.exists()


@pytest.mark.parametrize("ids", [(), ("a",)])
def test_faults_last_unless_they_may_be_cured(tmp_path, monkeypatch, ids):
    reasons = "is empty", "is a HEIF file: convert it", "cannot be read: disk"
    monkeypatch.setitem(PIL.Image.OPEN, "HEIF", None)
    with FeatureWriter(tmp_path / "store", MADE_BY, 2) as writer:
        rows = np.ones((len(ids), 2))
        writer.add(ids, rows, failed={x: x for x in reasons})
    store = cache.open_cached(tmp_path / "store")
    assert cache.has_all(store, [*ids, reasons[0]])
    assert not any(cache.has_all(store, [x]) for x in reasons[1:])
    assert not cache.has_all(None, [])


def test_second_process_waits_until_the_first_has_written(
    tmp_path, monkeypatch, capsys
):
    folder = tmp_path / "cache" / "tiny"
    folder.parent.mkdir()
    lock = open(folder.parent / ".tiny.lock", "wb")
    assert try_lock(lock.fileno())
    monkeypatch.setattr(locks.time, "sleep", lambda _: lock.close())
    with cache.written_alone(folder):
        assert lock.closed
    assert str(folder) in capsys.readouterr().err
