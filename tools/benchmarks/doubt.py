"""Measures which search results are doubtful, on captions of a test split.

Each caption is a query twice in collections of several sizes: once with its
photo, and once after its photo has been removed.
"""

import numpy as np

from tbnets.data.captions import read_captions
from tbnets.serving import search, zoo
from tbnets.serving.doubt import embed_split

SIZES = 10, 100, 500, 1000


def run(options):
    """Prints a table with a row per size of the collection.

    `rejected` is how many first results are doubtful without the photo.
    """
    model = zoo.open_model(options.model)
    records = read_captions(options.captions, "test")
    photos, texts = embed_split(model, records, options.images)
    table = model.compare(photos, texts).T
    owners, rng = records.caption_to_image, np.random.default_rng(0)
    print("photos  right  kept  marked  right of likely  rejected")
    for size in sorted({min(size, len(photos)) for size in SIZES}):
        rows = rng.permutation(len(photos))
        groups = np.split(rows, range(size, len(rows) - size + 1, size))
        parts = [_searched(model, table, owners, records, g) for g in groups]
        right, is_doubtful, is_rejected = map(np.concatenate, zip(*parts))
        cells = (
            right.mean(),
            1 - is_doubtful[right].mean(),
            is_doubtful.mean(),
            right[~is_doubtful].mean(),
            is_rejected.mean(),
        )
        print(f"{size:6}  " + "  ".join(f"{100 * x:5.1f}" for x in cells))


def _searched(model, table, owners, records, rows):
    """Searches photos for each caption, with and without its photo.

    Returns bool arrays with an entry per caption: whether its photo is the
    first result, whether the first result is doubtful, and whether the first
    result is doubtful after the photo has been removed.
    """
    queries = np.flatnonzero(np.isin(owners, rows))
    captions = [records.captions[query] for query in queries]
    own = rows == owners[queries, None]
    values = table[queries][:, rows]
    order, first = search.best(values, 1)
    right = np.take_along_axis(own, order, axis=1)[:, 0]
    _, without = search.best(np.where(own, -np.inf, values), 1)
    count = len(rows)
    return (
        right,
        search.are_doubtful(model, captions, first, count)[:, 0],
        search.are_doubtful(model, captions, without, count)[:, 0],
    )
