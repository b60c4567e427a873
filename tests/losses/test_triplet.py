import functools
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf

from tbnets.losses import positives, triplet
from tbnets.losses.presets import PRESETS
from tbnets.losses.ranking import TERMS
from tests import reference

ALL_TERMS = dict(zip(TERMS, (1.0, 1.5, 0.3, 0.2)))
KEPT = {"top_k": 3, "hardest": 1, "all": None}

# Ids of images, of the captions' images, and of the captions' texts.
BATCHES = {
    "ragged": ([4, 9, 2, 7], [4, 4, 9, 7, 7, 7, 2], None),
    "image_without_caption": ([1, 2, 3], [1, 1, 3, 3, 3], None),
    "image_drawn_twice": ([5, 6, 5], [5, 6, 6, 5, 6], None),
    "one_text_on_two_images": ([1, 2, 3, 1], [1, 2, 3, 1], [8, 8, 9, 7]),
    "more_images": ([1, 2, 3, 4, 5], [2, 4], None),
    "one_image": ([1], [1, 1, 1], None),
    "one_pair": ([1], [1], None),
    "no_positive": ([1, 2], [3, 4, 5], None),
    "no_caption": ([1, 2], [], None),
    "empty": ([], [], None),
    "crowded": ([1, 2], [1] * 11 + [2], None),
}


