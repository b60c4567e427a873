"""What every row of a table is given: the same NumPy arrays, and numbers."""

import numpy as np

from tbnets import startup

MARGIN = 0.2
NUM_NEGATIVES = 10
TEMPERATURE = 0.05
WORD_DIM = 300
NOISE = 8.0
"""A caption is its image plus so much noise: some are nearer to others."""
IMAGE_DIM, TEXT_DIM, HIDDEN_DIM = 4096, 6000, 2048


def embeddings(num_images, captions_per_image, dim):
    """Makes unit embeddings of images, of captions near theirs, and ids.

    Args:
        num_images: images of a batch.
        captions_per_image: captions of each.
        dim: size of an embedding.

    Returns:
        Dict of arrays: `images`, `texts` float32 `[n, dim]`, `image_ids` and
        `owners`, the row of the image of each caption.
    """
    rng = np.random.default_rng(0)
    owners = np.repeat(np.arange(num_images), captions_per_image)
    images = _unit(rng.standard_normal((num_images, dim), np.float32))
    noise = _unit(rng.standard_normal((len(owners), dim), np.float32))
    return {
        "images": images,
        "texts": _unit(images[owners] + NOISE * noise),
        "image_ids": np.arange(num_images),
        "owners": owners,
    }


def step(num_images, captions_per_image, dim):
    """Makes features of images and captions, ids, and first weights."""
    made = embeddings(num_images, captions_per_image, 1)
    rng = np.random.default_rng(1)
    for side, width in (("image", IMAGE_DIM), ("text", TEXT_DIM)):
        rows = len(made["images" if side == "image" else "owners"])
        made[f"{side}s"] = rng.standard_normal((rows, width), np.float32)
        for layer, shape in enumerate([(width, HIDDEN_DIM), (HIDDEN_DIM, dim)]):
            weights = rng.standard_normal(shape, np.float32)
            made[f"{side}_{layer}"] = weights / np.float32(shape[0] ** 0.5)
    return made


def _unit(rows):
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def matches(arrays):
    """Returns bool `[images, captions]`: which belong together."""
    return arrays["image_ids"][:, None] == arrays["owners"][None]


def labels(arrays):
    """Returns the label of each row where images and captions are one view."""
    return np.concatenate([arrays["image_ids"], arrays["owners"]])


def one_view(arrays):
    """Returns the arrays with all rows of both views on both sides."""
    rows = np.concatenate([arrays["images"], arrays["texts"]])
    return {"images": rows, "texts": rows}


def recall_sum(owners, captions, photos):
    """Adds recalls at 1, 5 and 10 of both directions, in per cent.

    Args:
        owners: row of the image of each caption.
        captions: `[images, 10]`, the best captions of each image.
        photos: `[captions, 10]`, the best images of each caption.
    """
    right = (
        owners[captions] == np.arange(len(captions))[:, None],
        photos == owners[:, None],
    )
    return 100 * sum(
        one[:, :k].any(axis=1).mean() for one in right for k in (1, 5, 10)
    )


def trees(num_captions, _, units):
    """Makes captions of 12 words with trees, word vectors, and weights."""
    with startup.quiet_tensorflow():
        from benchmarks import tree_lstm
        from tbnets.text.packed_trees import pack_trees

        rows = tree_lstm.tree_rows(num_captions)
        packed = pack_trees(rows)
    rng = np.random.default_rng(0)

    def drawn(*shape):
        scale = np.float32(shape[-2] ** -0.5)
        return scale * rng.standard_normal(shape, np.float32)

    return {
        "rows": rows,
        "children": packed.children.numpy(),
        "parents": packed.parents.numpy(),
        "num_nodes": packed.ends.numpy()[0],
        "words": drawn(len(packed.word_ids), WORD_DIM),
        "kernel": drawn(WORD_DIM, 3 * units),
        "gates": drawn(units, 3 * units),
        "forget": drawn(units, units),
    }
