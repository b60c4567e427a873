"""Builds the `search` endpoint, which searches an index in the graph.

The embeddings are variables of 32,768 rows, and the ids are a variable. The
endpoint embeds the queries and compares them with the rows tile by tile. It
returns the same results as `search_index.SearchIndex.search`.
"""

import tensorflow as tf

from tbnets.data.images import require
from tbnets.errors import InputError
from tbnets.evaluation.score_tiles import PAIRS_AT_ONCE
from tbnets.serving import search_index
from tbnets.serving.endpoints import traced
from tbnets.serving.identity import identity_of


def add_search(index):
    """Returns a function for `reexport(add=...)` that adds a search endpoint.

    The `search` endpoint takes `m` texts, as `embed_text` does, and `k`, int32
    `[]`. It returns `ids` (string) and `similarities` (float32), both `[m,
    min(k, len(index))]`, best first. Ties are sorted by row.
    """
    if not len(index):
        raise InputError(
            "index",
            "contain embeddings",
            f"index={index.path}, which is empty",
            "Add photos to it.",
        )
    index.store.verify()

    def add(served):
        index.check_embedded_by(identity_of(served))
        [spec] = served.inputs("embed_text").values()
        blocks = [tf.Variable(x, trainable=False) for x in _blocks(index)]
        ids = tf.Variable(tf.constant(index.ids), trainable=False)
        embed = served.signatures["embed_text"]
        compare = served.signatures.get("compare")

        @traced(spec, tf.TensorSpec([], tf.int32, "k"))
        def search(texts, k):
            k = require(k, k > 0, "`k` must be at least 1. Received:", k)
            queries = embed(**{spec.name: texts})["embeddings"]
            rows, similarities = _find(blocks, compare, queries, k)
            return {"ids": ids.sparse_read(rows), "similarities": similarities}

        return {"search": search}

    return add


def _blocks(index):
    # A tile that is a whole variable is not copied.
    size = search_index.ROWS_AT_ONCE
    starts = range(0, len(index), size)
    return [index.embeddings[start : start + size] for start in starts]


def _find(blocks, compare, queries, k):
    """Finds the best `k` rows for each query, a few queries at a time."""
    size, options = search_index.QUERIES_AT_ONCE, {}
    if compare is not None:

        def similarities(queries, rows):
            rows = tf.cast(rows, tf.float32)
            pairs = {"image_embeddings": rows, "text_embeddings": queries}
            return tf.transpose(compare(**pairs)["similarities"])

        size = 1
        options["similarities"] = similarities
        options["rows_at_once"] = PAIRS_AT_ONCE
    # At least one part: `map_fn` cannot stack an empty list of results.
    count, dim = tf.shape(queries)[0], queries.shape[1]
    parts = tf.maximum(-(-count // size), 1)
    size = -(-count // parts)
    padded = tf.pad(queries, [[0, parts * size - count], [0, 0]])
    results = tf.map_fn(
        lambda part: search_index.top_k(part, blocks, k, **options),
        tf.reshape(padded, [parts, size, dim]),
        parallel_iterations=1,
        fn_output_signature=(tf.int32, tf.float32),
    )
    width = tf.minimum(k, sum(block.shape[0] for block in blocks))
    return [
        tf.ensure_shape(tf.reshape(x, [-1, width])[:count], [None, None])
        for x in results
    ]
