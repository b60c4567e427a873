"""Large batches are compared in tiles, with the results of the loops."""

import pytest
import tensorflow as tf

from tbnets.losses import ranking, softmax_blocks, tiles
from tbnets.losses.infonce import InfoNCELoss
from tbnets.losses.triplet import TripletLoss
from tests import reference
from tests.losses.batches import IDS, TERMS, batch, check

LOSSES = {
    "top_k": TripletLoss(0.5, 2, TERMS),
    "sparse": TripletLoss(0.5, 2, TERMS, gradient="sparse"),
    "all": TripletLoss(0.5, None, TERMS, negatives="all", reduction="sum"),
    "softmax": InfoNCELoss(0.3, TERMS),
}


@pytest.fixture(autouse=True)
def small_tiles(monkeypatch):
    monkeypatch.setattr(tiles, "LARGEST", -1)
    monkeypatch.setattr(tiles, "TILE", 8)
    monkeypatch.setattr(softmax_blocks, "BLOCK", (3, 2))


def wanted_of(name, ids_name):
    images, texts, masks = batch(ids_name)
    if name == "softmax":
        return reference.infonce_loss(images, texts, masks, TERMS, 0.3)
    loss = LOSSES[name]
    return reference.triplet_loss(
        *(images, texts, masks, TERMS, loss.margin),
        *(loss.kept_negatives, loss.distance, loss.reduction),
    )


def found_of(name, ids_name, compiled=lambda run: run):
    images, texts, _ = batch(ids_name)
    ids = [
        None if x is None else tf.constant(x, tf.int64) for x in IDS[ids_name]
    ]

    def run(images, texts):
        with tf.GradientTape() as tape:
            tape.watch([images, texts])
            output = LOSSES[name](images, texts, *ids)
        return output, tape.gradient(output.total, [images, texts])

    return compiled(run)(tf.constant(images), tf.constant(texts))


@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize("ids_name", IDS)
def test_tiles_give_what_the_loops_give(name, ids_name):
    check(found_of(name, ids_name), wanted_of(name, ids_name))


@pytest.mark.parametrize("name", ["top_k", "softmax"])
def test_tiles_compile(name, compiled):
    ids_name = "one_text_on_two_images"
    check(found_of(name, ids_name, compiled), wanted_of(name, ids_name))


@pytest.mark.parametrize("most", [tiles.LARGEST, -1])
@pytest.mark.parametrize("name", ["top_k", "all", "softmax"])
def test_padded_batches_compile_once(name, most, monkeypatch):
    """On accelerators XLA compiles the loss alone, for all batches at once."""
    monkeypatch.setattr(tiles, "LARGEST", most)
    monkeypatch.setattr(ranking, "no_accelerator", lambda: False)
    loss, traces = LOSSES[name], []

    @tf.function(reduce_retracing=True)
    def run(images, texts, *ids):
        traces.append(images.shape)
        with tf.GradientTape() as tape:
            tape.watch([images, texts])
            output = loss.of_ids(images, texts, ids, largest=(6, 14))
        return output, tape.gradient(output.total, [images, texts])

    for ids_name in ("ragged", "one_text_on_two_images", "crowded"):
        images, texts, _ = batch(ids_name)
        image_ids, caption_ids, text_ids = IDS[ids_name]
        text_ids = text_ids or range(len(caption_ids))
        ids = (
            tf.constant([*x], tf.int64)
            for x in (image_ids, caption_ids, text_ids)
        )
        found = run(tf.constant(images), tf.constant(texts), *ids)
        check(found, wanted_of(name, ids_name))
    assert traces[-1].as_list() == [None, 6]
