"""Tests of making an index, changing it, and what a kill leaves."""

import json
import os
import shutil

import numpy as np
import pytest

from tbnets import files
from tbnets.data.store.locks import FolderLock
from tbnets.data.store.npy import RowFile
from tbnets.data.store.opening import open_features
from tbnets.data.store.writer import FeatureWriter
from tbnets.errors import ExistingFileError, MissingFileError
from tbnets.serving import index_writer as writing
from tbnets.serving.index_writer import IndexWriter
from tbnets.serving.search_index import open_index
from tests.refusals import refused

MODEL = {"model": "1f00", "embedding_dim": 3}


class Killed(BaseException):
    """What stands for `kill -9`."""


@pytest.fixture(autouse=True)
def small_shards(monkeypatch):
    monkeypatch.setattr(writing, "SHARD_ROWS", 4)


def rows_of(ids):
    """Returns a row for each id, which tells it apart."""
    rows = [[ord(key[0]), ord(key[-1]), 1] for key in ids]
    return np.float32(rows).reshape(-1, 3)


def content_of(path):
    """Returns what an index holds, id -> row, in order."""
    index = open_index(path)
    rows = index.store.take(range(len(index)))
    return dict(zip(index.ids, rows.tolist()))


def write(path, put="", remove="", **more):
    with IndexWriter(path, MODEL, 3, **more) as writer:
        writer.put(list(put), rows_of(put))
        writer.remove(list(remove))
    return writer


def state(path):
    """Returns the files of a folder but for the lock: name -> content."""
    kept = [one for one in path.iterdir() if one.name != ".writer"]
    return {one.name: one.read_bytes() for one in kept}


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


def test_shards_that_are_not_touched_stay_as_they_are(tmp_path):
    write(tmp_path, "abcdefghij")
    before = state(tmp_path)
    assert len(before) == 7  # Three shards of two files, and the manifest.
    write(tmp_path, "k", remove="e")
    after = state(tmp_path)
    same = [name for name in before if before[name] == after.get(name)]
    assert len(same) == 2 and len(after) == 7
    write(tmp_path, "abc")
    assert state(tmp_path) == after


def test_small_shards_become_one(tmp_path):
    for key in "abcdefghi":
        write(tmp_path, key)
    sizes = [one.rows for one in open_features(tmp_path).manifest.shards]
    assert sizes == [4, 4, 1]
    write(tmp_path, remove="abefgi")
    [shard] = open_features(tmp_path).manifest.shards
    assert shard.rows == 3
    write(tmp_path, remove="cdh")
    assert len(open_index(tmp_path)) == 0
    assert open_index(tmp_path).search(np.ones([2, 3]), 5)[0].shape == (2, 0)


def test_what_is_not_put_again_goes(tmp_path):
    write(tmp_path, "abcdef")
    with IndexWriter(tmp_path, MODEL, 3) as writer:
        for some in ("fed", "xc"):
            writer.put(list(some), rows_of(some))
        writer.remove_others()
    assert "".join(content_of(tmp_path)) == "cdefx"


def test_bfloat16_takes_half_and_is_rounded(tmp_path):
    write(tmp_path, "abc", dtype="bfloat16")
    with IndexWriter(tmp_path, MODEL, 3) as writer:
        writer.put(["b", "d"], [[97, 98, 1], [1.00390625, -0.1, 1e9]])
    assert writer.added == 2  # "b" is another now.
    found = content_of(tmp_path)
    # 1 + 2 ** -8 is half-way to the next, and goes to the even one; the last
    # is 238 * 2 ** 22.
    assert found["d"] == [1.0, -0.10009765625, 998244352.0]
    assert open_index(tmp_path).dtype == "bfloat16"
    [name] = [name for name in state(tmp_path) if name.endswith(".npy")]
    assert np.load(tmp_path / name).dtype == np.uint16
    with refused("dtype"):
        write(tmp_path, dtype="float32")


@pytest.mark.parametrize("moment", ["before", "half", "after"])
def test_killed_at_any_file_it_is_the_old_one_or_the_new(
    tmp_path, monkeypatch, moment
):
    write(tmp_path / "old", "abcdefghij")
    old = content_of(tmp_path / "old")
    shutil.copytree(tmp_path / "old", tmp_path / "new")
    write(tmp_path / "new", "kl", remove="ae")
    new, write_file = state(tmp_path / "new"), files.write_atomically
    for last in range(100):
        path, calls = tmp_path / f"{moment}{last}", []
        shutil.copytree(tmp_path / "old", path)

        def killed(name, how, last=last, calls=calls):
            calls.append(name)
            if len(calls) <= last:
                return write_file(name, how)
            if moment == "half":
                name.with_name(f".{name.name}.0123456789ab.partial").touch()
            elif moment == "after":
                write_file(name, how)
            raise Killed

        with monkeypatch.context() as patch:
            patch.setattr(files, "write_atomically", killed)
            try:
                write(path, "kl", remove="ae")
                break
            except Killed:
                FolderLock.forget()
        is_named = moment == "after" and calls[-1].name == "manifest.json"
        assert is_named == (content_of(path) != old)
        # The same again comes to the same bytes.
        write(path, "kl", remove="" if is_named else "ae")
        assert state(path) == new
    assert last == 9  # "kl", three shards, of two files; the manifest.


