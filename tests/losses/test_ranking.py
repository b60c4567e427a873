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
    batch,
    check,
    ids_of,
    unit_rows,
    with_gradients,
)

ROWS, INTEGERS = tf.TensorSpec([None, 6]), tf.TensorSpec([None], tf.int64)
OWNERS = (
    [1, 2, 3] * 4 + [1],
    [1] * 11 + [2, 3],
    [1, 1, 2, 5, 5, 5, 3, 3, 4, 4, 3, 1, 1],
)


def thirteen(owners):
    """Returns a batch of three images: one size, which XLA compiles once."""
    masks = reference.positive_masks([1, 2, 3], owners)
    ids = [tf.constant([*x], tf.int64) for x in ([1, 2, 3], owners, range(13))]
    return unit_rows(3, 5), unit_rows(13, 6), masks, ids


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("jit_compile", [False, True])
def test_one_trace_gives_the_values_and_gradients_of_the_reference(
    name, jit_compile
):
    """XLA compiles each size separately, so its batches have one size.

    It has two terms at most: the others use the same code, and take seconds.
    """
    loss, loops = CASES[name]
    if jit_compile and len(loss.term_weights) > 2:
        weights = {"text_to_image": 1.5, "text_to_text": 0.3}
        loss = dataclasses.replace(loss, term_weights=weights)
    run = tf.function(
        with_gradients(loss),
        [ROWS, ROWS, *[INTEGERS] * 3],
        autograph=False,
        jit_compile=jit_compile,
    )
    if jit_compile:
        batches = map(thirteen, OWNERS)
    else:
        batches = [(*batch(name), ids_of(name)) for name in IDS]
    for images, texts, masks, ids in batches:
        wanted = loops(images, texts, masks, loss.term_weights)
        check(run(images, texts, *ids), wanted)
    for rows in (np.arange(len(texts))[:, None] == 2, True):
        spoilt = np.where(rows, np.float32("nan"), texts)
        output, _ = run(images, spoilt, *ids)
        assert np.isnan(output.total)
    assert run.experimental_get_tracing_count() == 1


def test_default_arguments_are_those_of_the_papers():
    config = triplet.TripletLoss().get_config()
    assert (config["margin"], config["num_negatives"]) == (0.05, 10)
    assert list(config["term_weights"].values()) == [1.0, 1.5, 0.05, 0.0]
    config = InfoNCELoss().get_config()
    assert config["temperature"] == 0.07
    assert list(config["term_weights"].values()) == [0.5, 0.5, 0.0, 0.0]
