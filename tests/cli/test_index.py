"""Tests of the index tool: an index made, brought up to date, and asked."""

import json
import os
import shutil

import numpy as np
import PIL.Image
import pytest

from tbnets.serving.index_writer import IndexWriter
from tests import saved_models
from tests.cli.test_query import COLORS, answers_of, write_networks
from tests.verbs import ask, call


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Networks of photos and features, three photos, features."""
    folder = tmp_path_factory.mktemp("index")
    write_networks(folder)
    (folder / "photos").mkdir()
    for name, color in COLORS.items():
        photo = folder / "photos" / f"{name}.png"
        PIL.Image.new("RGB", (30, 20), color).save(photo)
    rows = np.float32([[3, 4, 0], [0, 0, 2], [3, 4, 0]])
    np.save(folder / "x_ims.npy", rows)
    (folder / "x_ids.txt").write_text("a\nb\na\n")
    with saved_models.loaded_once():
        yield folder


def index(folder, *words, photos="photos", output="photos.index"):
    """Indexes photos; returns the error."""
    line = [folder / photos, f"--output={folder / output}", *words]
    return ask("index", f"--model={folder}/bytes/1", *line)[2]


def contents(folder):
    """Returns the content of each file in a folder and its subfolders."""
    return {x: x.read_bytes() for x in folder.rglob("*") if x.is_file()}


def query(folder, index, *words, model="bytes"):
    """Asks an index; returns output and error."""
    line = [f"--model={folder}/{model}/1", f"--index={folder / index}"]
    out, _, failure = ask("query", *line, *words)
    return out, failure


def test_index_is_created_searched_and_updated(folder):
    own = shutil.copytree(folder / "photos", folder / "own")
    shutil.copy(own / "red.png", own / "a\nb.png")  # Its name is no id.
    line = own, f"--output={own}.index", f"--model={folder}/bytes/1"
    out, err, _ = ask("index", *line)
    assert out.endswith("  3 rows of 3 float32: 3 added, 0 removed\n")
    assert f"left out: {own}/a\ufffdb.png" in err
    out, _, _ = ask("index", *line)
    assert out.endswith("  3 rows of 3 float32: 0 added, 0 removed\n")
    out, _ = query(folder, "own.index", "red", f"--like={own}/blue.png")
    [[title, found], [_, like]] = answers_of(out)
    assert title == '"red" among 3 images'
    assert [found[0], like[0]] == [("1.000", "red.png"), ("1.000", "blue.png")]
    (own / "red.png").unlink()
    PIL.Image.new("RGB", (9, 9), COLORS["red"]).save(own / "blue.png")
    shutil.copy(own / "green.png", own / "new.png")
    out, _, _ = ask("index", *line)
    assert out.endswith("  3 rows of 3 float32: 2 added, 2 removed\n")
    out, _ = query(folder, "own.index", "red", "--top=1", "--json=-")
    [asked] = json.loads(out)["queries"]
    [answer] = asked["answers"]
    assert (answer["image"], answer["similarity"]) == ("blue.png", 1.0)


def test_a_subfolder_that_cannot_be_listed_leaves_the_index_unchanged(
    folder, monkeypatch
):
    own = shutil.copytree(folder / "photos", folder / "partly")
    (own / "more").mkdir()
    (own / "red.png").rename(own / "more" / "red.png")
    line = own, f"--output={own}.index", f"--model={folder}/bytes/1"
    ask("index", *line)
    before = contents(folder / "partly.index")
    listed = os.scandir

    def scandir(path="."):
        if os.fspath(path) == str(own / "more"):  # Root can list all folders.
            raise OSError(5, "Input/output error", path)
        return listed(path)

    monkeypatch.setattr(os, "scandir", scandir)
    _, _, failure = ask("index", *line)
    assert f"{own}/more cannot be listed: Input/output error" in failure
    assert contents(folder / "partly.index") == before


def test_index_writes_only_to_its_output(folder, tmp_path, monkeypatch):
    shutil.copytree(folder / "photos", tmp_path / "own")
    shutil.copytree(folder / "bytes", tmp_path / "bytes")
    line = (tmp_path / "own", f"--output={tmp_path}/x.index")
    before = {*tmp_path.iterdir(), tmp_path / "x.index"}
    for _ in range(2):  # The first update is interrupted.
        with monkeypatch.context() as patch:
            patch.setattr(IndexWriter, "put", lambda *_: 1 / 0)
            with pytest.raises(ZeroDivisionError):
                call("index", f"--model={tmp_path}/bytes/1", *line)
    _, _, failure = ask("index", f"--model={tmp_path}/bytes/1", *line)
    assert failure == ""
    query(tmp_path, "x.index", "red")
    assert {*tmp_path.iterdir()} == before
    assert len([*tmp_path.glob("x.index/cache/embeddings-*")]) == 1
    assert not [*(tmp_path / "own").glob("*.tbnets")]


def test_features_are_indexed_by_their_ids(folder):
    line = [f"--image_features={folder}/x_ims.npy", f"--output={folder}/x"]
    out, _, _ = ask("index", f"--model={folder}/features/1", *line)
    assert out == f"{folder}/x  2 rows of 3 float32: 2 added, 0 removed\n"
    out, _ = query(folder, "x", "blue", model="features")
    assert answers_of(out)[0][1] == [("1.000", "b"), ("0.000", "a")]
    _, failure = query(folder, "x", "--like=a", model="features")
    assert failure.startswith("`--image_features` must be given")


def test_wrong_index_flags_raise_errors(folder):
    index(folder)
    _, failure = query(folder, "photos.index", "red", model="features")
    assert failure.startswith("`--index`") and f"{folder}/bytes/1" in failure
    assert query(folder, "photos", "red")[1].startswith("`--index`")
    (folder / "none").mkdir()
    none = {"photos": "none", "output": "none.index"}
    for failure, named in (
        (index(folder, "photos"), "--image_features"),
        (index(folder, "--dtype=float16"), "store.dtype"),
        (index(folder, output="photos"), "`path`"),
        (index(folder, **none), "which has no photo"),
    ):
        assert named in failure
    assert not (folder / "none.index").exists()


def test_approximate_index_finds_nearly_all(folder):
    pytest.importorskip("faiss", reason="needs the extra: tbnets[faiss]")
    index(folder, "--approximate", output="cells.index")
    by_cells, _ = query(folder, "cells.index", "--approximate", "red", "blue")
    assert answers_of(by_cells) == answers_of(
        query(folder, "cells.index", "red", "blue")[0]
    )
    index(folder, output="own.cells")
    _, failure = query(folder, "own.cells", "--approximate", "red")
    assert "--approximate" in failure
