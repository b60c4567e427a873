"""Recall and ranks of image-text retrieval, from embeddings alone."""

from collections.abc import Callable, Sequence

import numpy as np

from tbnets.annotations import Array, Integers
from tbnets.checked_numbers import checked_number
from tbnets.errors import InputError, InputTypeError
from tbnets.evaluation import checks, exact_scores, pair_ranks, ranking
from tbnets.evaluation.ranks import RECALL_AT, Ranks, Side, summarize_ranks


def evaluate_retrieval(
    image_embeddings: Array,
    text_embeddings: Array,
    caption_to_image: Integers,
    *,
    recall_at: Sequence[int] = RECALL_AT,
    memory_limit_mb: float = 512,
    text_to_text: bool = True,
    positives: Array | None = None,
) -> dict[str, float]:
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

    Where `positives` tell what matches, of a query any number, the first two
    directions are measured by these, and have two numbers more, means over
    queries, of a query with R positives: `r_precision`, the share of them
    among the first R, and `map_at_r`::

        1/R sum_{i=1}^{R} P(i) [the i-th is a positive]

    with P(i) the share of positives among the first i. What ties with a
    positive and is none comes before it here too.

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
      positives: bool [num_images, num_captions], True where an image and a
        caption match, or int [n, 2], the rows of both for each match. None:
        those that `caption_to_image` tells, which always tells what captions
        of one image are. Scores of 4 million pairs are held at once.

    Returns:
      Flat dict of floats.

    Raises:
      ValueError: A dtype or shape is wrong, a row number is out of range, or
        an embedding is not finite.

    Source: Wang et al. 2018, Sec. 5 (recall at k, both directions; captions
      against captions as in Sec. 5.2). Departures: ties, any number of
      captions per image. With positives: Chun et al. 2022 (ECCV Caption),
      Sec. 4.1, and Musgrave et al. 2020, Sec. 3.2 (R-Precision, mAP@R);
      recalls as Parekh et al. 2021 (Crisscrossed Captions) count them.
    """
    recall_at = checks.checked_recall_at(recall_at)
    embeddings = image_embeddings, text_embeddings
    if positives is None:
        ranks = retrieval_ranks(
            *embeddings,
            caption_to_image,
            memory_limit_mb=memory_limit_mb,
            text_to_text=text_to_text,
        )
        return summarize_ranks(ranks, recall_at)
    *embeddings, groups = checks.checked_arrays(*embeddings, caption_to_image)
    names = "image_embeddings", "text_embeddings"
    scores = pair_ranks.EmbeddingScores(*embeddings, names)
    pairs = pair_ranks.pairs_of(positives, scores.shape)
    both = {"image_to_text": (scores, pairs)}
    both["text_to_image"] = scores.T, pairs[:, ::-1]
    ranks, precise = {}, {}
    for direction, given in both.items():
        ranks[direction], found = pair_ranks.precise_ranks(*given)
        for name, values in found.items():
            precise[f"{direction}/{name}"] = float(np.mean(values))
    if text_to_text:
        texts = checks.finite_float32(names[1], embeddings[1])
        ranks["text_to_text"] = _captions_ranks(texts, groups, memory_limit_mb)
    return summarize_ranks(ranks, recall_at) | precise


def retrieval_ranks(
    image_embeddings: Array,
    text_embeddings: Array,
    caption_to_image: Integers,
    *,
    memory_limit_mb: float = 512,
    text_to_text: bool = True,
) -> dict[str, Ranks]:
    """Ranks the best positive of every query.

    Args:
      image_embeddings: [num_images, dim], L2-normalised.
      text_embeddings: [num_captions, dim], L2-normalised.
      caption_to_image: int [num_captions], row of the image of each caption.
      memory_limit_mb: MiB for tiles and their temporaries.
      text_to_text: rank captions against captions too.

    Returns:
      Dict from direction to `ranks.Ranks`, whose `queries` are rows of the
      query side, `ranks` their 1-based ranks, and `tied` whether a wrong
      candidate had exactly the score of the best positive.

    Raises:
      ValueError: A dtype or shape is wrong, a row number is out of range, or
        an embedding is not finite.

    Example:
      ranks = tbnets.retrieval_ranks(images, texts, caption_to_image)
      ranks["text_to_image"].ranks  # (num_captions,), 1 is best
    """
    checked_number("memory_limit_mb", memory_limit_mb, 0, above=True)
    images, texts, groups = checks.checked_arrays(
        image_embeddings, text_embeddings, caption_to_image
    )
    images = checks.finite_float32("image_embeddings", images)
    texts = checks.finite_float32("text_embeddings", texts)
    image_side = Side(*images, np.arange(len(images[0])))
    text_side = Side(*texts, groups)
    pairs = groups, np.arange(len(groups))
    positives = exact_scores.pair_scores(image_side, text_side, *pairs)
    best = np.full(len(images[0]), -np.inf, np.float32)
    np.maximum.at(best, groups, positives)
    image_side.set_best(best, text_side)
    text_side.set_best(positives, image_side)
    ranking.count_better(image_side, text_side, memory_limit_mb)
    result = {
        "image_to_text": image_side.result(),
        "text_to_image": text_side.result(),
    }
    if text_to_text:
        result["text_to_text"] = _captions_ranks(texts, groups, memory_limit_mb)
    return result


def _captions_ranks(texts, groups, memory_limit_mb):
    """Returns the `Ranks` of captions among captions.

    Args:
      texts: their embeddings and norms.
      groups: int64 [num_captions], the image of each.
      memory_limit_mb: MiB for tiles and their temporaries.
    """
    side = Side(*texts, groups)
    side.set_best(_best_other_caption(side), side)
    ranking.count_better(side, side, memory_limit_mb)
    return side.result()


def _best_other_caption(side):
    """Returns each caption's best score with another caption of its image.

    Args:
      side: `ranks.Side` of the captions.

    Returns:
      float32 [num_captions], -inf for the only caption of an image.
    """
    order = np.argsort(side.groups, kind="stable")
    groups, place = side.groups[order], np.arange(len(order))
    first = np.searchsorted(groups, groups, "left")
    counts = np.searchsorted(groups, groups, "right") - first
    best = np.full(len(order), -np.inf, np.float32)
    # The s-th next caption of the same image, going round, for all at once.
    for step in range(1, counts.max()):
        here = np.flatnonzero(counts > step)
        there = first[here] + (place[here] - first[here] + step) % counts[here]
        scores = exact_scores.pair_scores(side, side, order[here], order[there])
        best[order[here]] = np.maximum(best[order[here]], scores)
    return best


def bootstrap_interval(
    ranks: Integers,
    statistic: Callable[[np.ndarray], float],
    num_samples: int = 1000,
    seed: int = 0,
    confidence: float = 0.95,
) -> tuple[float, float]:
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

    Example:
      ranks = tbnets.retrieval_ranks(images, texts, caption_to_image)
      tbnets.bootstrap_interval(
          ranks["image_to_text"].ranks, lambda ranks: np.mean(ranks <= 1))
    """
    ranks = np.asarray(ranks)
    if ranks.ndim != 1 or not ranks.size:
        raise InputError(
            "`ranks` must be those of at least one query. Received: "
            f"ranks.shape={ranks.shape}. Pass the `ranks` of one direction."
        )
    if not callable(statistic):
        raise InputTypeError(
            "`statistic` must be a function of ranks. Received: "
            f"statistic={statistic!r}. Give for example numpy.median."
        )
    checked_number("num_samples", num_samples, 1, whole=True)
    checked_number("confidence", confidence, 0, most=1)
    generator = np.random.default_rng(seed)
    count = len(ranks)
    draws = (generator.integers(0, count, count) for _ in range(num_samples))
    values = [statistic(ranks[rows]) for rows in draws]
    tail = (1 - confidence) / 2
    low, high = np.quantile(values, [tail, 1 - tail])
    return float(low), float(high)
