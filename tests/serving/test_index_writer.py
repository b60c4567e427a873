"""Tests of creating and changing an index, and of killed writers."""

import contextlib
import os
import shutil

import numpy as np
import pytest

from tbnets import files
from tbnets.data.store import reader
from tbnets.data.store.reader import open_features
from tbnets.data.store.writer import FeatureWriter
from tbnets.errors import MissingFileError
from tbnets.serving.index_writer import IndexWriter
from tbnets.serving.search_index import open_index
from tests.data.store.test_writer import Killed, kill_at
from tests.refusals import refused

MODEL = {"model": "1f00", "embedding_dim": 3}


def rows_of(ids):
    """Returns a different row for each id."""
    rows = [[ord(key[0]), ord(key[-1]), 1] for key in ids]
    return np.float32(rows).reshape(-1, 3)


def content_of(path):
    """Returns the content of an index, id -> row, in order."""
    index = open_index(path)
    rows = index.store.take(range(len(index)))
    return dict(zip(index.ids, rows.tolist()))


def write(path, put="", remove="", **more):
    with IndexWriter(path, MODEL, 3, **more) as writer:
        writer.put(list(put), rows_of(put))
        writer.remove(list(remove))
    return writer


def state(path):
    """Returns the files of a folder: name -> content."""
    return {one.name: one.read_bytes() for one in path.iterdir()}


def test_rows_are_added_replaced_and_removed(tmp_path):
    path = tmp_path / "index"
    write(path, "abcdefghij")
    assert content_of(path) == dict(
        zip("abcdefghij", rows_of("abcdefghij").tolist())
    )
    with IndexWriter(path, MODEL, 3) as writer:
        writer.put(["b", "c", "k"], np.float32([[0, 0, 2], *rows_of("ck")]))
        writer.remove(["i", "j"])
    assert (writer.added, writer.removed) == (2, 3)
    found = content_of(path)
    assert "".join(found) == "acdefghbk"
    assert found.pop("b") == [0, 0, 2]
    assert list(found.values()) == rows_of(found).tolist()
    open_features(path).verify()


def test_added_rows_are_appended_and_removed_rows_rewrite_the_files(tmp_path):
    write(tmp_path, "abc")
    inode = (tmp_path / "features.npy").stat().st_ino
    before = state(tmp_path)
    write(tmp_path, "abc")
    assert state(tmp_path) == before
    write(tmp_path, "d")
    assert (tmp_path / "features.npy").stat().st_ino == inode
    write(tmp_path, remove="b")
    assert set(state(tmp_path)) == {
        "features-1.npy",
        "ids-1.txt",
        "manifest.json",
    }
    write(tmp_path, remove="acd")
    assert os.listdir(tmp_path) == ["manifest.json"]
    assert len(open_index(tmp_path)) == 0
    assert open_index(tmp_path).search(np.ones([2, 3]), 5)[0].shape == (2, 0)


def test_remove_others_keeps_the_rows_of_the_block(tmp_path):
    write(tmp_path, "abcdef")
    with IndexWriter(tmp_path, MODEL, 3) as writer:
        for some in ("fed", "xc"):
            writer.put(list(some), rows_of(some))
        writer.remove_others()
    assert "".join(content_of(tmp_path)) == "cdefx"


@pytest.mark.parametrize("removed", ["ae", ""])
@pytest.mark.parametrize("moment", ["before", "half", "after"])
def test_killed_writer_leaves_the_old_or_the_new_index(
    tmp_path, monkeypatch, moment, removed
):
    write(tmp_path / "old", "abcdefghij")
    old = content_of(tmp_path / "old")
    shutil.copytree(tmp_path / "old", tmp_path / "new")
    write(tmp_path / "new", "kl", remove=removed)
    new = state(tmp_path / "new")
    for last in range(100):
        path = shutil.copytree(tmp_path / "old", tmp_path / f"{moment}{last}")
        with monkeypatch.context() as patch:
            calls = kill_at(patch, last, moment)
            try:
                write(path, "kl", remove=removed)
                break
            except Killed:
                pass
        is_new = moment == "after" and calls[-1] == "manifest.json"
        assert is_new == (content_of(path) != old)
        # The same changes lead to the same bytes.
        write(path, "kl", remove="" if is_new else removed)
        assert state(path) == new
    # Two files get the new rows, and two the remaining ones.
    assert last == (5 if removed else 3)


