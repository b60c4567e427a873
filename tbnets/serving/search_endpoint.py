"""The endpoint `search`: a model's own index, in its graph.

The embeddings are variables, one a shard, and so are the ids. Queries are
embedded, compared with a tile after the other, and the best of all tiles come
out, as `search_index.SearchIndex.search` finds them.
"""

import functools

import tensorflow as tf

from tbnets.data.photo_head import require
from tbnets.data.store.arrays import check_finite
from tbnets.errors import InputError
from tbnets.evaluation.score_tiles import PAIRS_AT_ONCE
from tbnets.serving import exact_search
from tbnets.serving.entries import about


def add_search(index):
    """Returns what `reexport.reexport` takes as `add`: a search of an index.

    Args:
        index: the `SearchIndex`, which must be of the model's embeddings; all
            of it is compared with its checksums.

    Returns:
        Function of a `Served` -> dict of `tf.function`s: `search`, of texts as
        `embed_text` takes them and `k` int32 `[]`, from 1 -> `ids` strings and
        `similarities` float32 `[m, min(k, n)]`, best first; of rows as
        similar the first one comes first.

    Raises:
        ValueError: the index is empty or damaged.
    """
    if not len(index):
        raise InputError(
            "`index` must hold an embedding. Received: index="
            f"{index.path}, which is empty. Put photos into it."
        )
    index.store.verify()
    check_finite(index.store)

    def add(served):
        if not served.has("embed_text", "embed_image"):
            raise InputError(
                "`model` must be a network for whole images. Received: "
                f"{served.path}, which has {sorted(served.signatures)}. Take "
                "another, or export without an index."
            )
        index.check_embedded_by(about(served))
        [spec] = served.inputs("embed_text").values()
        shards = [tf.Variable(one, trainable=False) for one in index.shards]
        ids = tf.Variable(tf.constant(index.ids), trainable=False)
        embed = served.signatures["embed_text"]
        find = functools.partial(_find, shards, served.signatures)

        @tf.function(
            input_signature=[spec, tf.TensorSpec([], tf.int32, "k")],
            autograph=False,
        )
        def search(texts, k):
            k = require(k, k > 0, "`k` must be at least 1. Received:", k)
            queries = embed(**{spec.name: texts})["embeddings"]
            rows, similarities = find(queries, k)
            return {"ids": ids.sparse_read(rows), "similarities": similarities}

        return {"search": search}

    return add


def _find(shards, signatures, queries, k):
    """Returns the best rows of shards, a few queries at a time.

    Args:
        shards: variables `[n_i, dim]`.
        signatures: of the model; of `compare` queries come one by one.
        queries: float32 `[m, dim]`.
        k: int32 `[]`.
    """
    size, options = exact_search.QUERIES_AT_ONCE, {}
    if "compare" in signatures:
        size = 1
        options = {
            "similarities": functools.partial(_learned, signatures["compare"]),
            "rows_at_once": PAIRS_AT_ONCE,
        }
    total = sum(shard.shape[0] for shard in shards)
    # Of no query, once too: an array of nothing has no shape.
    blocks = tf.maximum(-(-tf.shape(queries)[0] // size), 1)

    def one(block, arrays):
        some = queries[block * size : (block + 1) * size]
        found = exact_search.top_k(some, shards, k, **options)
        return block + 1, [a.write(block, x) for a, x in zip(arrays, found)]

    arrays = [
        tf.TensorArray(
            dtype, blocks, infer_shape=False, element_shape=[None, None]
        )
        for dtype in (tf.int32, tf.float32)
    ]
    _, arrays = tf.while_loop(
        lambda block, _: block < blocks, one, (0, arrays), parallel_iterations=1
    )
    count = tf.minimum(k, total)
    return [
        tf.ensure_shape(tf.reshape(array.concat(), [-1, count]), [None, None])
        for array in arrays
    ]


def _learned(compare, queries, rows):
    """Returns what a model's endpoint says of queries and rows."""
    pairs = {
        "image_embeddings": tf.cast(rows, tf.float32),
        "text_embeddings": queries,
    }
    return tf.transpose(compare(**pairs)["similarities"])
