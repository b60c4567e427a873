"""Checks arguments of evaluation functions."""

import warnings

import numpy as np

from tbnets.checks import checked_rows
from tbnets.errors import InputError


def checked_arrays(
    image_embeddings, text_embeddings, caption_to_image, image_groups=None
):
    """Checks the arrays of `evaluate_retrieval`, and returns them."""
    images, texts = checked_embeddings(
        image_embeddings=image_embeddings, text_embeddings=text_embeddings
    )
    counts = len(images), len(texts)
    groups = caption_to_image, image_groups
    return images, texts, *checked_groups(*groups, *counts)


def checked_groups(caption_to_image, image_groups, num_images, num_texts):
    """Returns the image of each caption and the group of each image."""
    counts = num_images, num_texts
    rows = checked_rows("caption_to_image", caption_to_image, *counts)
    if image_groups is None:
        return rows, np.arange(num_images)
    unbounded = np.iinfo(np.int64).max
    names = "image_groups", image_groups
    return rows, checked_rows(*names, unbounded, num_images)


def checked_embeddings(**named):
    """Checks that two arrays `[rows, dim]` have equal `dim`; returns both."""
    arrays = {name: np.asarray(each) for name, each in named.items()}
    for name, values in arrays.items():
        kind, shape = values.dtype, values.shape
        is_real = kind.kind in "fiu" or kind.name == "bfloat16"
        if not is_real or len(shape) != 2 or 0 in shape:
            raise InputError(
                name,
                "hold real numbers of shape [rows, dim], both >= 1",
                f"{name}.shape={shape}, dtype {kind}",
                "Pass one float32 or float16 embedding per row.",
            )
    (first, first_rows), (name, second_rows) = arrays.items()
    if first_rows.shape[1] != second_rows.shape[1]:
        raise InputError(
            name,
            f"have as many columns as `{first}`",
            f"{first}.shape={first_rows.shape}, "
            f"{name}.shape={second_rows.shape}",
            "Pass embeddings of a shared space.",
        )
    return first_rows, second_rows


def warn_of_bfloat16(name, dtype):
    """Warns about the argument `name` if its dtype is bfloat16."""
    if dtype.name == "bfloat16":
        warnings.warn(
            f"`{name}` should be float32. Received: bfloat16, whose rounding "
            "causes ties and changes ranks. Pass the float32 embeddings.",
            stacklevel=2,
        )


def finite_scores(values, rows=None, name="scores"):
    """Checks that all scores are finite; returns them as float32.

    Error messages contain the number in `rows` of a bad row, or its position if
    `rows` is None.
    """
    values = np.asarray(values)
    warn_of_bfloat16(name, values.dtype)
    with np.errstate(over="ignore"):  # Reported below as non-finite.
        scores = values.astype(np.float32, copy=False)
    bad = np.argwhere(~np.isfinite(scores))
    if len(bad):
        value, place = values[tuple(bad[0])], bad[0].tolist()
        if rows is not None:
            place[0] = int(rows[place[0]])
        raise InputError(
            name,
            "be finite in float32",
            f"{name}{place}={value}, and {len(bad)} of {scores.size} numbers "
            "are not finite",
            "Check for a diverged model or a normalised zero vector.",
        )
    return scores
