"""What the ranking losses have in common: modes, ids, and no positive."""

import dataclasses
import functools

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

every_case = pytest.mark.parametrize("name", CASES)
every_mode = pytest.mark.parametrize("mode", ["eager", "graph", "xla"])
OWNERS = (
    [1, 2, 3] * 4 + [1],
    [1] * 11 + [2, 3],
    [1, 1, 2, 5, 5, 5, 3, 3, 4, 4, 3, 1, 1],
)


@functools.cache
def in_modes(name):
    """Returns a loss with gradients by its mode, compiled for any sizes."""
    run = with_gradients(CASES[name].loss)
    rows = tf.TensorSpec([None, 6])
    mask = tf.TensorSpec([None, None], tf.bool)
    signature = [rows, rows, mask, mask, mask]
    graph = tf.function(run, signature, autograph=False)
    xla = tf.function(run, signature, autograph=False, jit_compile=True)
    return {"eager": run, "graph": graph, "xla": xla}


def thirteen(owners):
    """Returns a batch of three images: one size, which XLA compiles once."""
    masks = reference.positive_masks([1, 2, 3], owners)
    return unit_rows(3, 5), unit_rows(13, 6), masks


def looped(name, *batch):
    loss, loops = CASES[name]
    return loops(*batch, loss.term_weights)


@every_mode
@every_case
def test_every_mode_gives_values_and_gradients_of_the_loops(name, mode):
    run = in_modes(name)[mode]
    for owners in OWNERS:
        images, texts, masks = thirteen(owners)
        wanted = looped(name, images, texts, masks)
        check(run(images, texts, *masks), wanted)
    for rows in (np.arange(13)[:, None] == 2, True):
        spoilt = np.where(rows, np.float32("nan"), texts)
        output, _ = run(images, spoilt, *masks)
        assert np.isnan(output.total)


@every_case
def test_one_trace_serves_every_batch_size(name):
    run = in_modes(name)["graph"]
    for one in IDS:
        images, texts, masks = batch(one)
        wanted = looped(name, images, texts, masks)
        check(run(images, texts, *masks), wanted)
    assert run.experimental_get_tracing_count() == 1


@pytest.mark.parametrize("name", IDS)
@pytest.mark.parametrize("case", ["picked", "infonce"])
def test_ids_give_the_loss_of_their_masks(case, name):
    loss = dataclasses.replace(CASES[case].loss, term_weights=TERMS)
    images, texts, masks = batch(name)
    ids = [x if x is None else np.array(x, np.int64) for x in IDS[name]]
    wanted = loss.with_masks(images, texts, masks)
    found = loss(images, texts, *ids)
    for one, other in zip(tf.nest.flatten(found), tf.nest.flatten(wanted)):
        np.testing.assert_array_equal(one, other)


@every_case
@pytest.mark.parametrize("ids", ["one_image", "no_positive", "empty"])
def test_anchors_without_a_positive_or_a_negative_pay_nothing(ids, name):
    images, texts, masks = batch(ids)
    loss = dataclasses.replace(CASES[name].loss, term_weights=None)
    output, gradients = with_gradients(loss)(images, texts, *masks)
    assert output.terms["image_to_text"] == 0.0
    assert output.terms["text_to_image"] == 0.0
    assert all(np.isfinite(gradient).all() for gradient in gradients)


def test_a_loss_by_default_is_that_of_its_paper():
    config = triplet.TripletLoss().get_config()
    assert (config["margin"], config["num_negatives"]) == (0.05, 10)
    assert list(config["term_weights"].values()) == [1.0, 1.5, 0.05, 0.0]
    config = InfoNCELoss().get_config()
    assert config["temperature"] == 0.07
    assert list(config["term_weights"].values()) == [0.5, 0.5, 0.0, 0.0]
