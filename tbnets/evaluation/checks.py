"""What evaluation is given, checked before anything is computed."""

import numpy as np

from tbnets.checked_numbers import checked_rows
from tbnets.errors import InputError
from tbnets.evaluation import exact_scores

# Inner products up to this stay well inside float32.
LARGEST_SCORE = 1e37


def checked_recall_at(recall_at):
    """Returns cut-offs as a tuple, or says what is wrong with them."""
    values = tuple(recall_at)
    whole = all(isinstance(k, (int, np.integer)) for k in values)
    if not values or not whole or min(values) < 1:
        raise InputError(
            "`recall_at` must be one or more whole numbers of at least 1. "
            f"Received: recall_at={recall_at}. Use for example (1, 5, 10)."
        )
    return values


def checked_arrays(image_embeddings, text_embeddings, caption_to_image):
    """Checks dtypes, shapes and row numbers, without reading the embeddings.

    Args:
      image_embeddings: [num_images, dim].
      text_embeddings: [num_captions, dim].
      caption_to_image: int [num_captions], row of the image of each caption.

    Returns:
      The same as arrays, `caption_to_image` as int64.

    Raises:
      ValueError: A dtype or shape is wrong, or a row number out of range.
    """
    images = checked_embeddings("image_embeddings", image_embeddings)
    texts = checked_embeddings("text_embeddings", text_embeddings)
    if images.shape[1] != texts.shape[1]:
        raise InputError(
            "`text_embeddings` must have as many columns as "
            "`image_embeddings`. Received: image_embeddings.shape="
            f"{images.shape}, text_embeddings.shape={texts.shape}. Pass "
            "embeddings of one shared space, images first."
        )
    rows = checked_rows(
        "caption_to_image", caption_to_image, len(images), len(texts)
    )
    return images, texts, rows


def checked_embeddings(name, values):
    """Returns an array of real numbers [rows, dim], or says what is wrong."""
    values = np.asarray(values)
    real = values.dtype.kind in "fiu" or values.dtype.name == "bfloat16"
    if not real:
        raise InputError(
            f"`{name}` must hold real numbers. Received: {name}.dtype="
            f"{values.dtype}. Save the embeddings as float32 or float16."
        )
    if values.ndim != 2 or 0 in values.shape:
        raise InputError(
            f"`{name}` must have the shape [rows, dim] with at least one row "
            f"and one column. Received: {name}.shape={values.shape}. Pass one "
            "embedding per row."
        )
    return values


def finite_float32(name, values):
    """Returns float32 embeddings [n, dim] and their float64 norms [n]."""
    with np.errstate(over="ignore"):  # Reported below as non-finite.
        embeddings = np.ascontiguousarray(values, np.float32)
    norms = exact_scores.row_norms(embeddings)
    bad_rows = np.flatnonzero(~np.isfinite(norms))
    if bad_rows.size:
        bad = ~np.isfinite(embeddings[bad_rows])
        row, column = bad_rows[0], int(np.argmax(bad[0]))
        raise InputError(
            f"`{name}` must be finite in float32. Received: {name}[{row}, "
            f"{column}]={values[row, column]}, and {np.count_nonzero(bad)} "
            f"non-finite values in {bad_rows.size} of {len(values)} rows. "
            "Look for a diverged model or a zero vector that was normalised."
        )
    return embeddings, norms


def check_scale(image_norms, text_norms):
    """Raises if inner products of rows of such norms may leave float32."""
    largest = max(image_norms.max(), text_norms.max())
    if largest**2 > LARGEST_SCORE:
        raise InputError(
            "`image_embeddings` and `text_embeddings` must have inner products "
            "that fit in float32. Received: a row with Euclidean norm "
            f"{largest:.3g}. L2-normalise the rows."
        )


def finite_scores(values, name):
    """Returns scores as float32, or says which one is no number.

    Args:
        values: numbers of any shape.
        name: function of the indices of one of them -> what it is a score of.

    Raises:
        ValueError: one is not finite in float32.
    """
    with np.errstate(over="ignore"):  # Reported below as non-finite.
        scores = np.asarray(values).astype(np.float32, copy=False)
    bad = np.argwhere(~np.isfinite(scores))
    if len(bad):
        raise InputError(
            "`scores` must be finite in float32. Received: "
            f"{scores[tuple(bad[0])]} for {name(*bad[0])}, and {len(bad)} "
            f"such scores of {scores.size}. Look for a diverged model."
        )
    return scores
