"""Hinges of triplets, summed in ways that never list all triplets.

Two ways lead to the same sums. Where an anchor keeps a few negatives and has
a few positives, the pairs that matter are picked from the similarities and
compared directly. Where it keeps all negatives, or has many positives, its
positives are taken one rank after the other. Both have static shapes, so
that XLA compiles them, and neither needs a bound on the positives.
"""

from typing import NamedTuple

import tensorflow as tf

from tbnets.losses import distances
from tbnets.losses import miners

TERMS = (
    "image_to_text",
    "text_to_image",
    "text_to_text",
    "image_to_image",
)

# An anchor with more positives than this is handled too, by slower code.
_POSITIVES = 8

# A view that ranks itself is mined in runs of rows, which stay in reach of
# the caches and of the allocator's free lists (glibc maps blocks above 32 MB
# anew each time). Two keep 3000 captions there.
_RUNS = 2

# Terms that read one matrix of similarities: along its rows, its columns.
_TERMS_BY_MATRIX = (
    ("image_to_text", "text_to_image"),
    ("text_to_text",),
    ("image_to_image",),
)


class View(NamedTuple):
    """One term's side of a batch.

    Attributes:
        anchors: float32 `[num_anchors, embedding_dim]`.
        candidates: float32 `[num_candidates, embedding_dim]`.
        positive: bool `[num_anchors, num_candidates]`; within one view an
            anchor is not its own positive.
        not_negative: bool, the same shape: the positives and the anchor
            itself.
    """

    anchors: tf.Tensor
    candidates: tf.Tensor
    positive: tf.Tensor
    not_negative: tf.Tensor


def views(terms, images, texts, masks):
    """Builds the `View` of each term.

    Args:
        terms: Names out of `TERMS`.
        images: float32 `[num_images, embedding_dim]`.
        texts: float32 `[num_captions, embedding_dim]`.
        masks: Three bool masks, image-text, text-text and image-image.

    Returns:
        A dict of the terms, in the order given.
    """
    cross, text_mask, image_mask = (tf.convert_to_tensor(m) for m in masks)
    makers = {
        "image_to_text": lambda: View(images, texts, cross, cross),
        "text_to_image": lambda: View(
            texts, images, *[tf.transpose(cross)] * 2
        ),
        "text_to_text": lambda: _within(texts, text_mask),
        "image_to_image": lambda: _within(images, image_mask),
    }
    return {term: makers[term]() for term in terms}


def _within(rows, mask):
    """Builds the `View` of a set that ranks itself."""
    itself = tf.ones(tf.shape(mask)[:1], tf.bool)
    return View(
        rows,
        rows,
        tf.linalg.set_diag(mask, tf.logical_not(itself)),
        tf.linalg.set_diag(mask, itself),
    )


def sums(views, num_negatives, margin, distance):
    """Sums and counts the hinges of every view.

    Args:
        views: Dict of `View`s by term.
        num_negatives: Hardest negatives kept for an anchor; None keeps all.
        margin: Required gap, in units of the distance.
        distance: Function of similarities, see `distances.DISTANCES`.

    Returns:
        Dict of float32 `[3]` by term: the sum of hinges, which carries the
        gradient, the number of triplets, and how many of them are above 0.
    """

    def by_rank():
        return [
            _sums_by_rank(view, num_negatives, margin, distance)
            for view in views.values()
        ]

    if num_negatives is None or not views:
        return dict(zip(views, by_rank()))
    found = {
        term: miners.first_positives(view.positive, _POSITIVES + 1)
        for term, view in views.items()
    }
    places = {
        term: [part[:, :_POSITIVES] for part in found[term]] for term in views
    }
    # Cut here: of what is cut inside a branch, XLA forgets the shape.
    within_view = ("text_to_text", "image_to_image")
    runs = {
        term: _row_runs([*views[term], *places[term]], keep=1)
        for term in within_view
        if term in views
    }
    rows = tf.cond(
        _any_crowded(found),
        by_rank,
        lambda: _sums_by_survivors(
            views, places, runs, num_negatives, margin, distance
        ),
    )
    return dict(zip(views, rows))


def _any_crowded(found):
    """Tells whether some anchor has more positives than `_POSITIVES`."""
    crowded = [
        tf.reduce_any(valid[:, _POSITIVES:]) for _, valid in found.values()
    ]
    return tf.reduce_any(tf.stack(crowded))


def _sums_by_survivors(views, places, runs, num_negatives, margin, distance):
    """Sums hinges over picked pairs; no anchor may be crowded.

    Returns:
        For each view `[sum of hinges, triplets kept, triplets active]`.
    """
    options = (num_negatives, margin, distance)
    sums = {}
    for group in _TERMS_BY_MATRIX:
        terms = [term for term in group if term in views]
        if len(group) > 1:
            both = _sums_of_matrix(
                [views[term] for term in terms],
                [places[term] for term in terms],
                *options,
            )
            sums.update(zip(terms, both))
            continue
        for term in terms:
            parts = [
                _sums_of_matrix([View(*run[:4])], [run[4:]], *options)
                for run in runs[term]
            ]
            sums[term] = tf.add_n([part[0] for part in parts])
    return [sums[term] for term in views]


def _row_runs(parts, keep):
    """Cuts arrays into `_RUNS` runs of rows; `parts[keep]` stays whole."""
    num_rows = tf.shape(parts[0])[0]
    bounds = num_rows * tf.range(_RUNS + 1) // _RUNS
    sizes = tf.unstack(bounds[1:] - bounds[:-1])
    cut = [
        [part] * _RUNS if place == keep else tf.split(part, sizes)
        for place, part in enumerate(parts)
    ]
    return list(zip(*cut))


