"""The definition of a rank, as plain loops."""

import math

import numpy as np

from tests.reference import overlap


def random_boxes(generator, count, side=8):
    """Returns boxes with whole edges, so that equal overlaps do occur."""
    low = generator.integers(0, side, (count, 2))
    sides = generator.integers(1, side, (count, 2))
    return np.concatenate([low, low + sides], axis=1).astype(float)


def score(x, y):
    """The exact inner product of two float32 rows, rounded to float32."""
    terms = [float(a) * float(b) for a, b in zip(x, y)]
    return np.float32(math.fsum(terms))


def rank(scores, positive):
    """1-based rank of the best positive; a tie with a negative is lost."""
    best = max(s for s, p in zip(scores, positive) if p)
    others = [s for s, p in zip(scores, positive) if not p]
    return 1 + sum(s >= best for s in others), best in others


def ranked(scores, positives):
    """[(query, rank, tied), ...] of queries that have a positive."""
    pairs = enumerate(zip(scores, positives))
    return [(query, *rank(*both)) for query, both in pairs if any(both[1])]


def matrix_ranks(matrix, caption_to_image, image_groups=None):
    """Returns {direction: `ranked`} of the scores of images and captions."""
    groups = np.arange(len(matrix)) if image_groups is None else image_groups
    own = np.equal.outer(groups, groups[caption_to_image])
    return {
        "image_to_text": ranked(matrix, own),
        "text_to_image": ranked(np.transpose(matrix), own.T),
    }


def ranks(images, texts, caption_to_image, image_groups=None):
    """Returns {direction: `ranked`} of embeddings."""
    matrix = [[score(x, y) for y in texts] for x in images]
    result = matrix_ranks(matrix, caption_to_image, image_groups)
    if image_groups is not None:
        caption_to_image = image_groups[caption_to_image]
    captions = list(enumerate(caption_to_image))
    result["text_to_text"] = []
    for j, row in captions:
        others = [(k, other) for k, other in captions if k != j]
        positive = [other == row for _, other in others]
        if any(positive):
            scores = [score(texts[j], texts[k]) for k, _ in others]
            found = (j, *rank(scores, positive))
            result["text_to_text"].append(found)
    return result


def as_lists(ranks_by_direction):
    """Turns what `retrieval_ranks` returns into the same form."""
    return {
        direction: list(zip(*(column.tolist() for column in found)))
        for direction, found in ranks_by_direction.items()
    }


def best_first(scores, matches):
    """Proposals by score; of equal ones the wrong ones first."""
    return sorted(range(len(scores)), key=lambda i: (-scores[i], matches[i], i))


def suppressed(order, boxes, threshold):
    """What is left of an order when better boxes drop those they overlap."""
    kept = []
    for row in order:
        if all(overlap(boxes[row], boxes[k]) <= threshold for k in kept):
            kept.append(row)
    return kept


def first_place(order, matches):
    """1-based place of the first match; None where there is none."""
    places = [n for n, row in enumerate(order, 1) if matches[row]]
    return places[0] if places else None


def localize(scores, boxes, truth, iou_threshold=0.5, suppression=0.5):
    """Rank, rank after suppression and detections of one phrase.

    A detection is (score, whether it is the first match); every later box is
    a wrong one, even where it matches too.
    """
    matches = [overlap(truth, box) >= iou_threshold for box in boxes]
    order = best_first(scores, matches)
    kept = suppressed(order, boxes, suppression)
    first = first_place(kept, matches)
    detections = [
        (scores[row], place == first) for place, row in enumerate(kept, 1)
    ]
    return first_place(order, matches), first, detections


def average_precision(detections, num_positives):
    """Mean over 11 recalls of the best precision at that recall or more."""
    order = sorted(detections, key=lambda one: (-one[0], one[1]))
    points, hits = [], 0
    for place, (_, hit) in enumerate(order, 1):
        hits += hit
        points.append((hits, hits / place))
    best = [
        max([p for h, p in points if 10 * h >= t * num_positives], default=0)
        for t in range(11)
    ]
    return sum(best) / 11


def pair_ranks(scores, pairs):
    """Returns `ranked` of scores whose positives are pairs of places."""
    places = list(np.ndindex(*scores.shape))
    positives = np.reshape([place in pairs for place in places], scores.shape)
    return ranked(scores, positives)


def precisions(scores, pairs):
    """[(r_precision, map_at_r), ...] of queries that have a positive."""
    found = []
    for query, row in enumerate(scores):
        positive = [(query, c) in pairs for c in range(len(row))]
        total = sum(positive)
        # Wrong ones first among equals; then by any order.
        places = sorted(
            range(len(row)), key=lambda c: (-row[c], positive[c], c)
        )
        hits = [positive[c] for c in places[:total]]
        shares = [sum(hits[: i + 1]) / (i + 1) for i in range(total)]
        if total:
            average = sum(s for s, hit in zip(shares, hits) if hit) / total
            found.append((sum(hits) / total, average))
    return found


def named(rows, names):
    """Returns {"row/name": value} of the values of each row, by their names."""
    return {
        f"{row}/{name}": value
        for row, values in rows.items()
        for name, value in zip(names, values)
    }
