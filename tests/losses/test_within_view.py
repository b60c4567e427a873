"""The triplet loss of one view: rows and their labels."""

import numpy as np
import pytest
import tensorflow as tf

from tbnets.losses import miners
from tbnets.losses.infonce import InfoNCELoss
from tbnets.losses.triplet import TripletLoss
from tbnets.startup import no_accelerator
from tests import reference
from tests.losses.batches import unit_rows
from tests.losses.test_triplet import KEPT, REDUCED

# Labels are any integers: large ones that a float would merge, negative ones.
LARGE = 2**40
LABELS = {
    "several": [7, -3, 7, LARGE, LARGE + 1, LARGE, 7],
    "alone": [1, 2, 3],
    "alike": [5, 5, 5],
    "one": [4],
    "empty": [],
}


@pytest.mark.parametrize("number, name", enumerate(LABELS))
def test_values_and_gradients_are_those_of_the_loop(number, name):
    """All choices of negatives meet all of `REDUCED`."""
    labels = np.array(LABELS[name], np.int64)
    rows = tf.constant(unit_rows(len(labels), 3))
    for place, negatives in enumerate(KEPT):
        margin, distance, reduction = REDUCED[(number + place) % 3].values()
        count = 3 if negatives == "top_k" else None
        how = distance, reduction, negatives
        is_sparse = reduction == "sum" and no_accelerator()
        gradient = "sparse" if is_sparse else "dense"
        loss = TripletLoss(margin, count, {}, *how, gradient)
        with tf.GradientTape() as tape:
            tape.watch(rows)
            output = loss(rows, labels)
        gradient = tape.gradient(
            output.total, rows, unconnected_gradients="zero"
        )
        same = labels[:, None] == labels
        itself = np.eye(len(labels), dtype=bool)
        exact = rows.numpy().astype("f8")
        total, active, by_anchors, by_candidates = reference.triplet_term(
            *(exact, exact, same & ~itself, ~same),
            margin=margin,
            num_negatives=KEPT[negatives],
            name=distance,
            reduction=reduction,
        )
        wanted = by_anchors + by_candidates
        close = {"rtol": 1e-4, "atol": 1e-5}
        np.testing.assert_allclose(output.total, total, **close)
        np.testing.assert_allclose(output.terms["within_view"], total, **close)
        np.testing.assert_allclose(
            output.active_fraction["within_view"], active, rtol=1e-6
        )
        np.testing.assert_allclose(gradient, wanted, rtol=1e-3, atol=1e-5)


@pytest.fixture
def unwarned(monkeypatch):
    monkeypatch.setattr(miners, "_checked_arguments", set())


def test_rows_are_looked_at_once(unwarned, recwarn):
    rows, ids, loss = unit_rows(4, 1), [0, 1, 0, 1], TripletLoss()
    loss(tf.cast(rows, tf.bfloat16), rows * [[0], [1], [1], [1]], ids, ids)
    loss(rows, 3 * rows, ids, ids)
    assert not recwarn


def test_rows_of_another_length_are_warned_of_once(unwarned, recwarn):
    rows, ids, loss = unit_rows(4, 1), [0, 1, 0, 1], InfoNCELoss()
    run = tf.function(lambda rows: loss(rows, ids).total, autograph=False)
    run(tf.constant(3 * rows))
    assert not recwarn
    for _ in range(2):
        loss(rows, 3 * rows, ids, ids)
    [warning] = recwarn
    assert "`text_embeddings`" in str(warning)
    assert warning.filename == __file__


def test_a_view_of_another_length_is_warned_of(unwarned):
    with pytest.warns(UserWarning, match="length 1") as caught:
        TripletLoss()(0.5 * unit_rows(2, 1), [0, 1])
    [warning] = caught
    assert warning.filename == __file__