def test_open_index_is_not_affected_by_changes(tmp_path):
    write(tmp_path, "abcdef")
    index = open_index(tmp_path)
    write(tmp_path, remove="abc")
    rows, values = index.search([[0, 0, 1]], 6)
    assert [index.ids[row] for row in rows[0]] == list("abcdef")
    assert values.tolist() == [[1] * 6]


def test_index_that_changes_while_it_is_opened_is_opened_again(
    tmp_path, monkeypatch
):
    path, open_numbers = tmp_path / "i", reader.open_numbers
    write(path, put="ab")

    def after_a_change(*arguments):
        monkeypatch.setattr(reader, "open_numbers", open_numbers)
        write(path, put="cd", remove="ab")
        return open_numbers(*arguments)

    monkeypatch.setattr(reader, "open_numbers", after_a_change)
    assert open_index(path).ids == ("c", "d")


def test_invalid_rows_or_ids_change_nothing(tmp_path):
    for path in (tmp_path / "failed", tmp_path / "good"):
        write(path, "abc")
    path = tmp_path / "failed"
    with refused("features"):
        with IndexWriter(path, MODEL, 3) as writer:
            writer.put(["e"], rows_of("e"))
            writer.put(["d"], [[1, 2, np.nan]])
    assert "".join(content_of(path)) == "abc"
    for path in (tmp_path / "failed", tmp_path / "good"):
        write(path, "f")
    assert state(tmp_path / "failed") == state(tmp_path / "good")


def test_invalid_removals_and_sizes_change_no_row(tmp_path):
    write(tmp_path, "abc")
    before = state(tmp_path)
    with refused("ids"):
        write(tmp_path, remove="ax")
    assert state(tmp_path) == before
    with refused("ids"):
        write(tmp_path, "da", remove="a")
    with refused("path"):
        IndexWriter(tmp_path, MODEL, 5)
    assert "".join(content_of(tmp_path)) == "abc"


@pytest.mark.parametrize("is_there", [True, False])
def test_failed_block_leaves_no_new_index(tmp_path, monkeypatch, is_there):
    path = tmp_path / "index"
    if is_there:
        path.mkdir()
    with refused("features"):
        with IndexWriter(path, MODEL, 3) as writer:
            writer.put(list("abcde"), rows_of("abcde"))
            assert len(list(path.iterdir())) > 2
            writer.put(["f"], [[1, 2]])
    assert path.exists() == is_there
    assert not is_there or not list(path.iterdir())
    with monkeypatch.context() as patch:
        patch.setattr(FeatureWriter, "_write", None)  # As on a full disk.
        with pytest.raises(TypeError):
            write(path, "ab")
    assert path.exists() == is_there
    write(path, "ab")
    with contextlib.suppress(KeyError), IndexWriter(path, MODEL, 3):
        raise KeyError
    assert "".join(content_of(path)) == "ab"


def test_disk_that_is_full_at_the_manifest_leaves_the_old_index(
    tmp_path, monkeypatch
):
    write(tmp_path, "ab")
    before = state(tmp_path)
    for changes in ({"put": "c"}, {"remove": "a"}):
        with monkeypatch.context() as patch:
            patch.setattr(files, "write_atomically", None)
            with pytest.raises(TypeError):
                write(tmp_path, **changes)
        assert "".join(content_of(tmp_path)) == "ab"
    write(tmp_path, "c")
    after = state(tmp_path)
    assert after.keys() == before.keys()
    write(tmp_path, "c")
    assert state(tmp_path) == after


def test_another_model_or_another_folder_raises_an_error(tmp_path):
    index, store = tmp_path / "index", tmp_path / "store"
    write(index, "a", notes={"model": "best"})
    FeatureWriter(store, {"cnn": "VGG"}, 3).finish()
    other = {**MODEL, "model": "2e00"}
    for path, model in ((index, other), (store, MODEL)):
        with refused("index"):
            open_index(path, model)
        with refused("index"):
            IndexWriter(path, model, 3)
    with refused("index", kind=MissingFileError):
        open_index(tmp_path)
    with refused("path"):  # It contains other files.
        IndexWriter(tmp_path, MODEL, 3)


def test_error_about_a_damaged_index_names_the_file(tmp_path):
    write(tmp_path, "abcde")
    path = tmp_path / "features.npy"
    content = bytearray(path.read_bytes())
    content[-4:] = np.float32(np.inf).tobytes()
    path.write_bytes(content)
    with refused(path.name):
        open_index(tmp_path).search(np.ones([1, 3]), 9)
    path.write_bytes(content[:-4])
    with refused(path.name):
        open_index(tmp_path)
