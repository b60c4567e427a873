"""The best rows for each query, exactly, however many rows there are.

Rows are compared a tile at a time, so that memory is needed for the answers
and for two tiles of similarities. The same code runs on arrays, a mapped file
for one, and in a graph on variables.
"""

from concurrent.futures import ThreadPoolExecutor

import tensorflow as tf

QUERIES_AT_ONCE = 64
"""So many queries read a tile together: the sum of both bounds memory."""
ROWS_AT_ONCE = 32768
CAST_AT_ONCE = 8192
"""Rows that are not float32 are cast a few at a time, within the cache."""
TILES_AT_ONCE = 2
"""What one tile waits for, another one computes meanwhile."""


def cosines(queries, rows):
    """Returns the dot products of float32 queries with rows, `[m, n]`.

    Args:
        queries: float32 `[m, dim]`.
        rows: `[n, dim]` of any float.
    """
    # Unlike `tf.matmul`, these copy no array that is given to them.
    if rows.dtype != "float32":
        rows = tf.raw_ops.Cast(x=rows, DstT=tf.float32)
    return tf.raw_ops.MatMul(a=queries, b=rows, transpose_b=True)


def top_k(queries, shards, k, similarities=cosines, rows_at_once=ROWS_AT_ONCE):
    """Finds the best rows for each query.

    Args:
        queries: float32 `[m, dim]`.
        shards: list of `[n_i, dim]`, arrays or variables; the rows of one
            follow on those of the one before.
        k: answers for each query, from 1; an int, or int32 `[]`.
        similarities: function of queries and some rows -> float32 `[m, n]`,
            larger is closer.
        rows_at_once: rows of a tile, at most.

    Returns:
        `(rows, similarities)`: int32 and float32 `[m, min(k, n)]`, best first;
        of rows as similar the first one comes first.
    """
    tiles, first = [], 0
    for shard in shards:
        is_cast = shard.dtype != "float32" and similarities is cosines
        step = CAST_AT_ONCE if is_cast else rows_at_once
        for start in range(0, shard.shape[0], step):
            tiles.append((shard, slice(start, start + step), first + start))
        first += shard.shape[0]
    if not tiles:
        nothing = tf.zeros([len(queries), 0])
        return tf.cast(nothing, tf.int32), nothing

    def best_of(tile):
        shard, place, before = tile
        rows = shard[place]
        found = similarities(queries, rows)
        best = tf.math.top_k(found, tf.minimum(k, rows.shape[0]))
        return best.indices + before, best.values

    if tf.executing_eagerly():
        with ThreadPoolExecutor(TILES_AT_ONCE) as pool:
            found = list(pool.map(best_of, tiles))
    else:
        found = []
        for tile in tiles:
            before = found[-TILES_AT_ONCE : 1 - TILES_AT_ONCE]
            with tf.control_dependencies([values for _, values in before]):
                found.append(best_of(tile))
    places, values = zip(*found)
    places, values = tf.concat(places, 1), tf.concat(values, 1)
    best = tf.math.top_k(values, tf.minimum(k, first))
    return tf.gather(places, best.indices, batch_dims=1), best.values
