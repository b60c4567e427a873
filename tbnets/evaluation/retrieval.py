"""Computes the metrics of image-text retrieval from embeddings."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from tbnets.checks import (
    Array,
    Integers,
    checked_arrays,
    checked_groups,
    checked_number,
)
from tbnets.errors import InputError, check_choice
from tbnets.evaluation import exact_ranks, score_tiles
from tbnets.evaluation.ranks import RECALL_AT, Ranks, summarize_ranks


class Protocol(NamedTuple):
    """Defines how a test set is split before evaluation.

    Attributes:
        num_images: required number of images, or None for any number.
        num_folds: number of consecutive blocks of images that are evaluated
            separately.
        description: one line for `--help`.
    """

    num_images: int | None
    num_folds: int
    description: str


PROTOCOLS = {
    "full": Protocol(None, 1, "the whole set"),
    "coco_1k": Protocol(5000, 5, "MSCOCO: 5 folds of 1000 rows, averaged"),
    "coco_5k": Protocol(5000, 1, "MSCOCO: all 5000 images at once"),
}


def evaluate_protocol(
    name: str,
    image_embeddings,
    text_embeddings,
    caption_to_image,
    image_groups=None,
    recall_at=RECALL_AT,
    **options,
) -> dict:
    """Evaluates embeddings by a standard protocol.

    A fold is a block of image rows with their captions. Metrics are averaged
    over the folds; `num_queries` is summed. The other arguments are as in
    `evaluate_retrieval` and `retrieval_ranks`.
    """
    images, texts, rows, groups = checked_arrays(
        image_embeddings, text_embeddings, caption_to_image, image_groups
    )
    metrics = []
    for fold, captions, own_rows in _folds(name, len(images), rows):
        fold_texts = texts if len(captions) == len(texts) else texts[captions]
        arrays = images[fold], fold_texts, own_rows
        ranks = retrieval_ranks(*arrays, image_groups=groups[fold], **options)
        metrics.append(summarize_ranks(ranks, recall_at))
    return _averaged(metrics)


def evaluate_scores_protocol(
    name: str, scores, caption_to_image, image_groups=None
) -> dict:
    """Evaluates `PairScores` by a protocol, like `evaluate_protocol`."""
    counts = scores.num_images, scores.num_texts
    given = caption_to_image, image_groups
    rows, groups = checked_groups(*given, *counts)
    numbers, metrics = np.arange(scores.num_images), []
    for fold, captions, own_rows in _folds(name, len(numbers), rows):
        some = scores.subset(numbers[fold], captions)
        arrays = some, own_rows, groups[fold]
        metrics.append(score_tiles.evaluate_scores(*arrays))
    return _averaged(metrics)


def _folds(name, num_images, rows):
    """Yields each fold's image slice, caption rows, and captions' images."""
    check_choice("name", name, PROTOCOLS)
    protocol = PROTOCOLS[name]
    if protocol.num_images not in (None, num_images):
        raise InputError(
            "image_embeddings",
            f"have {protocol.num_images} rows for {name}",
            num_images,
        )
    size = num_images // protocol.num_folds
    for start in range(0, size * protocol.num_folds, size):
        captions = np.flatnonzero(rows // size == start // size)
        yield slice(start, start + size), captions, rows[captions] - start


def _averaged(folds):
    metrics = {}
    for name in dict.fromkeys(name for fold in folds for name in fold):
        values = [fold[name] for fold in folds if name in fold]
        combine = np.sum if name.endswith("/num_queries") else np.mean
        metrics[name] = float(combine(values))
    return metrics


def evaluate_retrieval(
    image_embeddings: Array,
    text_embeddings: Array,
    caption_to_image: Integers | None = None,
    *,
    recall_at: Sequence[int] = RECALL_AT,
    memory_limit_mb: float = 512,
    text_to_text: bool = True,
    positives: Array | None = None,
) -> dict[str, float]:
    """Computes how well embeddings retrieve captions and images.

    The directions are `image_to_text`, `text_to_image` and `text_to_text`. Each
    has the keys `<direction>/recall_at_<k>` (fraction of queries whose best
    positive is among the first k), `/median_rank`, `/mean_rank`, `/num_queries`
    and `/tie_rate`. Two keys summarise the first two directions: `mean_recall`
    is the mean of their recalls, and `recall_sum` is their sum in per cent, at
    most 600 for three cutoffs.

    The rank of a query is 1 plus the number of negatives that score at least as
    high as its best positive, so ties count against the model. `tie_rate` is
    the fraction of queries with such a tie. The median is `floor(median(ranks -
    1)) + 1`, as in the literature. A direction without queries has only the key
    `num_queries`, which is 0.

    Pass either `caption_to_image` or `positives`. With `positives`,
    `text_to_text` is not evaluated, and each direction has two more keys. For a
    query with R positives, `r_precision` is the fraction of positives among the
    first R candidates, and `map_at_r` is::

        1/R sum_{i=1}^{R} P(i) [the i-th is a positive]

    where P(i) is the fraction of positives among the first i candidates. Both
    keys are means over queries.

    Example:
        metrics = tbnets.evaluate_retrieval(images, texts, caption_to_image)
        print(metrics["image_to_text/recall_at_1"], metrics["recall_sum"])

    Args:
        image_embeddings: `[num_images, dim]`, L2-normalised.
        text_embeddings: `[num_captions, dim]`, L2-normalised.
        caption_to_image: int `[num_captions]`, row of the caption's image; an
            image without captions is a candidate but not a query.
        recall_at: the cutoffs k.
        memory_limit_mb: MiB for tiles and temporary arrays, in addition to the
            float32 embeddings.
        text_to_text: whether to also rank captions against captions.
        positives: bool `[num_images, num_captions]`, True for a match, or int
            `[n, 2]`, the image row and the caption row of each match.

    Raises:
        ValueError: If a dtype or shape is wrong, a row number is out of range,
            an embedding is not finite, or `caption_to_image` and `positives`
            are both given or both missing.

    Source: Wang et al. 2018, Sec. 5 (recall at k, both directions; captions
    against captions as in Sec. 5.2). Departures: ties count as misses; any
    number of captions per image. With positives: Chun et al. 2022 (ECCV
    Caption), Sec. 4.1, and Musgrave et al. 2020, Sec. 3.2 (R-Precision, mAP@R);
    recalls as in Parekh et al. 2021 (Crisscrossed Captions).
    """
    if (caption_to_image is None) == (positives is None):
        raise InputError(
            "Either `caption_to_image` or `positives` must be given."
        )
    if positives is None:
        ranks = retrieval_ranks(
            image_embeddings,
            text_embeddings,
            caption_to_image,
            memory_limit_mb=memory_limit_mb,
            text_to_text=text_to_text,
        )
        return summarize_ranks(ranks, recall_at)
    checked_number("memory_limit_mb", memory_limit_mb, 0, above=True)
    ranks, precisions = _precise_ranks(
        image_embeddings, text_embeddings, positives
    )
    return summarize_ranks(ranks, recall_at) | precisions


def retrieval_ranks(
    image_embeddings: Array,
    text_embeddings: Array,
    caption_to_image: Integers,
    *,
    memory_limit_mb: float = 512,
    text_to_text: bool = True,
    image_groups: Integers | None = None,
) -> dict[str, Ranks]:
    """Ranks the best positive of every query.

    Args:
        image_embeddings: `[num_images, dim]`, L2-normalised.
        text_embeddings: `[num_captions, dim]`, L2-normalised.
        caption_to_image: int `[num_captions]`, row of the caption's image.
        memory_limit_mb: MiB for tiles and temporary arrays.
        text_to_text: whether to also rank captions against captions.
        image_groups: int `[num_images]`. Images of one group, such as photos of
            one person, match each other's captions.

    Returns:
        Dict from direction to `ranks.Ranks`: rows of the queries, 1-based ranks
        of their best positives, and whether a negative ties with the best
        positive.

    Raises:
        ValueError: As in `evaluate_retrieval`.

    Example:
        ranks = tbnets.retrieval_ranks(images, texts, caption_to_image)
        ranks["text_to_image"].ranks  # (num_captions,), 1 is best
    """
    checked_number("memory_limit_mb", memory_limit_mb, 0, above=True)
    images, texts, rows, groups = checked_arrays(
        image_embeddings, text_embeddings, caption_to_image, image_groups
    )
    images = exact_ranks.finite_side("image_embeddings", images, groups)
    texts = exact_ranks.finite_side("text_embeddings", texts, groups[rows])
    ranks = exact_ranks.cross_ranks(images, texts, memory_limit_mb)
    if text_to_text:
        text_ranks = exact_ranks.caption_ranks(texts, memory_limit_mb)
        ranks["text_to_text"] = text_ranks
    return ranks


def _precise_ranks(images, texts, positives):
    named = {"image_embeddings": images, "text_embeddings": texts}
    ranks, means = {}, {}
    for direction in ("image_to_text", "text_to_image"):
        scores = score_tiles.exact_scores(*named.values(), tuple(named))
        counts = scores.num_images, scores.num_texts
        pairs = score_tiles.pairs_of("positives", positives, counts, least=1)
        ranks[direction], precisions = score_tiles.precise_ranks(scores, *pairs)
        for name, values in precisions.items():
            means[f"{direction}/{name}"] = float(np.mean(values))
        named = dict(reversed(named.items()))
        positives = np.stack(pairs[::-1], axis=1)
    return ranks, means


def bootstrap_interval(
    ranks: Integers,
    statistic: Callable[[np.ndarray], float | np.floating],
    num_samples: int = 1000,
    seed: int = 0,
    confidence: float = 0.95,
) -> tuple[float, float]:
    """Estimates a confidence interval for a statistic of ranks.

    Args:
        ranks: int `[num_queries]`.
        statistic: function of resampled ranks, for example `lambda ranks:
            np.mean(ranks <= 1)`.
        num_samples: number of resamples, drawn with replacement.
        seed: seed of the resampling.
        confidence: fraction of the resampled values inside the interval.

    Returns:
        (low, high), the ends of the percentile interval.

    Example:
        ranks = tbnets.retrieval_ranks(images, texts, caption_to_image)
        tbnets.bootstrap_interval(
            ranks["image_to_text"].ranks, lambda ranks: np.mean(ranks <= 1))
    """
    ranks = np.asarray(ranks)
    if ranks.ndim != 1 or not ranks.size:
        raise InputError("ranks", "have at least one query", ranks.shape)
    generator = np.random.default_rng(seed)
    count = len(ranks)
    draws = (generator.integers(0, count, count) for _ in range(num_samples))
    values = [statistic(ranks[rows]) for rows in draws]
    tail = (1 - confidence) / 2
    low, high = np.quantile(values, [tail, 1 - tail])
    return float(low), float(high)


def recall_differences(ranks: dict, other_ranks: dict) -> dict:
    """Compares the recalls of two models by a paired bootstrap.

    Args:
        ranks: dict from direction to the `Ranks` of the first model.
        other_ranks: the `Ranks` of the second model for the same queries.

    Returns:
        Dict from the name of a recall, and `recall_sum` if there are several
        directions, to (difference, low, high): the recall of the second model
        minus that of the first, and the ends of its 95 % interval. Each
        resample draws queries with replacement, for both models the same.
    """
    differences, gains = {}, []
    for direction, first in ranks.items():
        second = other_ranks[direction].ranks
        hits = [
            (second <= k).astype(int) - (first.ranks <= k) for k in RECALL_AT
        ]
        gains.append(np.sum(hits, axis=0))
        for k, changes in zip(RECALL_AT, hits):
            ends = bootstrap_interval(changes, np.mean)
            name = f"{direction}/recall_at_{k}"
            differences[name] = (float(np.mean(changes)), *ends)
    if len(gains) > 1:
        directions = np.repeat(np.arange(len(gains)), [*map(len, gains)])
        gains = np.concatenate(gains)

        def recall_sum(rows):
            drawn = directions[rows]
            totals = np.bincount(drawn, gains[rows])
            return 100 * float(np.sum(totals / np.bincount(drawn)))

        rows = np.arange(len(gains))
        ends = bootstrap_interval(rows, recall_sum)
        differences["recall_sum"] = (recall_sum(rows), *ends)
    return differences
