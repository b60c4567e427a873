"""Hinges of triplets, summed in ways that never list all triplets.

Two ways lead to the same sums. Where an anchor keeps a few negatives and is
known to have a few positives, the pairs that matter are picked from the
similarities and compared directly. Otherwise its positives are taken one rank
after the other. Which way it is depends on numbers known before any batch, so
that only one is traced; both have static shapes and compile under XLA.
"""

from typing import NamedTuple

import tensorflow as tf

from tbnets import replicas
from tbnets.losses import distances, miners
from tbnets.losses.presets import TERMS

# Terms that read one matrix of similarities: along its rows, its columns.
_TERMS_BY_MATRIX = TERMS[:2], TERMS[2:3], TERMS[3:]

# With more triplets an anchor than this, they are not compared one by one.
_FEW_TRIPLETS = 512


class View(NamedTuple):
    """One term's side of a batch.

    Attributes:
        anchors: float32 `[num_anchors, embedding_dim]`.
        candidates: float32 `[num_candidates, embedding_dim]`.
        positive: bool `[num_anchors, num_candidates]`; within one view an
            anchor is not its own positive.
        not_negative: bool, the same shape: the positives and the anchor
            itself.
        weights: float32 `[num_anchors]` that the losses of each anchor are
            multiplied by; None for 1. They change the sum of losses, not how
            many there are.
    """

    anchors: tf.Tensor
    candidates: tf.Tensor
    positive: tf.Tensor
    not_negative: tf.Tensor
    weights: tf.Tensor | None = None


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
    turned = tf.transpose(cross)
    makers = {
        "image_to_text": lambda: View(images, texts, cross, cross),
        "text_to_image": lambda: View(texts, images, turned, turned),
        "text_to_text": lambda: _within(texts, text_mask),
        "image_to_image": lambda: _within(images, image_mask),
    }
    return {term: makers[term]() for term in terms}


def _within(rows, mask):
    """Builds the `View` of a set that ranks itself."""
    itself = tf.ones(tf.shape(mask)[:1], tf.bool)
    positive = tf.linalg.set_diag(mask, tf.logical_not(itself))
    return View(rows, rows, positive, tf.linalg.set_diag(mask, itself))


def own_anchors(view):
    """Returns the `View` with the part of its anchors that a replica does.

    Every candidate stays: an anchor's negatives are those of all replicas.
    """
    cut = {
        name: replicas.own_rows(rows)
        for name, rows in view._asdict().items()
        if name != "candidates" and rows is not None
    }
    return view._replace(**cut)


def sums(views, num_negatives, max_positives, margin, distance):
    """Sums and counts the hinges of every view.

    Args:
        views: Dict of `View`s by term.
        num_negatives: Hardest negatives kept for an anchor; None keeps all.
        max_positives: Positives that an anchor has at most in any view; None
            if that is not known, or anchors have weights. Where it is used,
            and a batch breaks it, all sums of that view are NaN.
        margin: Required gap, in units of the distance.
        distance: Function of similarities, see `distances.DISTANCES`.

    Returns:
        Dict of float32 `[3]` by term: the sum of hinges, which carries the
        gradient, the number of triplets, and how many of them are above 0.
    """
    unknown = num_negatives is None or max_positives is None
    if unknown or num_negatives * max_positives > _FEW_TRIPLETS:
        return {
            term: _sums_by_rank(view, num_negatives, margin, distance)
            for term, view in views.items()
        }
    sums = {}
    # Parts of two directions have no matrix in common.
    alone = replicas.num_replicas() > 1
    for group in zip(TERMS) if alone else _TERMS_BY_MATRIX:
        terms = [term for term in group if term in views]
        group = [views[term] for term in terms]
        counts = num_negatives, max_positives
        rows = _sums_by_survivors(group, *counts, margin, distance)
        sums.update(zip(terms, rows))
    return sums


