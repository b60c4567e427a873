"""Calls that are refused, each with the argument that its error is about."""

import functools
import pathlib

import numpy as np
import pytest

from tbnets.errors import InputError, InputTypeError
from tbnets.serving import litert, search
from tbnets.serving.export import export_saved_model, reexport
from tbnets.serving.index_writer import IndexWriter
from tbnets.serving.search_index import open_index
from tbnets.serving.served import load_saved_model
from tbnets.text.vocabulary import Vocabulary
from tests.refusals import refused
from tests.serving import test_export, test_litert

ROW = [[1.0, 2.0, 3.0]]
NAN = [[1.0, np.nan, 0.0]]
FEW = Vocabulary(("", "[UNK]", "a"))


@functools.cache
def model():
    """Returns a network, the folder of its SavedModel, and its `Served`."""
    network, folder = test_export._of_features()
    path = pathlib.Path(folder.name, "1")
    return network, path, load_saved_model(path)


def export(path, **options):
    export_saved_model(model()[0], test_export.VOCABULARY, path, **options)


def put(path, ids, rows):
    with IndexWriter(path, "a model", 3) as writer:
        writer.put(ids, rows)


def search_index(path, queries, model=None):
    put(path, ["a"], ROW)
    open_index(path, model).search(queries, 1)


def convert(path, kind, photos=()):
    network = test_litert.network_of("mean")
    endpoints = test_litert.endpoints_of(network)
    litert.write_litert(network, endpoints, path, kind, photos)


class Learned:
    path = "1"

    def has(self, name):
        return True


CALLS = [
    ("texts", lambda _: model()[2].embed_text("a dog")),
    ("texts[1]", lambda _: model()[2].embed_text(["a", None])),
    ("images", lambda _: model()[2].embed_images(np.ones([2, 6]))),
    ("first", lambda _: model()[2].compare([[1, 0]], np.eye(4))),
    ("first", lambda _: model()[2].compare([[1, 0, 0, np.nan]], np.eye(4))),
    ("second", lambda _: model()[2].compare(np.eye(4), [[1, 0]])),
    ("find", lambda _: model()[2].find(["a"], "a.jpg")),
    ("max_pixels", lambda path: export(path, max_pixels=100)),
    ("vocabulary", lambda path: export_saved_model(model()[0], FEW, path)),
    ("signatures", lambda path: reexport(model()[1], path, keep=["nod"])),
    ("like", lambda _: search.rank(Learned(), [], ["a.jpg"], np.eye(1, 2), 5)),
    ("ids", lambda path: put(path, ["a", "a"], ROW * 2)),
    ("ids", lambda path: put(path, "a", ROW)),
    ("ids", lambda path: put(path, {"a"}, ROW)),  # A set has no order.
    ("features", lambda path: put(path, ["a"], NAN)),
    ("notes", lambda path: IndexWriter(path, "", 3, notes={"photos": 3})),
    ("queries", lambda path: search_index(path, [[1.0, 2.0]])),
    ("queries", lambda path: search_index(path, NAN)),
    ("index", lambda path: search_index(path, ROW, "another model")),
    ("litert", lambda path: convert(path, "int4")),
    ("images", lambda path: convert(path, "int8")),
    ("photo", lambda path: convert(path, "int8", [b"no photo"])),
]


@pytest.mark.parametrize(("argument", "call"), CALLS)
def test_calls_are_refused_and_leave_no_files(tmp_path, argument, call):
    with refused(argument, kind=(InputError, InputTypeError)):
        call(tmp_path / "new")
    if argument not in ("queries", "index"):
        assert not (tmp_path / "new").exists()


def test_existing_folders_are_not_overwritten(tmp_path):
    for write in (
        export,
        lambda path: reexport(model()[1], path),
        lambda path: convert(path, "float32"),
    ):
        with refused("path", kind=FileExistsError):
            write(tmp_path)
