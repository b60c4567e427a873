"""Makes benchmark arrays that are identical in all processes."""

import numpy as np

NAMES = "images", "texts", "image_ids", "owners"
MARGIN = 0.2
NUM_NEGATIVES = 10
TEMPERATURE = 0.05
NOISE = 8.0
"""Amount of noise that moves some captions closer to a wrong image."""
IMAGE_DIM, TEXT_DIM, HIDDEN_DIM = 4096, 6000, 2048


def unit(rows):
    """Scales rows to length 1."""
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def unit_rows(count, dim, seed=0):
    """Returns random rows of length 1, float32 `[count, dim]`."""
    rng = np.random.default_rng(seed)
    return unit(rng.standard_normal((count, dim), np.float32))


def embeddings(num_images, captions_per_image, dim, noise=NOISE):
    """Makes a dict of unit embeddings and ids, with the keys `NAMES`.

    A caption's embedding is its image's embedding plus noise. `owners` contains
    the image row of each caption.
    """
    owners = np.repeat(np.arange(num_images), captions_per_image)
    images = unit_rows(num_images, dim)
    texts = unit_rows(len(owners), dim, seed=1)
    texts *= np.float32(noise)
    texts += images[owners]
    rows = images, unit(texts), np.arange(num_images), owners
    return dict(zip(NAMES, rows))


def features(num_images, captions_per_image, *dims):
    """Makes ids, and random image and caption features of sizes `dims`."""
    arrays = embeddings(num_images, captions_per_image, 1)
    for seed, (name, dim) in enumerate(zip(NAMES, dims)):
        rng = np.random.default_rng(seed)
        shape = len(arrays[name]), dim
        arrays[name] = rng.standard_normal(shape, np.float32)
    return arrays


def step(num_images, captions_per_image, dim):
    """Makes image and caption features, ids and initial weights."""
    arrays = features(num_images, captions_per_image, IMAGE_DIM, TEXT_DIM)
    rng = np.random.default_rng(2)
    for side, width in (("image", IMAGE_DIM), ("text", TEXT_DIM)):
        for layer, shape in enumerate([(width, HIDDEN_DIM), (HIDDEN_DIM, dim)]):
            weights = rng.standard_normal(shape, np.float32)
            arrays[f"{side}_{layer}"] = weights / np.float32(shape[0] ** 0.5)
    return arrays


def matches(arrays):
    """Returns a bool array `[images, captions]` of the matching pairs."""
    return arrays["image_ids"][:, None] == arrays["owners"][None]


def recall_sum(owners, captions, photos):
    """Sums recall at 1, 5 and 10, in per cent, over both directions.

    `owners` contains the image row of each caption. `captions`, `[images, 10]`,
    and `photos`, `[captions, 10]`, contain rows of best results.
    """
    right = (
        owners[captions] == np.arange(len(captions))[:, None],
        photos == owners[:, None],
    )
    return 100 * sum(
        hits[:, :k].any(axis=1).mean() for hits in right for k in (1, 5, 10)
    )