def _sums_by_survivors(views, num_negatives, max_positives, margin, distance):
    """Sums the hinges of views that read one matrix of similarities.

    The second view, if any, is the first one turned round.

    Returns:
        For each view `[sum of hinges, triplets kept, triplets active]`.
    """
    if not views:
        return []
    rows, columns = views[0].anchors, views[0].candidates
    matrix = tf.stop_gradient(distances.similarities(rows, columns))
    pairs, valid, promises = [], [], []
    for turned, view in enumerate(views):
        # One more than promised, to see whether the promise holds.
        positives, match = miners.first_positives(
            view.positive, max_positives + 1
        )
        negatives, differ = miners.hardest_negatives(
            tf.transpose(matrix) if turned else matrix,
            view.not_negative,
            num_negatives,
        )
        pairs.append(_pairs(positives[:, :max_positives], turned))
        pairs.append(_pairs(negatives, turned))
        valid.append((match[:, :max_positives], differ))
        broken = tf.reduce_any(match[:, max_positives:])
        promises.append(tf.where(broken, float("nan"), 1.0))
    picked = distances.picked_similarities(
        rows, columns, matrix, tf.concat(pairs, axis=0)
    )
    parts = tf.split(picked, [tf.shape(pair)[0] for pair in pairs])
    sums = []
    for place, (masks, promise) in enumerate(zip(valid, promises)):
        both = parts[2 * place : 2 * place + 2]
        sums.append(promise * _hinge_sums(both, masks, margin, distance))
    return sums


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
    # Asked this way round, a NaN counts as a loss and is seen; the negation
    # of a comparison is rewritten by TensorFlow's graph optimizer.
    idle = tf.logical_or(tf.logical_not(kept), hinges <= 0.0)
    parts = (
        tf.where(idle, 0.0, hinges),
        tf.cast(kept, tf.float32),
        tf.where(idle, 0.0, 1.0),
    )
    return tf.stack([tf.reduce_sum(part) for part in parts])


def _sums_by_rank(view, num_negatives, margin, distance):
    """Sums hinges for any number of positives, one rank after the other."""
    matrix = distances.similarities(view.anchors, view.candidates)
    positive = distance(matrix)
    if num_negatives is None:
        negative, valid = positive, tf.logical_not(view.not_negative)
    else:
        indices, valid = miners.hardest_negatives(
            matrix, view.not_negative, num_negatives
        )
        picked = tf.gather_nd(matrix, _pairs(indices, turned=False))
        negative = distance(tf.reshape(picked, tf.shape(indices)))
    bounds = tf.stop_gradient(margin + positive)
    by_positive, by_negative = _active_triplets(
        bounds, tf.stop_gradient(negative), view.positive, valid
    )
    num_active = tf.reduce_sum(by_positive)
    if view.weights is not None:
        by_positive *= view.weights[:, None]
        by_negative *= view.weights[:, None]
    # Linear in the distances, once it is known which triplets are active.
    total = tf.reduce_sum(by_positive * (margin + positive)) - tf.reduce_sum(
        by_negative * negative
    )
    positives, negatives = (
        tf.reduce_sum(tf.cast(mask, tf.float32), axis=1)
        for mask in (view.positive, valid)
    )
    num_kept = tf.reduce_sum(positives * negatives)
    return tf.stack([total, num_kept, num_active])


def _active_triplets(bounds, negative_distances, positive, valid):
    """Counts the triplets above 0 of every positive and every negative.

    The first positive of every anchor is handled at once, then the second,
    and so on: as many passes as the most crowded anchor has positives. The
    counts carry no gradient, so that no pass is kept for one.

    Args:
        bounds: float32 `[anchors, candidates]`, margin + distance.
        negative_distances: float32 `[anchors, negatives]`.
        positive: bool `[anchors, candidates]`.
        valid: bool `[anchors, negatives]`.

    Returns:
        Two float32 counts, shaped like `positive` and like `valid`.
    """
    rows, places = (tf.range(tf.shape(positive)[axis]) for axis in (0, 1))
    reached = tf.where(valid, negative_distances, float("inf"))

    def step(left, by_positive, by_negative):
        column = miners.first_true(left)
        pair = tf.stack([rows, tf.maximum(column, 0)], axis=1)
        bound = tf.where(column < 0, float("-inf"), tf.gather_nd(bounds, pair))
        # A NaN counts as active, as in `_hinge_sums`.
        active = tf.where(reached >= bound[:, None], 0.0, 1.0)
        left = tf.logical_and(left, places != column[:, None])
        count = tf.reduce_sum(active, axis=1)
        by_positive = tf.tensor_scatter_nd_add(by_positive, pair, count)
        return left, by_positive, by_negative + active

    counts = tf.while_loop(
        lambda left, *counts: tf.reduce_any(left),
        step,
        (positive, tf.zeros_like(bounds), tf.zeros_like(reached)),
    )[1:]
    return [tf.stop_gradient(count) for count in counts]
