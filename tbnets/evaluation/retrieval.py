"""Recall and ranks of image-text retrieval, from embeddings alone."""

import numpy as np

from tbnets.errors import InputError
from tbnets.evaluation import exact_scores, ranking

RECALL_AT = (1, 5, 10)
# Inner products up to this stay well inside float32.
LARGEST_SCORE = 1e37


def evaluate_retrieval(
    image_embeddings,
    text_embeddings,
    caption_to_image,
    *,
    recall_at: tuple = RECALL_AT,
    memory_limit_mb: float = 512,
    text_to_text: bool = True,
) -> dict:
    """Measures how well embeddings retrieve captions and images.

    Each direction gives `<direction>/recall_at_<k>` (fraction in [0, 1] of
    the queries whose best positive is among the first k), `/median_rank`,
    `/mean_rank`, `/num_queries` and `/tie_rate`. Directions are
    `image_to_text`, `text_to_image` and `text_to_text`. The first two are
    summed up by `mean_recall` (fraction, over both directions and all k) and
    `recall_sum` (the same recalls added in per cent, at most 600 for three k:
    the field's rsum).

    The rank of a query is one more than the number of candidates that are not
    its positives and score at least as high as its best positive: ties count
    against the model. `tie_rate` is the fraction of queries with such a tie.
    The median is `floor(median(ranks - 1)) + 1`, which is what the field
    prints; it differs from the plain median for an even number of queries.
    A direction without queries has `num_queries` 0 and no other key.

    Example:
      metrics = tbnets.evaluate_retrieval(images, texts, caption_to_image)
      print(metrics["image_to_text/recall_at_1"], metrics["recall_sum"])

    Args:
      image_embeddings: [num_images, dim], L2-normalised. Scores are inner
        products: rows are not normalised again.
      text_embeddings: [num_captions, dim], L2-normalised.
      caption_to_image: int [num_captions], row of the image of each caption.
        Rows come in any order; an image without captions is a candidate but
        no query.
      recall_at: the cut-offs k.
      memory_limit_mb: MiB for tiles and their temporaries, beside the
        embeddings in float32. The result does not depend on it.
      text_to_text: measure captions against captions too.

    Returns:
      Flat dict of floats.

    Raises:
      ValueError: A dtype or shape is wrong, a row number is out of range, or
        an embedding is not finite.

    Source: Wang et al. 2018, Sec. 5 (recall at k, both directions; captions
      against captions as in Sec. 5.2). Departures: ties, any number of
      captions per image.
    """
    recall_at = checked_recall_at(recall_at)
    ranks = retrieval_ranks(
        image_embeddings,
        text_embeddings,
        caption_to_image,
        memory_limit_mb=memory_limit_mb,
        text_to_text=text_to_text,
    )
    return summarize_ranks(ranks, recall_at)


def retrieval_ranks(
    image_embeddings,
    text_embeddings,
    caption_to_image,
    *,
    memory_limit_mb: float = 512,
    text_to_text: bool = True,
) -> dict:
    """Ranks the best positive of every query.

    Args:
      image_embeddings: [num_images, dim], L2-normalised.
      text_embeddings: [num_captions, dim], L2-normalised.
      caption_to_image: int [num_captions], row of the image of each caption.
      memory_limit_mb: MiB for tiles and their temporaries.
      text_to_text: rank captions against captions too.

    Returns:
      Dict from direction to `ranking.Ranks`, whose `queries` are rows of the
      query side, `ranks` their 1-based ranks, and `tied` whether a wrong
      candidate had exactly the score of the best positive.

    Raises:
      ValueError: A dtype or shape is wrong, a row number is out of range, or
        an embedding is not finite.
    """
    if not memory_limit_mb > 0:
        raise InputError(
            "`memory_limit_mb` must be positive. Received: "
            f"memory_limit_mb={memory_limit_mb}. Give the MiB that tiles may "
            "take, for example 512."
        )
    images, texts, groups = checked_arrays(
        image_embeddings, text_embeddings, caption_to_image
    )
    images, image_norms = finite_float32("image_embeddings", images)
    texts, text_norms = finite_float32("text_embeddings", texts)
    check_scale(image_norms, text_norms)
    image_side = ranking.Side(images, image_norms, np.arange(len(images)))
    text_side = ranking.Side(texts, text_norms, groups)
    positives = exact_scores.pair_scores(
        image_side, text_side, groups, np.arange(len(texts))
    )
    best = np.full(len(images), -np.inf, np.float32)
    np.maximum.at(best, groups, positives)
    image_side.set_best(best, text_norms.max())
    text_side.set_best(positives, image_norms.max())
    ranking.count_better(image_side, text_side, memory_limit_mb)
    result = {
        "image_to_text": image_side.result(),
        "text_to_image": text_side.result(),
    }
    if text_to_text:
        side = ranking.Side(texts, text_norms, groups)
        side.set_best(_best_other_caption(side), text_norms.max())
        ranking.count_better(side, side, memory_limit_mb)
        result["text_to_text"] = side.result()
    return result


