"""Measures the similarities that likely search results exceed.

They are in a model's metadata. `search.are_doubtful` compares results with
them.
"""

import os

import numpy as np

from tbnets.data.open import Data
from tbnets.data.sources import Sources
from tbnets.serving import search
from tbnets.serving.embedding_cache import PHOTO_BATCH_SIZE

KEPT = 0.8
"""Fraction of the right first results that are not doubtful."""
SIZES = (10, 1000)
"""Numbers of photos at which the similarity is measured. In between, it is
interpolated."""


def likely_similarities(similarities, caption_to_image):
    """Returns `search.LIKELY`: [number of photos, similarity] pairs.

    `similarities`, float `[m, n]`, compares captions with photos, and
    `caption_to_image`, int `[m]`, contains the row of each caption's photo. For
    each of `SIZES`, the photos are divided into random groups of this size, and
    each caption is searched in the group of its photo. A pair contains the
    similarity that `KEPT` of the right first results exceed.
    """
    num_photos, pairs = similarities.shape[1], []
    order = np.random.default_rng(0).permutation(num_photos)
    for size in sorted({min(size, num_photos) for size in SIZES}):
        values = []
        for group in np.array_split(order, max(1, num_photos // size)):
            queries = np.flatnonzero(np.isin(caption_to_image, group))
            rows, first = search.best(similarities[queries][:, group], 1)
            is_right = group[rows[:, 0]] == caption_to_image[queries]
            values.append(first[is_right, 0])
        least = np.quantile(np.concatenate(values), 1 - KEPT)
        pairs.append([size, round(float(least), 4)])
    return pairs


def measure(model, captions, images):
    """Returns a model's `likely_similarities` on the split dev, as metadata.

    `captions` is a caption file, and `images` is the folder of its photos.
    Missing splits are drawn as in training.
    """
    data = Data(Sources(data_root="", captions=os.fspath(captions)))
    dev = data.read_records("dev")
    table = model.compare(*embed_split(model, dev, images)).T
    return {search.LIKELY: likely_similarities(table, dev.caption_to_image)}


def embed_split(model, records, images):
    """Returns the embeddings of the photos and of the captions of a split.

    `records` is a `CaptionedImages`, and `images` the folder of its photos.
    """
    paths = [os.path.join(images, name) for name in records.names]
    return (
        search.embed(model.embed_images, paths, "image", PHOTO_BATCH_SIZE),
        search.embed(model.embed_text, records.captions, "caption"),
    )
