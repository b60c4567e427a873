"""Measures how often the heat map of a phrase points into its box."""

import os
import time

import numpy as np

from tbnets.data.captions import read_captions
from tbnets.data.phrases import read_phrases
from tbnets.errors import InputError
from tbnets.serving import zoo

SHARPNESS = 0.5
"""Temperature of the weights in `_points`, in standard deviations of a map."""


def run(options):
    """Prints the share of points in the boxes, and the time per photo."""
    if not (options.images and options.captions and options.phrases):
        raise InputError(
            "`--images`, `--captions` and `--phrases` must name the photos, "
            "their captions and their phrases. Received: an empty flag."
        )
    images = read_captions(options.captions, options.split)
    phrases = read_phrases(options.phrases, images)
    model = zoo.open_model(options.model)
    points, seconds = np.empty((phrases.num_phrases, 2, 2)), []
    for row, name in enumerate(images.names):
        rows = np.flatnonzero(phrases.phrase_to_image == row)
        if not len(rows):
            continue
        start = time.perf_counter()
        texts = [phrases.phrases[i] for i in rows]
        photo = os.path.join(options.images, name)
        maps = model.heat_maps([photo], texts)[0]
        points[rows, 0] = _points(maps)
        seconds.append(time.perf_counter() - start)
        hottest = maps.reshape(len(maps), -1).argmax(axis=1)
        cells = np.stack(np.unravel_index(hottest, maps.shape[1:])[::-1], 1)
        points[rows, 1] = (cells + 0.5) / maps.shape[:0:-1]
    boxes = phrases.fractions()
    named = {
        "middle of the photo": np.full((phrases.num_phrases, 2), 0.5),
        "hottest cell": points[:, 1],
        "weighted mean": points[:, 0],
    }
    print(f"{phrases.num_phrases} phrases with a box, split {options.split}")
    for name, places in named.items():
        inside = (boxes[:, :2] <= places) & (places <= boxes[:, 2:])
        print(f"{name:20} {100 * inside.all(axis=1).mean():5.1f} % in the box")
    print(f"{1000 * np.median(seconds):.1f} ms per photo, median")


def _points(heat):
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