def _best_other_caption(side):
    """Returns each caption's best score with another caption of its image.

    Args:
      side: `ranking.Side` of the captions.

    Returns:
      float32 [num_captions], -inf for the only caption of an image.
    """
    order = np.argsort(side.groups, kind="stable")
    _, first, inverse, counts = np.unique(
        side.groups[order],
        return_index=True,
        return_inverse=True,
        return_counts=True,
    )
    first, counts = first[inverse], counts[inverse]
    place = np.arange(len(order))
    best = np.full(len(order), -np.inf, np.float32)
    # The s-th next caption of the same image, going round, for all at once.
    for step in range(1, counts.max()):
        here = np.flatnonzero(counts > step)
        there = first[here] + (place[here] - first[here] + step) % counts[here]
        scores = exact_scores.pair_scores(side, side, order[here], order[there])
        best[order[here]] = np.maximum(best[order[here]], scores)
    return best


def summarize_ranks(ranks: dict, recall_at: tuple = RECALL_AT) -> dict:
    """Turns ranks into the flat metrics of `evaluate_retrieval`.

    Args:
      ranks: dict from direction to `ranking.Ranks`.
      recall_at: the cut-offs k.

    Returns:
      Flat dict of floats.
    """
    recall_at = checked_recall_at(recall_at)
    metrics = {}
    recalls = []
    for direction, found in ranks.items():
        summary = summarize_direction(found, recall_at)
        for name, value in summary.items():
            metrics[f"{direction}/{name}"] = value
            if direction != "text_to_text" and name.startswith("recall_at_"):
                recalls.append(value)
    metrics["mean_recall"] = float(np.mean(recalls))
    metrics["recall_sum"] = float(100 * np.sum(recalls))
    return metrics


def summarize_direction(ranks, recall_at: tuple = RECALL_AT) -> dict:
    """Turns the ranks of one direction into its metrics.

    Args:
      ranks: `ranking.Ranks`.
      recall_at: the cut-offs k.

    Returns:
      Dict of floats: `num_queries` and, where there are any, `recall_at_<k>`,
      `median_rank`, `mean_rank` and `tie_rate` of `evaluate_retrieval`.
    """
    values = ranks.ranks
    metrics = {"num_queries": float(len(values))}
    if not len(values):
        return metrics
    for k in checked_recall_at(recall_at):
        metrics[f"recall_at_{k}"] = float(np.mean(values <= k))
    metrics["median_rank"] = float(np.floor(np.median(values - 1)) + 1)
    metrics["mean_rank"] = float(np.mean(values))
    metrics["tie_rate"] = float(np.mean(ranks.tied))
    return metrics


def bootstrap_interval(
    ranks,
    statistic,
    num_samples: int = 1000,
    seed: int = 0,
    confidence: float = 0.95,
) -> tuple:
    """Estimates how far a statistic of ranks depends on the queries drawn.

    Args:
      ranks: int [num_queries].
      statistic: function of such an array, for example
        `lambda ranks: np.mean(ranks <= 1)`.
      num_samples: resamples with replacement.
      seed: seed of the resampling.
      confidence: share of the resampled values inside the interval.

    Returns:
      (low, high), the percentile interval.
    """
    ranks = np.asarray(ranks)
    if ranks.ndim != 1 or not ranks.size:
        raise InputError(
            "`ranks` must have the shape [num_queries] with at least one "
            f"query. Received: ranks.shape={ranks.shape}. Pass the `ranks` "
            "of one direction."
        )
    generator = np.random.default_rng(seed)
    values = [
        statistic(ranks[generator.integers(0, len(ranks), len(ranks))])
        for _ in range(num_samples)
    ]
    tail = (1 - confidence) / 2
    low, high = np.quantile(values, [tail, 1 - tail])
    return float(low), float(high)


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
    rows = checked_caption_to_image(caption_to_image, len(images), len(texts))
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


def checked_caption_to_image(values, num_images, num_captions):
    """Checks the rows of images that captions are said to belong to.

    Args:
      values: int [num_captions].
      num_images: how many images there are.
      num_captions: how many captions.

    Returns:
      int64 [num_captions].

    Raises:
      ValueError: they are no integers, too many or too few, or out of range.
    """
    values = np.asarray(values)
    if values.dtype.kind not in "iu":
        raise InputError(
            "`caption_to_image` must be integers. Received: "
            f"caption_to_image.dtype={values.dtype}. Large ids merge when "
            "they pass through a float: keep row numbers as int64."
        )
    if values.shape != (num_captions,):
        raise InputError(
            "`caption_to_image` must have one entry per row of "
            "`text_embeddings`. Received: caption_to_image.shape="
            f"{values.shape}, rows of text_embeddings={num_captions}. Pass "
            "the image row of every caption, in the captions' order."
        )
    outside = np.flatnonzero((values < 0) | (values >= num_images))
    if outside.size:
        first = outside[0]
        raise InputError(
            "`caption_to_image` must hold rows of `image_embeddings`, 0 to "
            f"{num_images - 1}. Received: caption_to_image[{first}]="
            f"{values[first]}, and {outside.size} entries out of range. Use "
            "0-based rows, not image ids."
        )
    return values.astype(np.int64)
