"""Measures the time and memory of a search index, in Python and in a graph."""

import pathlib
import tempfile
import time

import numpy as np
import tensorflow as tf

from benchmarks import arrays, timing
from tbnets.serving.checksums import identity_of
from tbnets.serving.export import export_saved_model, reexport
from tbnets.serving.index_writer import IndexWriter
from tbnets.serving.search_index import add_search, open_index
from tbnets.serving.served import load_saved_model

QUERIES = (1, 32)
TOP = 10
AT_ONCE = 2**15


class Plain(tf.Module):
    """A model that returns its inputs as embeddings."""

    def __init__(self):
        super().__init__()
        self.scale = tf.Variable(1.0)

    def embed_images(self, images, training=False):
        """Returns the images."""
        return images * self.scale

    embed_text = embed_images


def run(options):
    """Indexes random rows; prints a table per dtype and number of queries."""
    count, dim = options.first_size(1_000_000), options.embedding_dim
    shape = {"image_shape": (dim,), "text_dim": dim}
    with tempfile.TemporaryDirectory() as place:
        path = pathlib.Path(place, "plain", "1")
        export_saved_model(Plain(), None, path, **shape)
        plain = load_saved_model(path)
        for dtype in ("float32", "float16"):
            folder = pathlib.Path(place, dtype)
            _time(plain, folder, count, dtype, options.repeats or 15)


def _time(plain, folder, count, dtype, repeats):
    dim = plain.embedding_dim
    built = write_index(
        folder / "index",
        (count, dim, dtype),
        lambda at, size: arrays.unit_rows(size, dim, seed=at),
        identity_of(plain),
    )
    add = add_search(open_index(folder / "index"))
    reexport(plain.path, folder / "searching" / "1", add=add)
    queries = arrays.unit_rows(QUERIES[-1], dim, seed=1)
    plain.embed_text(queries)
    index = open_index(folder / "index")
    served = _Graph(folder / "searching")
    in_python, in_graph = (
        timing.in_another_process(_taken, open_it, folder / name, queries)
        for open_it, name in ((open_index, "index"), (_Graph, "searching"))
    )
    size = index.embeddings.nbytes / 2**20
    print(
        f"{count} x {dim}, {dtype}, built in {built:.1f} s, "
        f"{size:.0f} MiB; memory of it in Python {in_python / size:.2f}, "
        f"in the graph {in_graph / size:.2f}"
    )
    rows = tf.Variable(index.store.take(range(count)))

    @tf.function
    def bare(queries):
        best = tf.math.top_k(
            tf.matmul(queries, rows, transpose_b=True), min(TOP, count)
        )
        return best.indices, best.values

    for number in QUERIES:
        batch = queries[:number]
        runs = {
            "matmul and top-k": lambda batch=batch: _numpy(bare(batch)),
            "in Python": lambda batch=batch: index.search(batch, TOP),
            "in the graph": lambda batch=batch: served.search(batch, TOP),
        }
        runs = {f"{dtype}, {number}: {name}": runs[name] for name in runs}
        timing.print_table("queries", runs, repeats)
    _compare(_numpy(bare(queries)), index.search(queries, TOP), "in Python")
    _compare(_numpy(bare(queries)), served.search(queries, TOP), "in the graph")


def write_index(path, shape, make, model):
    """Writes an index of rows that `make(start, count)` returns.

    Returns the elapsed seconds, not counting the calls of `make`.
    """
    count, *row = shape
    start, drawing = time.perf_counter(), 0.0
    with IndexWriter(path, model, *row) as writer:
        for at in range(0, count, AT_ONCE):
            began = time.perf_counter()
            rows = make(at, min(AT_ONCE, count - at))
            drawing += time.perf_counter() - began
            writer.put([str(at + place) for place in range(len(rows))], rows)
    return time.perf_counter() - start - drawing


class _Graph:
    def __init__(self, path):
        self._model = load_saved_model(path)

    def search(self, queries, k):
        results = self._model.call("search", text_features=queries, k=k)
        rows = [[int(x) for x in row] for row in results["ids"]]
        return np.array(rows), results["similarities"]


def _taken(open_it, path, queries):
    tf.constant(queries)  # Starts TensorFlow, which is not counted.
    before = timing.mebibytes("VmRSS")
    index = open_it(path)
    index.search(queries, TOP)
    return timing.mebibytes("VmRSS") - before


def _numpy(tensors):
    return [tensor.numpy() for tensor in tensors]


def _compare(expected, results, where):
    different = np.count_nonzero(expected[0] != results[0])
    difference = np.abs(expected[1] - results[1]).max()
    print(f"{where}: {different} rows differ, by {difference:.1e}")
