"""Evaluates how well similarities find the boxes that phrases name.

`PhraseTable` is the one table of phrases, candidate boxes and similarities.
Phrase localization ranks the proposals of a photo for each phrase
(`evaluate_localization`). Correspondences count the phrases whose chosen
candidate, a region or the whole photo, is right (`evaluate_correspondences`).
"""

import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from tbnets.checks import (
    SAME_THING,
    Array,
    Boxes,
    Integers,
    checked_rows,
    finite_scores,
    rows_by,
    text_ids,
)
from tbnets.errors import InputError
from tbnets.evaluation import boxes, score_tiles
from tbnets.evaluation.boxes import (
    DEFAULT,
    MOST_SIMILAR,
    answers,
)
from tbnets.evaluation.ranks import (
    RECALL_AT,
    Ranks,
    best_ranks,
    summarize_direction,
)

RECALLS = 10
"""Precision is averaged at the recalls 0/10, 1/10, ..., 10/10."""


def average_precision(scores, hits, num_positives) -> float:
    """Averages the precision at 11 recalls.

    The precision at recall r is the maximum over all cutoffs with a recall of
    at least r, or 0 if there is none.

    Args:
        scores: float `[n]`, larger is better. Among tied scores, misses come
            first.
        hits: bool `[n]`; each positive has at most one hit.
        num_positives: number of positives, at least 1.

    Source: Everingham et al. 2010, "The PASCAL visual object classes
    challenge", Sec. 4.2, the rule used until 2009. Departure: recalls are
    compared as integers, without rounding errors.
    """
    scores, hits = np.asarray(scores), np.asarray(hits, bool)
    num_hits = np.cumsum(hits[np.lexsort((hits, -scores))])
    precision = num_hits / np.arange(1, len(num_hits) + 1)
    # The maximum precision at this or a later position.
    precision = np.maximum.accumulate(precision[::-1])[::-1]
    # Minimum number of hits for a recall of t tenths.
    needed_hits = -(-np.arange(RECALLS + 1) * num_positives // RECALLS)
    positions = np.searchsorted(num_hits, needed_hits)
    return float(np.append(precision, 0.0)[positions].sum() / (RECALLS + 1))


SUPPRESSION = 0.5
MISSED = np.iinfo(np.int64).max
"""Rank of a phrase without a matching proposal."""
DIRECTION = "phrase_to_region"
TRUE_REGION_DIRECTIONS = "true_region_to_phrase", "phrase_to_true_region"


class Localized(NamedTuple):
    """Rank of the matching proposal for each phrase.

    Attributes:
        ranks: int64 `[num_phrases]`, 1-based rank of the best matching
            proposal, or `MISSED` if none matches. Tied wrong proposals are
            ranked above it.
        tied: bool `[num_phrases]`, whether a wrong proposal ties with it.
        suppressed_ranks: int64 `[num_phrases]`, ranks after non-maximum
            suppression.
        scores: float32 `[num_detections]`, scores of the proposals that remain
            after suppression.
        hits: bool `[num_detections]`, whether the detection is the best match
            of its phrase.
        phrases: int64 `[num_detections]`, row of the phrase.
    """

    ranks: np.ndarray
    tied: np.ndarray
    suppressed_ranks: np.ndarray
    scores: np.ndarray
    hits: np.ndarray
    phrases: np.ndarray


def evaluate_localization(
    scores: Array | Callable[[int, np.ndarray], np.ndarray],
    proposals: Sequence[Boxes],
    truth: Boxes,
    phrase_to_image: Integers,
    *,
    types: Mapping[str, np.ndarray] | None = None,
    texts: Integers | None = None,
    recall_at: Sequence[int] = RECALL_AT,
) -> dict[str, float]:
    """Computes how well scores rank the correct proposals of phrases.

    A proposal matches a phrase if their boxes overlap with an IoU of 0.5 or
    more. `phrase_to_region/recall_at_<k>` is the fraction of phrases with a
    match among the first k proposals of their photo, and `/upper_bound` the
    fraction with any match. `/suppressed_recall_at_<k>` is the recall after
    non-maximum suppression, which drops a proposal that overlaps a better
    proposal by more than 0.5. `/tie_rate` is the fraction of phrases whose best
    match ties with a wrong proposal.

    Args:
        scores: larger is better. Either float `[num_phrases, width]`, which
            holds a score for each proposal of the phrase's photo and then
            padding, or a function `(image_row, phrase_rows)` that returns float
            `[len(phrase_rows), k]`.
        proposals: sequence of num_images arrays `[k, 4]`, in the pixels of
            `truth`; k may be 0.
        truth: `[num_phrases, 4]`, the phrases' boxes.
        phrase_to_image: int `[num_phrases]`, row of the image.
        types: dict from the name of a type to a mask of its phrases, bool
            `[num_phrases]`; adds their metrics under
            `phrase_to_region/<name>/`.
        texts: int `[num_phrases]`, at least 0, equal for identical phrases
            (`PhraseRegions.phrase_to_text`); adds
            `phrase_to_region/mean_average_precision` from
            `unique_phrase_precision`.
        recall_at: the cutoffs k.

    Returns:
        Flat dict of floats; only `/num_queries` if there are no phrases.

    Raises:
        ValueError: If a shape or box is invalid, a row is out of range, or a
            score is not finite.

    Example:
        metrics = tbnets.evaluate_localization(
            scores=[[0.9, 0.2]], proposals=[[[0, 0, 9, 9], [5, 5, 9, 9]]],
            truth=[[0, 0, 8, 9]], phrase_to_image=[0])
        metrics["phrase_to_region/recall_at_1"]  # 1.0

    Source: Wang et al. 2018, Sec. 4 (recall, upper bound); Wang et al. 2016,
    Sec. 3.3 (mean average precision). Both cite the evaluation code of Plummer
    et al. 2015, which suppresses before it computes recall. Departures: ties
    count as misses; box coordinates are continuous, without a pixel added to
    each side.
    """
    localized = localize(scores, proposals, truth, phrase_to_image)
    return summarize(localized, types=types, texts=texts, recall_at=recall_at)


def summarize(localized, types=None, texts=None, recall_at=RECALL_AT) -> dict:
    """Computes the metrics of `evaluate_localization` from a `Localized`."""
    metrics = _summary(localized, slice(None), DIRECTION, recall_at)
    for name, mask in (types or {}).items():
        mask = np.asarray(mask)
        if mask.dtype != bool:  # Row numbers would select other phrases.
            raise InputError("types", "map names to bool masks", mask.dtype)
        metrics |= _summary(localized, mask, f"{DIRECTION}/{name}", recall_at)
    if texts is not None and len(localized.ranks):
        value = unique_phrase_precision(localized, texts)
        metrics[f"{DIRECTION}/mean_average_precision"] = value
    return metrics


def unique_phrase_precision(localized: Localized, texts) -> float:
    """Computes the mean of the average precisions of unique phrases.

    Each unique phrase is a class. Its detections are the proposals of its
    photos that remain after suppression. For each occurrence of the phrase, the
    best match is a hit, and all other detections are misses. A phrase that
    occurs twice for a photo counts as two positives.

    Source: Wang et al. 2016, Sec. 3.3 and Table 3, last column; the details
    (suppression at 0.5, 11 recalls, one hit per phrase) follow the evaluation
    code of Plummer et al. 2015. Departure: their classes ignore words such as
    articles.
    """
    most = np.iinfo(np.int64).max
    texts = checked_rows("texts", texts, most, len(localized.ranks))
    counts = np.bincount(texts)
    groups = rows_by(texts[localized.phrases], len(counts))
    scores, hits = localized.scores, localized.hits
    values = [
        average_precision(scores[rows], hits[rows], count)
        for rows, count in zip(groups, counts)
        if count
    ]
    return float(np.mean(values))


def localize(scores, proposals, truth, phrase_to_image, choice=DEFAULT):
    """Ranks the proposals for phrases; returns a `Localized`.

    The arguments are as in `evaluate_localization`. Suppression uses the
    overlaps of the proposals, not of the boxes that `choice` returns.
    """
    score_of = scores if callable(scores) else _table(scores, len(truth))
    truth = boxes.check_boxes(truth, "truth")
    ranks = np.full(len(truth), MISSED, np.int64)
    tied, suppressed, detections = np.zeros(len(truth), bool), ranks.copy(), []
    photos = boxes.overlaps_by_photo(truth, phrase_to_image, proposals)
    for image, rows, overlaps in photos:
        values = _checked_scores(score_of(image, rows), image, overlaps, rows)
        if choice.name != MOST_SIMILAR:
            values, answer_boxes = answers(values, proposals[image], choice)
            pairs = zip(truth[rows], answer_boxes)
            overlaps = np.stack([boxes.iou([a], b)[0] for a, b in pairs])
        matches = overlaps >= SAME_THING
        ranks[rows], tied[rows] = _ranks(values, matches)
        near = boxes.iou(proposals[image], proposals[image]) > SUPPRESSION
        keep = _suppress(values, matches, near)
        values, matches = np.where(keep, values, -np.inf), matches & keep
        suppressed[rows], _ = _ranks(values, matches)
        best = np.where(matches, values, -np.inf).argmax(axis=1)
        matches &= np.arange(matches.shape[1]) == best[:, None]
        detections.append(
            (values[keep], matches[keep], rows[np.nonzero(keep)[0]])
        )
    empty = (np.zeros(0, kind) for kind in (np.float32, bool, np.int64))
    parts = [np.concatenate(part) for part in zip(empty, *detections)]
    return Localized(ranks, tied, suppressed, *parts)


def _ranks(scores, matches):
    ranks, tied = best_ranks(scores, matches)
    return np.where(matches.any(axis=1), ranks, MISSED), tied


def _suppress(scores, matches, overlaps):
    """Returns a mask of proposals to keep; of tied proposals, misses first."""
    keep = np.zeros(scores.shape, bool)
    dropped, every = keep.copy(), np.arange(len(scores))
    for best in np.lexsort((matches, -scores), axis=1).T:
        keep[every, best] = ~dropped[every, best]
        dropped |= overlaps[best] & keep[every, best, None]
    return keep


def _summary(localized, phrases, prefix, recall_at):
    ranks, after = localized.ranks[phrases], localized.suppressed_ranks[phrases]
    metrics = {f"{prefix}/num_queries": float(len(ranks))}
    if not len(ranks):
        return metrics
    shares = {f"recall_at_{k}": ranks <= k for k in recall_at}
    shares["upper_bound"] = ranks < MISSED
    shares |= {f"suppressed_recall_at_{k}": after <= k for k in recall_at}
    shares["tie_rate"] = localized.tied[phrases]
    for name, are in shares.items():
        metrics[f"{prefix}/{name}"] = float(np.mean(are))
    return metrics


def _table(scores, num_phrases):
    scores = np.asarray(scores)
    if scores.ndim != 2 or len(scores) != num_phrases:
        expected = f"have the shape [{num_phrases}, width]"
        raise InputError("scores", expected, scores.shape)
    return lambda image, rows: scores[rows]


def _checked_scores(values, image, overlaps, rows):
    num_proposals = overlaps.shape[1]
    values = np.asarray(values)[..., :num_proposals]
    if values.shape != overlaps.shape:
        raise InputError(
            "scores",
            f"have the shape {overlaps.shape} for image {image}",
            values.shape,
        )
    return finite_scores(values, rows)


@dataclasses.dataclass(frozen=True, eq=False)  # `==` of arrays is an array.
class PhraseTable:
    """Phrases with their true boxes, and their similarities to candidates.

    Args:
        similarities: float32 `[num_phrases, width]`, larger is closer: a value
            for each candidate of the phrase's photo, then padding.
        candidates: sequence of num_images arrays `[k, 4]`; k may be 0.
        phrases: num_phrases strings.
        boxes: `[num_phrases, 4]`, the true boxes.
        images: int `[num_phrases]`, row of the phrase's photo.
        things: int `[num_phrases]`, equal for phrases that name one object.
        types: dict from the name of a type to a mask of its phrases, bool
            `[num_phrases]`.
        whole_photo: whether the last candidate of each photo is the whole
            photo. If so, `metrics` evaluates correspondences.
        learned: whether the similarities are logits or negative distances,
            rather than inner products of unit vectors.
    """

    similarities: np.ndarray
    candidates: Sequence[np.ndarray]
    phrases: Sequence[str]
    boxes: np.ndarray
    images: np.ndarray
    things: np.ndarray
    types: Mapping[str, np.ndarray] = dataclasses.field(default_factory=dict)
    whole_photo: bool = False
    learned: bool = False

    @functools.cached_property
    def texts(self) -> np.ndarray:
        """Index of each phrase's text, int64; letter case is ignored."""
        return text_ids(self.phrases)

    def metrics(self, choice=DEFAULT) -> dict[str, float]:
        """Computes the metrics of localization or of correspondences."""
        if self.whole_photo:
            return evaluate_correspondences(self, choice)
        return summarize(self._localize(choice), self.types, self.texts)

    def ranks(self) -> dict[str, Ranks]:
        """Returns the `Ranks` of the phrases' boxes, under `DIRECTION`."""
        found = self._localize(DEFAULT)
        rows = np.arange(len(found.ranks))
        return {DIRECTION: Ranks(rows, found.ranks, found.tied)}

    def _localize(self, choice):
        inputs = self.similarities, self.candidates, self.boxes, self.images
        return localize(*inputs, choice)

    def combine(self, other, weight):
        """Adds the distances of two networks for the same candidates.

        The similarity is the negative weighted sum of the distances. Logits and
        the distances added to them are first divided by their standard
        deviation.

        Source: Wang et al. 2018, Sec. 5.6, Eq. 8 (for whole images and
            sentences).
        """
        terms = [self._distances, other._distances]
        if self.learned or other.learned:
            counts = np.array([*map(len, self.candidates)])[self.images, None]
            is_candidate = np.arange(self.similarities.shape[1]) < counts
            terms = [t / (float(t[is_candidate].std()) or 1.0) for t in terms]
        summed = (1 - weight) * terms[0] + weight * terms[1]
        return dataclasses.replace(self, similarities=-summed, learned=True)

    @property
    def _distances(self):
        if self.learned:
            return -self.similarities
        return np.sqrt(np.maximum(2 - 2 * self.similarities, 0))

    def true_candidates(self):
        """Returns (columns, overlaps), `[num_phrases]`.

        The column is that of the candidate with the largest IoU with the
        phrase's box, and 0 without candidates.
        """
        columns = np.zeros(len(self.boxes), np.int64)
        most = np.zeros(len(self.boxes))
        for _, rows, overlaps in boxes.overlaps_by_photo(
            self.boxes, self.images, self.candidates
        ):
            columns[rows], most[rows] = overlaps.argmax(1), overlaps.max(1)
        return columns, most


def evaluate_correspondences(table, choice=DEFAULT) -> dict[str, float]:
    """Computes how often the candidate chosen for a phrase is right.

    A candidate is right if its IoU with the true box is at least `SAME_THING`.
    If a wrong candidate ties with the best, the choice is wrong.

    Args:
        table: `PhraseTable` whose candidates include the whole photo.
        choice: `Choice` whose box is a candidate.

    Returns:
        dict of fractions in [0, 1], or NaN if there are no phrases:
        `correspondence_accuracy`, `correspondence_chance` (a random candidate),
        `correspondence_whole_photo` and `correspondence_upper_bound` (the best
        candidate). The first three have variants `correspondence_pointing_...`,
        which require only that the candidate's centre is in the true box.
        `correspondence_links` is the number of phrases.

    Source: Niu et al. 2017, Sec. 5.3.2, where ten people judged 2000 pairs.
    Departure: annotated boxes define correctness. Testing the centre is the
    "pointing game" of Zhang et al. 2016.
    """
    count = len(table.boxes)
    names = ("accuracy", "chance", "whole_photo")
    names += tuple(f"pointing_{name}" for name in names)
    shares = {name: np.zeros(count) for name in (*names, "upper_bound")}
    for image, rows, overlaps in boxes.overlaps_by_photo(
        table.boxes, table.images, table.candidates
    ):
        values, photo_boxes = table.similarities[rows], table.candidates[image]
        values = _checked_scores(values, image, overlaps, rows)
        values, _ = answers(values, photo_boxes, choice)
        matches = overlaps >= SAME_THING
        shares["upper_bound"][rows] = matches.any(axis=1)
        holds = _holds_centers(table.boxes[rows], photo_boxes)
        for kind, right in (("", matches), ("pointing_", holds)):
            shares[f"{kind}accuracy"][rows] = _ranks(values, right)[0] == 1
            shares[f"{kind}chance"][rows] = right.mean(axis=1)
            shares[f"{kind}whole_photo"][rows] = right[:, -1]
    metrics = {
        f"correspondence_{name}": float(np.mean(values)) if count else np.nan
        for name, values in shares.items()
    }
    return metrics | {"correspondence_links": float(count)}


def _holds_centers(truth, candidate_boxes):
    """Returns whether box n contains the centre of candidate m, `[n, m]`."""
    x, y = (candidate_boxes[:, :2] + candidate_boxes[:, 2:]).T / 2
    left, top, right, bottom = np.asarray(truth).T[..., None]
    return (left <= x) & (x <= right) & (top <= y) & (y <= bottom)


def rank_true_regions(table, compare) -> dict[str, float]:
    """Ranks phrases for each true region, and true regions for each phrase.

    The true region of an object is the candidate that overlaps one of its true
    boxes most. Objects without an IoU of at least 0.5 are left out; their
    phrases remain candidates. `compare(images, columns, rows)` returns the
    scores of the candidates `columns` of the photos `images` with the phrases
    `rows`, as `evaluate_region_phrase_ranking` expects them. Returns its
    metrics.
    """
    columns, overlaps = table.true_candidates()
    _, things = np.unique(table.things, return_inverse=True)
    order = np.lexsort((-overlaps, things))
    _, first = np.unique(things[order], return_index=True)
    rows = order[first]  # The phrase with the largest overlap of each object.
    is_found = overlaps[rows] >= SAME_THING
    if not is_found.any():
        return {f"{name}/num_queries": 0.0 for name in TRUE_REGION_DIRECTIONS}
    rows, places = rows[is_found], np.cumsum(is_found) - 1
    names = {"return_index": True, "return_inverse": True}
    _, distinct, texts = np.unique(table.texts, **names)
    pairs = np.stack([places[things], texts], axis=1)[is_found[things]]
    scores = compare(table.images[rows], columns[rows], distinct)
    return evaluate_region_phrase_ranking(scores, pairs)


def evaluate_region_phrase_ranking(scores, pairs) -> dict:
    """Evaluates rankings of phrases for regions and of regions for phrases.

    Unlike in localization, candidates are from all photos, and the regions are
    annotated boxes. Each key is the prefix `true_region_to_phrase/` or
    `phrase_to_true_region/`, followed by a name from
    `ranks.summarize_direction`.

    Args:
        scores: `PairScores` of num_regions regions, in place of images, and
            num_phrases phrases, such as `exact_scores(regions, phrases)`. The
            phrases must be unique, because ties count as misses.
        pairs: int `[n, 2]`, the row of each region and the row of its phrase;
            or a bool mask `[num_regions, num_phrases]`.

    Source: Niu et al. 2017, Sec. 5.2 and Table 4 (regions to phrases).
    Departures: both directions are evaluated; ties count as misses.
    """
    counts = scores.num_images, scores.num_texts
    pairs = score_tiles.pairs_of("pairs", pairs, counts)
    both = score_tiles.pair_ranks(scores, *pairs)
    return {
        f"{direction}/{name}": value
        for direction, ranks in zip(TRUE_REGION_DIRECTIONS, both)
        for name, value in summarize_direction(ranks).items()
    }
