"""Tests of Parquet files of vectors: written, read, indexed, trained on."""

import numpy as np
import pytest

import tbnets
from tbnets.data.store.vectors import write_rows
from tbnets.errors import InputError
from tbnets.serving.checksums import identity_of
from tests import tiny, verbs
from tests.refusals import at
from tests.serving.test_embedding_cache import MeanColour

parquet = pytest.importorskip("pyarrow.parquet")


def write(path, vectors, made_by=None, failed=()):
    """Writes a file of vectors, {id: row}, and of {id: reason}."""
    dim = len(next(iter(vectors.values())))
    states = [(key, vector, "") for key, vector in vectors.items()]
    states += [(key, np.zeros(dim), why) for key, why in dict(failed).items()]
    names = "id", "embedding", "status"
    rows = [{**dict(zip(names, state)), "sha256": ""} for state in states]
    write_rows(path, rows, dim, made_by or {})


def test_files_with_other_columns_are_refused(tmp_path):
    arrow = pytest.importorskip("pyarrow")
    path = tmp_path / "a.parquet"
    parquet.write_table(arrow.table({"id": ["x"], "embedding": [[1.0]]}), path)
    with at(path):
        tbnets.open_features(path)
    write(path, {"x": [1]})
    table = parquet.read_table(path)
    nullable = [field.with_nullable(True) for field in table.schema]
    parquet.write_table(table.cast(arrow.schema(nullable)), path)
    with at(path):
        tbnets.open_features(path)
    parquet.write_table(table.select(["id"]), path)
    with at(path):
        tbnets.open_features(path)
    path.write_bytes(path.read_bytes()[:-9])
    with at(path):
        tbnets.open_features(path)


def test_files_of_two_networks_are_not_mixed(tmp_path):
    write(tmp_path / "a.parquet", {"x": [1, 2]}, {"cnn": "A"})
    write(tmp_path / "b.parquet", {"y": [1, 2]}, {"cnn": "B"})
    with pytest.raises(InputError, match="b.parquet, which differs: cnn: B"):
        tbnets.open_features(tmp_path / "*.parquet")


def test_a_run_reads_the_files_like_other_features(tmp_path):
    tiny.write_precomputed(tmp_path)
    for split in tiny.SPLITS:
        features = tbnets.open_features(tmp_path / f"{split}_ims.npy")
        rows = dict(zip(features.ids, features.take(range(len(features)))))
        half = len(rows) // 2
        for part in (0, 1):
            ids = [*rows][part * half : (part + 1) * half]
            path = tmp_path / f"{split}-{part}.parquet"
            write(path, {key: rows[key] for key in ids})
    flags = {"image_features": "*.parquet"}
    for split in tiny.SPLITS:
        found, wanted = (
            tiny.split_of(tiny.settings(tmp_path, "run", **changes), split)
            for changes in (flags, {})
        )
        ids = range(found.records.num_images)
        np.testing.assert_array_equal(
            found.images.batch(ids), wanted.images.batch(ids)
        )


@pytest.fixture
def model(tmp_path, monkeypatch):
    """Returns a model that `tbnets index` loads."""
    model = MeanColour(tmp_path / "model")
    model.has = lambda *endpoints: True
    monkeypatch.setattr(tbnets.zoo, "open_model", lambda *_: model)
    return model


def test_an_index_of_the_files_has_their_rows(tmp_path, model):
    made_by, index = identity_of(model), tmp_path / "index"
    write(tmp_path / "a.parquet", {"x": [1, 0, 0], "y": [0, 1, 0]}, made_by)
    write(tmp_path / "b.parquet", {"z": [0, 0, 1]}, made_by, {"w": "is empty"})
    words = f"--embeddings={tmp_path}/*.parquet", f"--output={index}"
    out, notes, error = verbs.ask("index", *words)
    assert "3 rows" in out and "left out: w, which is empty" in notes
    found = tbnets.open_index(index)
    assert found.ids == ("x", "y", "z") and not error
    assert found.embeddings.tolist() == np.eye(3).tolist()


def test_an_index_refuses_the_files_of_another_network(tmp_path, model):
    write(tmp_path / "a.parquet", {"x": [1, 0, 0]}, {"model": "another"})
    words = f"--embeddings={tmp_path}/*.parquet", f"--output={tmp_path}/index"
    assert "model: another" in verbs.ask("index", *words)[2]
    assert not (tmp_path / "index").exists()
