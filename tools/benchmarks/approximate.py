"""Compares approximate and exact search in recall and time.

Each row of the index is a mixture of two photo embeddings, plus noise. The
queries are embedded captions.
"""

import pathlib
import tempfile
import time

import numpy as np

from benchmarks import arrays, timing
from benchmarks.index import QUERIES, TOP, write_index
from tbnets.data.captions import read_captions
from tbnets.serving import embedding_cache, search, search_index, zoo
from tbnets.serving.checksums import identity_of
from tbnets.serving.index_writer import IndexWriter
from tbnets.serving.search_index import open_index

MOST_QUERIES = 500


def run(options):
    """Prints the recall and a table of times."""
    model, path = zoo.open_model("flickr8k_photos"), options.captions
    count = options.first_size(1_000_000)
    captions = read_captions(path, "test").captions
    sample = captions[:: len(captions) // MOST_QUERIES or 1][:MOST_QUERIES]
    queries = search.embed(model.embed_text, sample, "sentence")
    _, photos = embedding_cache.embed_folder(model, options.images, False)
    with tempfile.TemporaryDirectory() as place:
        path = pathlib.Path(place, "index")
        dim, identity = photos.shape[1], identity_of(model)
        write_index(path, (count, dim, "float32"), _mixed(photos), identity)
        start = time.perf_counter()
        with IndexWriter(path, identity, dim, approximate=True):
            pass
        built = time.perf_counter() - start
        print(f"{count} x {dim}, cells built in {built:.1f} s")
        _time(path, queries, options.repeats or 15)


def _mixed(photos):
    rng, dim = np.random.default_rng(0), photos.shape[1]

    def draw(_, size):
        a, b = photos[rng.integers(0, len(photos), [2, size])]
        share = rng.uniform(0, 0.5, [size, 1])
        blur = rng.standard_normal([size, dim]) * 0.3 / np.sqrt(dim)
        return arrays.unit(np.float32((1 - share) * a + share * b + blur))

    return draw


def _time(path, queries, repeats):
    exact, cells = open_index(path), search_index.open_approximate(path)
    best, rows = (index.search(queries, TOP)[0] for index in (exact, cells))
    hits = [np.isin(*pair) for pair in zip(best, rows)]
    print(f"recall@{TOP} of {len(queries)} sentences: {np.mean(hits):.3f}")
    for number in QUERIES:
        batch = queries[:number]
        runs = {
            f"{number}: exact": lambda batch=batch: exact.search(batch, TOP),
            f"{number}: by cells": lambda batch=batch: cells.search(batch, TOP),
        }
        timing.print_table("queries", runs, repeats)