def _sums_of_matrix(views, places, num_negatives, margin, distance):
    """Sums the hinges of terms that read one matrix of similarities.

    Args:
        views: `View`s; the second, if any, is the first one turned round.
        places: For each, the anchors' positives and which of them count.
        num_negatives: Hardest negatives kept for an anchor.
        margin: Required gap.
        distance: Function of similarities.

    Returns:
        A list with float32 `[3]` for each view.
    """
    if not views:
        return []
    rows, columns = views[0].anchors, views[0].candidates
    matrix = tf.stop_gradient(distances.similarities(rows, columns))
    pairs, valid = [], []
    for turned, (view, positives) in enumerate(zip(views, places)):
        negatives = miners.hardest_negatives(
            tf.transpose(matrix) if turned else matrix,
            view.not_negative,
            num_negatives,
        )
        valid.append((positives[1], negatives[1]))
        for indices in (positives[0], negatives[0]):
            pairs.append(_pairs(indices, bool(turned)))
    picked = distances.picked_similarities(
        rows, columns, matrix, tf.concat(pairs, axis=0)
    )
    parts = tf.split(picked, [tf.shape(pair)[0] for pair in pairs])
    return [
        _hinge_sums(parts[2 * turn : 2 * turn + 2], counts, margin, distance)
        for turn, counts in enumerate(valid)
    ]


def _pairs(indices, turned):
    """Lists the entries `[rows * k, 2]` that row-wise columns stand for."""
    rows = tf.range(tf.shape(indices)[0])[:, None]
    rows = tf.broadcast_to(rows, tf.shape(indices))
    entry = [indices, rows] if turned else [rows, indices]
    return tf.reshape(tf.stack(entry, axis=-1), [-1, 2])


def _hinge_sums(picked, valid, margin, distance):
    """Sums the hinges of every positive of an anchor with every negative."""
    positive, negative = (
        distance(tf.reshape(values, tf.shape(mask)))
        for values, mask in zip(picked, valid)
    )
    hinges = margin + positive[:, :, None] - negative[:, None, :]
    kept = tf.logical_and(valid[0][:, :, None], valid[1][:, None, :])
    # Written so that a NaN counts as a loss, and is seen.
    active = tf.logical_and(kept, tf.logical_not(hinges <= 0.0))
    return tf.stack(
        [
            tf.reduce_sum(tf.where(active, hinges, 0.0)),
            _count(kept),
            _count(active),
        ]
    )


def _sums_by_rank(view, num_negatives, margin, distance):
    """Sums hinges for any number of positives, one rank after the other.

    The first positive of every anchor is handled at once, then the second,
    and so on: as many passes as the most crowded anchor has positives.
    """
    matrix = distances.similarities(view.anchors, view.candidates)
    if num_negatives is None:
        negative = distance(matrix)
        valid = tf.logical_not(view.not_negative)
    else:
        indices, valid = miners.hardest_negatives(
            matrix, view.not_negative, num_negatives
        )
        negative = distance(tf.gather(matrix, indices, batch_dims=1))
    total, active = _ranked_hinges(
        distance(matrix), negative, view.positive, valid, margin
    )
    pairs_of = [
        tf.reduce_sum(tf.cast(mask, tf.float32), axis=1)
        for mask in (view.positive, valid)
    ]
    return tf.stack([total, tf.reduce_sum(pairs_of[0] * pairs_of[1]), active])


def _ranked_hinges(
    positive_distances, negative_distances, positive, valid, margin
):
    """Sums and counts the hinges, and keeps their slopes for the gradient.

    Args:
        positive_distances: float32 `[anchors, candidates]`.
        negative_distances: float32 `[anchors, negatives]`.
        positive: bool `[anchors, candidates]`.
        valid: bool `[anchors, negatives]`.
        margin: Required gap.

    Returns:
        Two float32 scalars.
    """
    places = tf.range(tf.shape(positive)[1])

    @tf.custom_gradient
    def run(positive_distances, negative_distances):
        def step(rank, last, total, active, by_positive, by_negative):
            following = tf.logical_and(positive, places > last[:, None])
            column = miners.first_true(following)
            here = tf.logical_and(following, places == column[:, None])
            found = tf.reduce_any(here, axis=1)
            own = tf.reduce_sum(tf.where(here, positive_distances, 0.0), axis=1)
            hinges = margin + own[:, None] - negative_distances
            violated = tf.logical_and(
                tf.logical_and(valid, found[:, None]),
                tf.logical_not(hinges <= 0.0),
            )
            slopes = tf.cast(violated, tf.float32)
            counts = tf.reduce_sum(slopes, axis=1)
            return (
                rank + 1,
                tf.where(found, column, last),
                total + tf.reduce_sum(tf.where(violated, hinges, 0.0)),
                active + tf.reduce_sum(counts),
                by_positive + tf.where(here, counts[:, None], 0.0),
                by_negative - slopes,
            )

        ranks = tf.reduce_max(
            tf.concat([[0], tf.reduce_sum(tf.cast(positive, tf.int32), 1)], 0)
        )
        state = tf.while_loop(
            lambda rank, *state: rank < ranks,
            step,
            (
                0,
                tf.fill(tf.shape(positive)[:1], -1),
                0.0,
                0.0,
                tf.zeros_like(positive_distances),
                tf.zeros_like(negative_distances),
            ),
        )

        def gradient(upstream, _):
            return upstream * state[4], upstream * state[5]

        return (state[2], state[3]), gradient

    return run(positive_distances, negative_distances)


def _count(mask):
    return tf.reduce_sum(tf.cast(mask, tf.float32))
