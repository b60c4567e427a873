"""Tests of exact search: a loop, arrays and the graph of a model agree."""

import numpy as np
import pytest
import tensorflow as tf

from tbnets.serving import search, search_index
from tbnets.serving.checksums import identity_of
from tbnets.serving.export import (
    describe_signature,
    export_saved_model,
    reexport,
)
from tbnets.serving.index_writer import IndexWriter
from tbnets.serving.search_index import open_index
from tbnets.serving.served import load_saved_model
from tests import reference
from tests.refusals import refused
from tests.serving.test_signatures import in_the_table

# Whole numbers: sums are exact in any order, and many are equal.
ROWS = np.random.default_rng(0).integers(-2, 3, [23, 3]).astype(np.float32)
QUERIES = np.random.default_rng(1).integers(-2, 3, [5, 3]).astype(np.float32)
IDS = [f"caf\u00e9/{row}.jpg" for row in range(len(ROWS))]
LIKELY = {
    "index_size": len(ROWS),
    "metadata": {"likely_similarities": [[2, 1.5], [23, 2.5]]},
}


class Plain(tf.Module):
    """Embeds everything as it is."""

    embedding_dim = 3

    def __init__(self):
        super().__init__()
        self.scale = tf.Variable(1.0)

    def embed_images(self, images, training=False):
        return images * self.scale

    embed_text = embed_images


class Learned(Plain):
    """Compares by how far apart two are."""

    learned_similarity = True

    def similarities(self, images, texts):
        distances = tf.abs(images[:, None] - texts[None])
        return -tf.reduce_sum(distances, axis=2)


@pytest.fixture(scope="module", params=["float16", "learned"])
def made(request, tmp_path_factory):
    """Returns a model with a search of an index, and the index."""
    folder = tmp_path_factory.mktemp("search")
    learned = request.param == "learned"
    network = Learned() if learned else Plain()
    shape = {"image_shape": (3,), "text_dim": 3}
    export_saved_model(network, None, folder / "plain" / "1", **shape)
    model = load_saved_model(folder / "plain")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(search_index, "ROWS_AT_ONCE", 12)
        patch.setattr(search_index, "CAST_AT_ONCE", 4)
        patch.setattr(search_index, "QUERIES_AT_ONCE", 2)
        patch.setattr(search_index, "PAIRS_AT_ONCE", 5)
        dtype = "float32" if learned else "float16"
        identity = identity_of(model)
        with IndexWriter(folder / "index", identity, 3, dtype) as writer:
            writer.put(IDS, ROWS)
        index = open_index(folder / "index")
        reexport(
            model.path,
            folder / "searching" / "1",
            add=search_index.add_search(index),
            metadata=LIKELY,
        )
    compare = model.compare if learned else None
    return load_saved_model(folder / "searching"), index, compare


def test_search_signature_is_as_documented(made):
    search = describe_signature(made[0].signatures["search"])
    assert in_the_table({"search": search})


@pytest.mark.parametrize("k", [1, 4, 99])
def test_search_in_the_graph_equals_search_in_python(made, k):
    model, index, compare = made
    answers = model.call("search", text_features=QUERIES, k=k)
    rows, similarities = index.search(QUERIES, k, compare)
    found = [[one.decode() for one in ids] for ids in answers["ids"]]
    assert found == [[IDS[row] for row in some] for some in rows]
    np.testing.assert_array_equal(answers["similarities"], similarities)
    results = model.search(QUERIES, top=k)
    pairs = [[(one.image, one.similarity) for one in some] for some in results]
    assert pairs == [list(zip(*some)) for some in zip(found, similarities)]
    for answer in (one for some in results for one in some):
        assert answer.is_doubtful == (answer.similarity < 2.5)
    if compare is not None:
        return
    told = [list(zip(*pair)) for pair in zip(rows, similarities)]
    assert told == reference.best_rows(QUERIES, ROWS, k)


@pytest.mark.parametrize("made", ["float16"], indirect=True)
def test_model_without_images_searches_its_index(made, tmp_path):
    whole = made[0]
    keep = ["embed_text", "search"]
    reexport(whole.path, tmp_path / "1", keep=keep)
    model = load_saved_model(tmp_path)
    assert not model.has("embed_image")
    assert model.search(QUERIES, top=2) == whole.search(QUERIES, top=2)
    with refused("signature"):
        model.search(QUERIES, ROWS)


def test_search_without_queries_is_empty(made):
    answers = made[0].call("search", text_features=np.zeros([0, 3]), k=4)
    assert {"ids", "similarities"} <= answers.keys()
    assert {array.shape for array in answers.values()} == {(0, 4)}


def test_number_of_results_must_be_positive(made):
    model = made[0]
    wanted = model.search(QUERIES, top=len(ROWS))
    assert model.search(QUERIES, top=2**40) == wanted
    for k in (0, 2**31):
        with refused("k"):
            model.call("search", text_features=QUERIES, k=k)
    signature = model.signatures["search"]
    with pytest.raises(tf.errors.InvalidArgumentError, match="at least 1"):
        signature(text_features=tf.constant(QUERIES), k=tf.constant(0))


@pytest.mark.parametrize("made", ["float16"], indirect=True)
def test_index_that_does_not_fit_is_not_exported(made, tmp_path):
    model, index, _ = made
    with IndexWriter(tmp_path / "other", {"model": "x"}, 3) as writer:
        writer.put(["a"], [[1, 2, 3]])
    add = search_index.add_search(open_index(tmp_path / "other"))
    with refused("index"):
        add(model)
    with IndexWriter(tmp_path / "empty", {"model": "x"}, 3):
        pass
    with refused("index"):
        search_index.add_search(open_index(tmp_path / "empty"))
    path = min((tmp_path / "other").glob("*.npy"))
    path.write_bytes(path.read_bytes()[:-1] + b"x")
    with refused(path.name):
        search_index.add_search(open_index(tmp_path / "other"))


@pytest.mark.parametrize(
    ("sizes", "k", "dtype", "at_once"),
    [
        ([23], 1, "float32", 100),
        ([23], 4, "bfloat16", 3),
        ([1, 0, 22], 4, "float32", 3),
        ([1, 0, 22], 99, "bfloat16", 100),
        ([7, 7, 7, 2], 23, "float32", 3),
        ([7, 7, 7, 2], 1, "bfloat16", 3),
    ],
)
def test_top_k_equals_the_loop(monkeypatch, sizes, k, dtype, at_once):
    monkeypatch.setattr(search_index, "CAST_AT_ONCE", at_once)
    blocks = np.split(
        ROWS.astype(tf.as_dtype(dtype).as_numpy_dtype), np.cumsum(sizes)[:-1]
    )
    rows, values = search_index.top_k(QUERIES, blocks, k, rows_at_once=at_once)
    found = [list(zip(*pair)) for pair in zip(rows.numpy(), values.numpy())]
    assert found == reference.best_rows(QUERIES, ROWS, k)
    order, similarities = search.best(QUERIES @ ROWS.T, k)
    np.testing.assert_array_equal(rows, order)
    np.testing.assert_array_equal(values, similarities)


def test_top_k_without_queries_or_rows_is_empty():
    none = np.zeros([0, 3], np.float32)
    for queries, blocks, shape in (
        (none, [ROWS], (0, 3)),
        (QUERIES, [], (5, 0)),
        (QUERIES, [none], (5, 0)),
    ):
        rows, values = search_index.top_k(queries, blocks, 3)
        assert (rows.shape, rows.dtype) == (shape, tf.int32)
        assert (values.shape, values.dtype) == (shape, tf.float32)
