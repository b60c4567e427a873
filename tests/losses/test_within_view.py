"""The triplet loss of one view: rows and their labels."""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf

from tbnets.losses import miners
from tbnets.losses.infonce import InfoNCELoss
from tbnets.losses.triplet import TripletLoss
from tests.losses.cases import unit_rows, with_gradients

# Labels are any integers: large ones that a float would merge, negative ones.
LARGE = 2**40
LABELS = {
    "several": [7, -3, 7, LARGE, LARGE + 1, LARGE, 7],
    "alone": [1, 2, 3],
    "alike": [5, 5, 5],
    "one": [4],
    "empty": [],
}


@pytest.mark.parametrize("loss", [TripletLoss(0.5, 2), InfoNCELoss(0.3)])
@pytest.mark.parametrize("name", LABELS)
def test_embeddings_with_labels_equal_the_text_to_text_term(name, loss):
    labels = np.array(LABELS[name], np.int64)
    rows = tf.constant(unit_rows(len(labels), 3))
    weights = {"text_to_text": 1.0}
    of_texts = with_gradients(dataclasses.replace(loss, term_weights=weights))
    wanted, (_, wanted_gradient) = of_texts(rows[:0], rows, labels[:0], labels)
    with tf.GradientTape() as tape:
        tape.watch(rows)
        output = loss(rows, labels)
    found = output.total, output.terms, output.active_fraction
    for one, other in zip(tf.nest.flatten(found), tf.nest.flatten(wanted)):
        np.testing.assert_array_equal(one, other)
    gradient = tape.gradient(output.total, rows, unconnected_gradients="zero")
    np.testing.assert_array_equal(gradient, wanted_gradient)


@pytest.fixture
def unwarned(monkeypatch):
    monkeypatch.setattr(miners, "_checked_arguments", set())


def test_embeddings_of_another_length_warn_once(unwarned, recwarn):
    rows, ids, loss = unit_rows(4, 1), [0, 1, 0, 1], InfoNCELoss()
    run = tf.function(lambda rows: loss(rows, ids).total, autograph=False)
    run(tf.constant(3 * rows))
    assert not recwarn
    for _ in range(2):
        loss(rows, 3 * rows, ids, ids)
    [warning] = recwarn
    assert "`text_embeddings`" in str(warning)
    assert warning.filename == __file__
