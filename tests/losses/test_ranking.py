"""Tests that all ranking losses share: graphs, XLA, ids and defaults."""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf

from tbnets.losses import triplet
from tbnets.losses.infonce import InfoNCELoss
from tests import reference
from tests.losses.cases import (
    CASES,
    IDS,
    TERMS,
    batch,
    check,
    unit_rows,
    with_gradients,
)

ROWS, MASK = tf.TensorSpec([None, 6]), tf.TensorSpec([None, None], tf.bool)
OWNERS = (
    [1, 2, 3] * 4 + [1],
    [1] * 11 + [2, 3],
    [1, 1, 2, 5, 5, 5, 3, 3, 4, 4, 3, 1, 1],
)


def thirteen(owners):
    """Returns a batch of three images: one size, which XLA compiles once."""
    masks = reference.positive_masks([1, 2, 3], owners)
    return unit_rows(3, 5), unit_rows(13, 6), masks


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("jit_compile", [False, True])
def test_one_trace_gives_values_and_gradients_of_the_loops(name, jit_compile):
    """XLA compiles each size separately, so its batches have one size."""
    loss, loops = CASES[name]
    run = tf.function(
        with_gradients(loss),
        [ROWS, ROWS, MASK, MASK, MASK],
        autograph=False,
        jit_compile=jit_compile,
    )
    batches = map(thirteen, OWNERS) if jit_compile else map(batch, IDS)
    for images, texts, masks in batches:
        wanted = loops(images, texts, masks, loss.term_weights)
        check(run(images, texts, *masks), wanted)
    for rows in (np.arange(len(texts))[:, None] == 2, True):
        spoilt = np.where(rows, np.float32("nan"), texts)
        output, _ = run(images, spoilt, *masks)
        assert np.isnan(output.total)
    assert run.experimental_get_tracing_count() == 1


@pytest.mark.parametrize("name", IDS)
@pytest.mark.parametrize("case", ["picked", "infonce"])
def test_ids_give_the_loss_of_their_masks(case, name):
    loss = dataclasses.replace(CASES[case].loss, term_weights=TERMS)
    images, texts, masks = batch(name)
    ids = [x if x is None else np.array(x, np.int64) for x in IDS[name]]
    wanted = loss.with_masks(images, texts, masks)
    check((wanted, ()), CASES[case].loops(images, texts, masks, TERMS))
    found = loss(images, texts, *ids)
    for one, other in zip(tf.nest.flatten(found), tf.nest.flatten(wanted)):
        np.testing.assert_array_equal(one, other)


def test_a_loss_by_default_is_that_of_its_paper():
    config = triplet.TripletLoss().get_config()
    assert (config["margin"], config["num_negatives"]) == (0.05, 10)
    assert list(config["term_weights"].values()) == [1.0, 1.5, 0.05, 0.0]
    config = InfoNCELoss().get_config()
    assert config["temperature"] == 0.07
    assert list(config["term_weights"].values()) == [0.5, 0.5, 0.0, 0.0]
