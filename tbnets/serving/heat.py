"""Computes heat maps that show where a photo matches a text."""

import numpy as np

SHARPNESS = 0.5
"""Temperature of the weights in `points`, in standard deviations of a map."""


def heat_maps(model, photos, texts):
    """Computes a heat map for each of `n` photos and each of `m` texts.

    Returns float32 `[n, m, height, width]`. The mean of a heat map approximates
    the similarity of the photo and the text (see `endpoints.embed_map`).
    """
    cells, texts = model.embed_cells(photos), model.embed_text(texts)
    return np.einsum("nyxd,md->nmyx", cells, texts, optimize=True)


def points(heat):
    """Returns the mean position in each map, weighted by softmax of the heat.

    `heat` is float `[n, height, width]`. Returns float `[n, 2]`: x and y, as
    fractions of the width and the height.
    """
    deviations = np.maximum(heat.std(axis=(1, 2), keepdims=True), 1e-12)
    peaks = heat.max(axis=(1, 2), keepdims=True)
    weights = np.exp((heat - peaks) / (SHARPNESS * deviations))
    weights /= weights.sum(axis=(1, 2), keepdims=True)
    height, width = heat.shape[1:]
    x = weights.sum(axis=1) @ ((np.arange(width) + 0.5) / width)
    y = weights.sum(axis=2) @ ((np.arange(height) + 0.5) / height)
    return np.stack([x, y], axis=1)
