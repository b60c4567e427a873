"""Large batches are compared in tiles, with the results of the loops."""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf

from tbnets.losses import ranking, tiles
from tbnets.losses.infonce import InfoNCELoss
from tbnets.losses.presets import CROSS_TERMS
from tests.losses.cases import (
    CASES,
    IDS,
    TERMS,
    batch,
    check,
    ids_of,
    with_gradients,
)

LOSSES = {
    name: case._replace(loss=dataclasses.replace(case.loss, term_weights=TERMS))
    for name, case in CASES.items()
}
sparse = dataclasses.replace(LOSSES["picked"].loss, gradient="sparse")
LOSSES["sparse"] = LOSSES["picked"]._replace(loss=sparse)


@pytest.fixture(autouse=True)
def small_tiles(monkeypatch):
    monkeypatch.setattr(tiles, "LARGEST", -1)
    small = dict.fromkeys(tiles.TILES, 24)
    monkeypatch.setattr(tiles, "TILES", small)


def wanted_of(name, ids_name, weights=TERMS):
    return LOSSES[name].loops(*batch(ids_name), weights)


def found_of(name, ids_name):
    images, texts, _ = batch(ids_name)
    ids = ids_of(ids_name)[: 3 if IDS[ids_name][2] else 2]
    return with_gradients(LOSSES[name].loss)(images, texts, *ids)


FEW = "ragged", "one_text_on_two_images", "image_drawn_twice", "empty"
# The masks of tiles are those of InfoNCE, which has blocks of its own. Sparse
# gradients need many positives.
BATCHES = {
    "picked": ["ragged", "empty"],
    "all": ["image_drawn_twice"],
    "sparse": ["crowded"],
    "infonce": [*FEW, "more_images", "no_positive", "crowded"],
}
PAIRS = [
    (name, ids_name) for name in LOSSES for ids_name in BATCHES.get(name, FEW)
]


@pytest.mark.parametrize("name, ids_name", PAIRS)
def test_losses_in_tiles_equal_the_reference(name, ids_name):
    check(found_of(name, ids_name), wanted_of(name, ids_name))


PADDED = {
    "whole": ({"text_to_text": 1.0}, 8192),
    "blocks": (dict.fromkeys(CROSS_TERMS, 0.5), -1),
}
"""The terms, and the number of rows that need no tiles."""


@pytest.mark.parametrize("name", PADDED)
def test_padded_batches_are_compiled_once(name, monkeypatch):
    """On accelerators XLA compiles the loss alone, for all batches at once."""
    weights, largest = PADDED[name]
    infonce = LOSSES["infonce"].loss  # It compiles faster than triplets.
    loss = dataclasses.replace(infonce, term_weights=weights)
    monkeypatch.setattr(tiles, "LARGEST", largest)
    monkeypatch.setattr(ranking, "no_accelerator", lambda: False)
    rows, integers = tf.TensorSpec([None, 6]), tf.TensorSpec([None], tf.int64)

    run = tf.function(
        with_gradients(loss, largest=(6, 14)), [rows, rows, *[integers] * 3]
    )
    for ids_name in ("ragged", "one_text_on_two_images"):
        images, texts, _ = batch(ids_name)
        found = run(images, texts, *ids_of(ids_name))
        check(found, wanted_of("infonce", ids_name, weights))


@pytest.mark.parametrize("largest", [8192, -1])
def test_bfloat16_similarities_equal_those_of_rounded_embeddings(
    largest, monkeypatch
):
    monkeypatch.setattr(tiles, "LARGEST", largest)
    loss = InfoNCELoss(0.3, similarity_dtype="bfloat16")
    images, texts, _ = batch("ragged")
    ids = IDS["ragged"][:2]
    rounded = (
        tf.cast(tf.cast(rows, tf.bfloat16), tf.float32)
        for rows in (images, texts)
    )
    wanted = InfoNCELoss(0.3)(*rounded, *ids).total
    found = loss(images, texts, *ids).total
    assert found.dtype == tf.float32
    np.testing.assert_allclose(found, wanted, rtol=3e-3)


def test_padding_does_not_overflow():
    rows = tf.tile([[1.0, 0.0]], [5, 1])
    with tf.GradientTape() as tape:
        tape.watch(rows)
        total = InfoNCELoss(0.005)(rows, -rows, range(5), range(5)).total
    assert np.isfinite(tape.gradient(total, rows)).all()


def test_only_large_batches_use_tiles(monkeypatch):
    uses = []
    of_tiles = ranking.RankingLoss.sums_in_tiles
    monkeypatch.setattr(
        ranking.RankingLoss,
        "sums_in_tiles",
        lambda *args: uses.append(1) or of_tiles(*args),
    )
    loss, (images, texts, _) = LOSSES["infonce"].loss, batch("ragged")
    *ids, _ = IDS["ragged"]
    num_images, num_texts = len(images), len(texts)
    assert num_texts > num_images
    for largest, limit, is_large in (
        (None, num_texts, False),
        (None, num_texts - 1, True),
        ((num_images, num_texts), num_texts, False),
        ((num_texts + 1, num_texts), num_texts, True),
    ):
        monkeypatch.setattr(tiles, "LARGEST", limit)
        uses.clear()
        loss(images, texts, *ids, largest=largest)
        assert bool(uses) == is_large
