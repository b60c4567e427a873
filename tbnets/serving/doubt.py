"""Measures the similarity that likely search results exceed.

It is one number in a model's metadata. `search.are_doubtful` compares results
with it.
"""

import os

import numpy as np

from tbnets.data.open import Data
from tbnets.data.sources import Sources
from tbnets.serving import search
from tbnets.serving.embedding_cache import PHOTO_BATCH_SIZE

KEPT = 0.8
"""Fraction of the right first results that are not doubtful."""


def likely_similarity(similarities, caption_to_image):
    """Returns the similarity that `KEPT` of the right first results exceed.

    `similarities`, float `[m, n]`, compares captions with photos, and
    `caption_to_image`, int `[m]`, contains the row of each caption's photo.
    """
    order, values = search.best(similarities, 1)
    is_right = order[:, 0] == caption_to_image
    return round(float(np.quantile(values[is_right, 0], 1 - KEPT)), 4)


def measure(model, captions, images):
    """Returns a model's `likely_similarity` on the split dev, as metadata.

    `captions` is a caption file, and `images` is the folder of its photos.
    Missing splits are drawn as in training.
    """
    data = Data(Sources(data_root="", captions=os.fspath(captions)))
    dev = data.read_records("dev")
    paths = [os.path.join(images, name) for name in dev.names]
    photos = search.embed(model.embed_images, paths, "image", PHOTO_BATCH_SIZE)
    texts = search.embed(model.embed_text, dev.captions, "caption")
    table = model.compare(photos, texts).T
    return {search.LIKELY: likely_similarity(table, dev.caption_to_image)}