def test_who_has_it_open_still_has_what_was_there(tmp_path):
    write(tmp_path, "abcdef")
    index = open_index(tmp_path)
    write(tmp_path, remove="abc")
    rows, values = index.search([[0, 0, 1]], 6)
    assert [index.ids[row] for row in rows[0]] == list("abcdef")
    assert values.tolist() == [[1] * 6]


def test_a_change_while_the_shards_are_mapped_is_met(tmp_path, monkeypatch):
    """What is gone then belonged to the index of a moment ago."""
    path, mapped = tmp_path / "i", RowFile.map
    write(path, put="ab")

    def after_a_change(file):
        monkeypatch.setattr(RowFile, "map", mapped)
        write(path, put="cd", remove="ab")
        return mapped(file)

    monkeypatch.setattr(RowFile, "map", after_a_change)
    assert open_index(path).ids == ("c", "d")


def test_one_writer_at_a_time(tmp_path):
    with IndexWriter(tmp_path, MODEL, 3) as writer:
        writer.put(["a"], rows_of("a"))
        with pytest.raises(ExistingFileError):
            IndexWriter(tmp_path, MODEL, 3)
    write(tmp_path, "b")
    assert "".join(content_of(tmp_path)) == "ab"


@pytest.mark.parametrize("put", [["a", "a"], ["x", "b"]])
def test_ids_that_can_not_be_told_apart_are_refused(tmp_path, put):
    with refused("ids"):
        with IndexWriter(tmp_path, MODEL, 3) as writer:
            writer.put(["b"], rows_of("b"))
            writer.put(put, np.ones([len(put), 3]))


def test_rows_that_do_not_fit_are_refused_and_nothing_is_changed(tmp_path):
    write(tmp_path, "abc")
    before = state(tmp_path)
    with refused("features"):
        with IndexWriter(tmp_path, MODEL, 3) as writer:
            writer.put(["d"], [[1, 2, np.nan]])
    with refused("ids"):
        write(tmp_path, remove="ax")
    with refused("ids"):
        write(tmp_path, "da", remove="a")
    with refused("dim"):
        IndexWriter(tmp_path, MODEL, 5)
    assert state(tmp_path) == before


def test_a_single_id_is_no_list(tmp_path):
    write(tmp_path, "ab")
    with IndexWriter(tmp_path, MODEL, 3) as writer:
        for ids in ("cd", {"c", "d"}):  # A set has no order.
            with refused("ids"):
                writer.put(ids, rows_of("cd"))
        with refused("ids"):
            writer.remove("ab")
        writer.put((key for key in "cd"), rows_of("cd"))
        writer.remove({"a", "b"})
    assert "".join(content_of(tmp_path)) == "cd"


def test_notes_are_refused_before_anything_is_written(tmp_path):
    with refused("notes"):
        IndexWriter(tmp_path / "index", MODEL, 3, notes={"photos": 3})
    assert not (tmp_path / "index").exists()


@pytest.mark.parametrize("is_there", [True, False])
def test_a_block_that_raises_leaves_no_index_where_none_was(
    tmp_path, monkeypatch, is_there
):
    path = tmp_path / "index"
    if is_there:
        path.mkdir()
    with refused("features"):
        with IndexWriter(path, MODEL, 3) as writer:
            writer.put(list("abcde"), rows_of("abcde"))  # A shard of four.
            assert len(list(path.iterdir())) > 2
            writer.put(["f"], [[1, 2]])
    assert path.exists() == is_there
    assert not is_there or not list(path.iterdir())
    with monkeypatch.context() as patch:
        patch.setattr(writing, "write_shard", None)  # As where a disk is full.
        with pytest.raises(TypeError):
            write(path, "ab")
    assert path.exists() == is_there
    write(path, "ab")
    with pytest.raises(KeyError), IndexWriter(path, MODEL, 3):
        raise KeyError
    assert "".join(content_of(path)) == "ab"


def test_a_model_is_told_by_what_json_keeps_of_it(tmp_path):
    model = {1: ("a", 2.5)}
    for key in "ab":
        with IndexWriter(tmp_path, model, 3) as writer:
            writer.put([key], rows_of(key))
    assert len(open_index(tmp_path, model)) == 2
    with refused("index"):
        open_index(tmp_path, object())


def test_what_is_no_index_of_this_model_is_refused(tmp_path):
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
    with refused("path"):  # Whose files are of something else.
        IndexWriter(tmp_path, MODEL, 3)
    assert ".writer" not in os.listdir(tmp_path)


def test_queries_that_are_no_embeddings_are_refused(tmp_path):
    write(tmp_path, "abcde")
    index = open_index(tmp_path)
    for queries in (np.ones([1, 2]), [[np.nan, 0, 0]]):
        with refused("queries"):
            index.search(queries, 1)
    for k, count in ((2.0, 2), (2**40, 5)):
        assert index.search(np.ones([1, 3]), k)[0].shape == (1, count)


def test_a_damaged_index_is_named(tmp_path):
    write(tmp_path, "abcde")
    path = min(tmp_path.glob("*.npy"))
    content = bytearray(path.read_bytes())
    content[-4:] = np.float32(np.inf).tobytes()
    path.write_bytes(content)
    with refused(path.name):
        open_index(tmp_path).search(np.ones([1, 3]), 9)
    path.write_bytes(content[:-4])
    with refused(path.name):
        open_index(tmp_path)
    manifest = tmp_path / "manifest.json"
    said = json.loads(manifest.read_text())
    said["extraction"]["notes"] = {"photos": 7}
    said["shards"] = []
    manifest.write_text(json.dumps(said))
    with refused("index"):
        open_index(tmp_path)