def unit_rows(count, seed, dim=6):
    rows = np.random.default_rng(seed).normal(size=(count, dim))
    return (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype("f4")


def batch(name):
    image_ids, caption_ids, text_ids = BATCHES[name]
    return (
        unit_rows(len(image_ids), 1),
        unit_rows(len(caption_ids), 2),
        reference.positive_masks(image_ids, caption_ids, text_ids),
    )


def with_gradients(loss):
    def run(images, texts, *masks):
        with tf.GradientTape() as tape:
            tape.watch([images, texts])
            output = loss.with_masks(
                images, texts, positives.PositiveMasks(*masks)
            )
        gradients = tape.gradient(
            output.total, [images, texts], unconnected_gradients="zero"
        )
        return output, gradients

    return run


def check(found, wanted):
    output, gradients = found
    total, terms, fractions, *wanted_gradients = wanted
    assert output.total.dtype == tf.float32
    np.testing.assert_allclose(output.total, total, rtol=1e-4, atol=1e-5)
    assert list(output.terms) == list(terms)
    for term in terms:
        np.testing.assert_allclose(
            output.terms[term], terms[term], rtol=1e-4, atol=1e-5
        )
        np.testing.assert_allclose(
            output.active_fraction[term], fractions[term], rtol=1e-6
        )
    for gradient, values in zip(gradients, wanted_gradients):
        np.testing.assert_allclose(gradient, values, rtol=1e-3, atol=1e-5)


REDUCED = [
    {"margin": 0.05, "distance": "euclidean", "reduction": "mean_active"},
    {"margin": 0.5, "distance": "euclidean", "reduction": "mean"},
    {"margin": 0.2, "distance": "cosine", "reduction": "sum"},
]


@pytest.mark.parametrize("number, name", enumerate(BATCHES))
def test_values_and_gradients_are_those_of_the_loops(number, name):
    """Each batch and each choice of negatives meet all of `REDUCED`."""
    images, texts, masks = batch(name)
    inputs = [tf.constant(one) for one in (images, texts, *masks)]
    for place, negatives in enumerate(KEPT):
        options = REDUCED[(number + place) % 3]
        loss = triplet.TripletLoss(
            num_negatives=3 if negatives == "top_k" else None,
            term_weights=ALL_TERMS,
            negatives=negatives,
            gradient=triplet.GRADIENTS[(number + place) % 2],
            **options,
        )
        margin, *others = options.values()
        wanted = reference.triplet_loss(
            *(images, texts, masks, ALL_TERMS, margin, KEPT[negatives]),
            *others,
        )
        check(with_gradients(loss)(*inputs), wanted)


@pytest.mark.parametrize("num_negatives", [1, 2, 10, 600])
def test_num_negatives_is_that_of_the_loops(num_negatives):
    images, texts, masks = batch("ragged")
    loss = triplet.TripletLoss(0.4, num_negatives, ALL_TERMS)
    wanted = reference.triplet_loss(
        images, texts, masks, ALL_TERMS, 0.4, num_negatives
    )
    found = with_gradients(loss)(
        tf.constant(images), tf.constant(texts), *map(tf.constant, masks)
    )
    check(found, wanted)


# The ways of summing hinges: of picked pairs, over all negatives.
COMPILED = {
    "picked": {"num_negatives": 3, "reduction": "mean"},
    "all": {"negatives": "all", "distance": "cosine", "reduction": "sum"},
}
# What of it is compiled: a view and itself; two views in both directions.
SOME_TERMS = {
    "picked": {"text_to_image": 1.5, "text_to_text": 0.3},
    "all": {"image_to_text": 1.0, "text_to_image": 1.5},
}
every_kind = pytest.mark.parametrize("kind", COMPILED)
every_mode = pytest.mark.parametrize("mode", ["eager", "graph", "xla"])


def in_modes(run):
    """Returns a loss with gradients by its mode; compiled for any sizes.

    XLA compiles the graph that was traced already: that is the same one.
    """
    rows = tf.TensorSpec([None, 6])
    mask = tf.TensorSpec([None, None], tf.bool)
    signature = [rows, rows, mask, mask, mask]
    graph = tf.function(run, input_signature=signature)
    xla = tf.function(run, input_signature=signature, jit_compile=True)
    return {"eager": run, "graph": graph, "xla": xla}


@functools.cache
def loss_in_modes(kind):
    terms = SOME_TERMS[kind]
    options = {"term_weights": terms, **COMPILED[kind]}
    dense, sparse = (
        in_modes(
            with_gradients(triplet.TripletLoss(0.3, gradient=g, **options))
        )
        for g in triplet.GRADIENTS
    )
    return {**sparse, "xla": dense["xla"]}  # XLA compiles dense ones alone.


def value_of_loops(kind, images, texts, masks):
    options = COMPILED[kind]
    return reference.triplet_loss(
        *(images, texts, masks, SOME_TERMS[kind], 0.3),
        KEPT[options.get("negatives", "top_k")],
        options.get("distance", "euclidean"),
        options.get("reduction", "mean_active"),
    )


def thirteen(caption_ids):
    """Returns a batch of three images: one size, which XLA compiles once."""
    masks = reference.positive_masks([1, 2, 3], caption_ids)
    views = unit_rows(3, 5), unit_rows(13, 6)
    return *map(tf.constant, views), masks


@every_mode
@every_kind
def test_every_mode_gives_values_and_gradients_of_the_loops(kind, mode):
    for caption_ids in (
        [1, 2, 3] * 4 + [1],
        [1] * 11 + [2, 3],
        [1, 1, 2, 5, 5, 5, 3, 3, 4, 4, 3, 1, 1],
    ):
        images, texts, masks = thirteen(caption_ids)
        found = loss_in_modes(kind)[mode](images, texts, *masks)
        check(found, value_of_loops(kind, images, texts, masks))


@every_kind
def test_one_trace_serves_every_batch_size(kind):
    run = loss_in_modes(kind)["graph"]
    for name in BATCHES:
        images, texts, masks = batch(name)
        wanted = value_of_loops(kind, images, texts, masks)
        check(run(images, texts, *masks), wanted)
    assert run.experimental_get_tracing_count() == 1


@every_mode
@every_kind
def test_a_nan_embedding_is_not_hidden(kind, mode):
    images, texts, masks = thirteen([1, 2, 3] * 4 + [1])
    for rows in (tf.range(13)[:, None] == 2, True):
        spoilt = tf.where(rows, np.nan, texts)
        output, _ = loss_in_modes(kind)[mode](images, spoilt, *masks)
        assert np.isnan(output.total)


def test_loss_of_a_batch_worked_by_hand():
    # Images (1, 0) and (0, 1); captions (0.6, 0.8) of the first, (1, 0) of
    # the second. Cosine distances: first image 0.4 to its own, 0 to the
    # other; second image 1 to its own, 0.2 to the other.
    images = tf.constant([[1.0, 0.0], [0.0, 1.0]])
    texts = tf.constant([[0.6, 0.8], [1.0, 0.0]])
    loss = triplet.TripletLoss(
        margin=0.1,
        term_weights={"image_to_text": 2.0},
        distance="cosine",
        reduction="sum",
    )
    output = loss(images, texts, [1, 2], [1, 2])
    # 0.1 + 0.4 - 0 = 0.5 and 0.1 + 1 - 0.2 = 0.9: 1.4, weighted 2.8.
    np.testing.assert_allclose(output.terms["image_to_text"], 1.4, rtol=1e-6)
    np.testing.assert_allclose(output.total, 2.8, rtol=1e-6)
    assert output.active_fraction["image_to_text"] == 1.0


def test_mean_active_is_not_diluted_by_satisfied_triplets():
    # One anchor (1, 0), its caption at cosine distance 0, negatives at 0.2
    # and 1: hinges 0.5 - 0.2 = 0.3 and 0, so 0.3 over one, 0.15 over two.
    images = tf.constant([[1.0, 0.0]])
    texts = tf.constant([[1.0, 0.0], [0.8, 0.6], [0.0, 1.0]])
    for reduction, wanted in [("mean_active", 0.3), ("mean", 0.15)]:
        loss = triplet.TripletLoss(
            0.5, 10, {"image_to_text": 1.0}, "cosine", reduction
        )
        output = loss(images, texts, [1], [1, 2, 3])
        np.testing.assert_allclose(output.total, wanted, rtol=1e-6)
        assert output.active_fraction["image_to_text"] == 0.5


def test_identical_embeddings_sit_at_the_margin_with_finite_gradients():
    images = tf.tile([[1.0, 0.0]], [3, 1])
    masks = positives.positive_masks([1, 2, 3], [1, 2, 3])
    output, gradients = with_gradients(triplet.TripletLoss(0.05))(
        images, images, *masks
    )
    np.testing.assert_allclose(output.terms["image_to_text"], 0.05, rtol=1e-6)
    assert all(np.all(np.isfinite(gradient)) for gradient in gradients)


def test_an_image_drawn_twice_is_not_its_own_negative():
    images = tf.constant([[1.0, 0.0], [1.0, 0.0]])
    texts = tf.constant([[1.0, 0.0], [0.0, 1.0]])
    output = triplet.TripletLoss(1.0)(images, texts, [7, 7], [7, 7])
    assert output.total == 0.0


@pytest.mark.parametrize("negatives", ["top_k", "all"])
def test_the_diagonal_of_a_view_with_itself_is_never_looked_at(negatives):
    images, texts, (cross, within, others) = batch("ragged")
    loss = triplet.TripletLoss(0.3, term_weights=ALL_TERMS, negatives=negatives)
    wanted = loss.with_masks(images, texts, (cross, within, others))
    bare = [mask & ~np.eye(len(mask), dtype=bool) for mask in (within, others)]
    found = loss.with_masks(images, texts, (cross, *bare))
    assert found.total == wanted.total


@pytest.mark.parametrize("dtype", [tf.float16, tf.bfloat16])
def test_half_precision_embeddings_give_a_float32_loss(dtype):
    images, texts, masks = batch("ragged")
    images, texts = tf.cast(images, dtype), tf.cast(texts, dtype)
    output, gradients = with_gradients(triplet.TripletLoss(0.3, 3, ALL_TERMS))(
        images, texts, *map(tf.constant, masks)
    )
    assert output.total.dtype == tf.float32
    wanted = triplet.TripletLoss(0.3, 3, ALL_TERMS).with_masks(
        tf.cast(images, tf.float32), tf.cast(texts, tf.float32), masks
    )
    assert output.total == wanted.total
    assert all(gradient.dtype == dtype for gradient in gradients)
    assert all(np.all(np.isfinite(g.numpy().astype("f4"))) for g in gradients)


@pytest.mark.parametrize("name", BATCHES)
def test_ids_give_the_loss_of_their_masks(name):
    images, texts, masks = batch(name)
    image_ids, caption_ids, text_ids = (
        ids if ids is None else np.array(ids, np.int64) for ids in BATCHES[name]
    )
    loss = triplet.TripletLoss(0.3, 3, ALL_TERMS)
    wanted = loss.with_masks(images, texts, masks)
    found = loss(images, texts, image_ids, caption_ids, text_ids)
    for one, other in zip(tf.nest.flatten(found), tf.nest.flatten(wanted)):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("preset", PRESETS)
def test_presets_survive_a_round_trip(preset):
    loss = triplet.TripletLoss(**PRESETS[preset])
    again = triplet.TripletLoss.from_config(loss.get_config())
    assert again.get_config() == loss.get_config()


@pytest.mark.parametrize("preset", PRESETS)
def test_presets_name_all_that_makes_the_loss(preset):
    named = {"margin", "distance", "reduction", "negatives", "term_weights"}
    if PRESETS[preset]["negatives"] == "top_k":
        named.add("num_negatives")
    assert set(PRESETS[preset]) == named


def test_presets_are_read_without_tensorflow():
    code = (
        "import sys, tbnets.losses.presets; print('tensorflow' in sys.modules)"
    )
    found = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert found.stdout.strip() == "False"


@pytest.mark.parametrize("preset", PRESETS)
def test_num_negatives_is_none_where_it_is_not_used(preset):
    config = triplet.TripletLoss(**PRESETS[preset]).get_config()
    assert (config["num_negatives"] is None) == (config["negatives"] != "top_k")


def test_a_loss_by_default_is_that_of_wang_2018():
    config = triplet.TripletLoss().get_config()
    assert config == triplet.TripletLoss(**PRESETS["wang2018"]).get_config()
    assert config["margin"] == 0.05
    assert config["num_negatives"] == 10
    assert list(config["term_weights"].values()) == [1.0, 1.5, 0.05, 0.0]


def test_hardest_hinge_agrees_with_tensorflow_addons():
    addons = pytest.importorskip(
        "tensorflow_addons", reason="needs the addons stack", exc_type=Exception
    )
    # Its hardest triplet of an anchor takes the farthest positive too; with
    # two captions an image an anchor has one positive, and both coincide.
    texts = unit_rows(8, 3)
    labels = tf.constant([1, 2, 3, 4, 1, 2, 3, 4])
    wanted = addons.losses.triplet_hard_loss(labels, texts, margin=0.3)
    loss = triplet.TripletLoss(
        0.3,
        term_weights={"text_to_text": 1.0},
        reduction="mean",
        negatives="hardest",
    )
    found = loss(texts[:4], texts, labels[:4], labels)
    np.testing.assert_allclose(found.total, wanted, rtol=1e-4)
