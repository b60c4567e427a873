"""Checks arguments of evaluation functions, and computes exact scores."""

import math
import warnings

import numpy as np

from tbnets.checks import checked_array, checked_rows
from tbnets.errors import InputError
from tbnets.evaluation.ranks import Side

# A pair's score is the exact inner product of float32 rows, rounded to float64
# and then to float32. It does not depend on the library, machine or position.

FLOAT64_ROUNDOFF = 2.0**-53


def row_norms(embeddings):
    """Returns the Euclidean norms of float32 rows, float64 `[n]`."""
    norms = np.empty(len(embeddings))
    step = max(1, 2**17 // embeddings.shape[1])
    for start in range(0, len(embeddings), step):
        rows = embeddings[start : start + step].astype(np.float64)
        norms[start : start + step] = np.einsum("ij,ij->i", rows, rows)
    return np.sqrt(norms)


def _round_scores(products, norms, dim):
    """Returns float32 scores, and flat indices where rounding is uncertain."""
    slack = np.multiply(norms, 1.01 * (dim + 2) * FLOAT64_ROUNDOFF, out=norms)
    scores = products.astype(np.float32)
    below = (products - slack).astype(np.float32)
    above = (products + slack).astype(np.float32)
    return scores, np.flatnonzero(below != above)


def pair_scores(rows, columns, row_index, column_index):
    """Computes the exact scores of pairs, float32 `[p]`.

    `row_index` and `column_index`, int64 `[p]`, are rows of the two `Side`s.
    """
    dim = rows.embeddings.shape[1]
    scores = np.empty(len(row_index), np.float32)
    step = max(1, 2**17 // dim)
    for start in range(0, len(row_index), step):
        i = row_index[start : start + step]
        j = column_index[start : start + step]
        x, y = rows.embeddings[i], columns.embeddings[j]
        products = np.einsum("ij,ij->i", x, y, dtype=np.float64)
        norms = rows.norms[i] * columns.norms[j]
        rounded, doubtful = _round_scores(products, norms, dim)
        for k in doubtful:
            # Products of two float32 numbers are exact in float64, and fsum
            # adds them without error.
            rounded[k] = math.fsum(x[k].astype(np.float64) * y[k])
        scores[start : start + step] = rounded
    return scores


def strip_scores(rows, columns, strip, block):
    """Returns exact scores between a strip of rows and a block of columns."""
    x = rows.embeddings[strip].astype(np.float64)
    y = columns.embeddings[block].astype(np.float64)
    norms = np.outer(rows.norms[strip], columns.norms[block])
    scores, doubtful = _round_scores(x @ y.T, norms, x.shape[1])
    i, j = np.divmod(doubtful, scores.shape[1])
    pairs = i + strip.start, j + block.start
    scores.flat[doubtful] = pair_scores(rows, columns, *pairs)
    return scores


# Maximum inner product, well within the range of float32.
LARGEST_SCORE = 1e37


def checked_recall_at(recall_at):
    """Checks that the cutoffs are integers >= 1; returns them as a tuple."""
    values = tuple(recall_at) if hasattr(recall_at, "__iter__") else ()
    whole = all(isinstance(k, (int, np.integer)) for k in values)
    if not values or not whole or min(values) < 1:
        raise InputError(
            "recall_at",
            "be integers >= 1",
            f"recall_at={recall_at}",
            "Pass for example (1, 5, 10).",
        )
    return values


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
    arrays = {name: checked_array(name, each) for name, each in named.items()}
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


def finite_side(name, values, groups):
    """Builds the `Side` of embeddings `[n, dim]`.

    Raises ValueError for the argument `name` if a score may be infinite or NaN.
    """
    _warn_of_bfloat16(name, values.dtype)
    with np.errstate(over="ignore"):  # Reported below as non-finite.
        embeddings = np.ascontiguousarray(values, np.float32)
    norms = row_norms(embeddings)
    if not np.isfinite(norms).all():
        finite_scores(values, name=name)
    if norms.max() ** 2 > LARGEST_SCORE:
        raise InputError(
            name,
            "have inner products that fit in float32",
            f"a Euclidean norm {norms.max():.3g}",
            "L2-normalise the rows.",
        )
    return Side(embeddings, norms, groups)


def _warn_of_bfloat16(name, dtype):
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
    _warn_of_bfloat16(name, values.dtype)
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
