import keras
import numpy as np
import pytest
import tensorflow as tf

from tbnets.layers.branch import Branch
from tbnets.layers.tree_lstm import TreeEncoder
from tbnets.losses.infonce import InfoNCELoss
from tbnets.losses.presets import PRESETS
from tbnets.losses.triplet import TripletLoss
from tbnets.models.hm_lstm import HMLSTM
from tbnets.text.packed_trees import TreeRows, tree_arrays
from tbnets.text.trees import read_tree
from tbnets.text.vocabulary import Vocabulary
from tests import reference

VOCABULARY = Vocabulary(("", "[UNK]", "dog", "cat", "sees"))
CAPTIONS = (
    "(S (NP (NN dog)) (VBZ sees) (NP (NN cat)))",
    "(NN cat)",
    "(S (NP (JJ old) (NN cat)) (VBZ sees))",
)
TERMS = {"image_to_text": 1.0, "text_to_image": 1.0}
random = np.random.default_rng(0)
BATCH = {
    "images": random.normal(size=(2, 5)).astype("float32"),
    "captions": TreeRows(
        tree_arrays([read_tree(text) for text in CAPTIONS], VOCABULARY)
    ).batch(np.arange(3)),
    "image_ids": np.array([7, 8]),
    "caption_image_ids": np.array([7, 8, 8]),
    "regions": random.normal(size=(3, 5)).astype("float32"),
    "region_images": np.array([0, 0, 1], "int32"),
    # Trees of 6, 1 and 5 nodes: dog, cat, and old cat of photo 1.
    "phrase_nodes": np.array([3, 4, 6 + 1 + 3], "int32"),
    "region_of": np.array([1, 0, 4], "int32"),
    "is_contrast": random.uniform(size=(3, 5)) < 0.7,
    "weights": np.array([0.5, 1.0, 0.25], "float32"),
}
BATCH["is_contrast"][np.arange(3), BATCH["region_of"]] = False


LOSS = TripletLoss(**PRESETS["niu2017"] | {"margin": 0.5})


def network(own, batch_normalization="none", built=True, loss=LOSS, **options):
    made = HMLSTM(
        Branch((4,), batch_normalization, seed=1),
        Branch((4,), batch_normalization, seed=2),
        text_encoder=TreeEncoder(VOCABULARY.size, 3, 6),
        region_branch=Branch((4,), batch_normalization) if own else None,
    )
    shapes = {
        "images": (None, 5),
        "captions": (None, None, 6),
        "regions": (None, 5),
    }
    if built:
        made.build(shapes)
    made.compile("sgd", loss, **options)
    return made


NO_PAIRS = {
    "regions": tf.zeros([0, 5]),
    "region_images": tf.zeros([0], tf.int32),
    "phrase_nodes": tf.zeros([0], tf.int32),
    "region_of": tf.zeros([0], tf.int32),
    "is_contrast": tf.zeros([0, 2], tf.bool),
    "weights": tf.zeros([0]),
}
BATCHES = [BATCH | NO_PAIRS, BATCH]


class Losses(keras.callbacks.Callback):
    """Records the mean loss of the epoch after each step."""

    def on_train_batch_end(self, batch, logs=None):
        self.seen = [*getattr(self, "seen", []), float(logs["loss"])]


def fit(network):
    """Trains on `BATCHES`, with shapes that need only one trace."""
    losses = Losses()
    data = tf.data.Dataset.from_generator(
        lambda: iter(BATCHES),
        output_signature={
            name: tf.TensorSpec([None, *value.shape[1:]], value.dtype)
            for name, value in BATCH.items()
        }
        | {"is_contrast": tf.TensorSpec([None, None], tf.bool)},
    )
    network.fit(
        data, steps_per_epoch=2, shuffle=False, verbose=0, callbacks=[losses]
    )
    return losses.seen


@pytest.mark.parametrize("own", [True, False])
def test_hm_lstm_loss_equals_the_reference(own):
    made = network(own, phrase_weight=2.0, region_mean_weight=float(own))
    images = made.embed_images(BATCH["images"]).numpy()
    regions = made.embed_regions(BATCH["regions"]).numpy()
    states, trees = made.text_encoder.encode_nodes(BATCH["captions"])
    nodes = made.text_branch(states).numpy()
    sentences = nodes[trees.roots.numpy()]
    # Each packed node has a tree and a span of words; find the phrases.
    spans = [(0, 0, 1), (0, 2, 3), (2, 0, 2)]
    keys = np.column_stack([trees.trees, trees.spans, trees.is_noun_phrase])
    rows = [np.flatnonzero((keys == (*s, 1)).all(axis=1))[0] for s in spans]
    masks = reference.positive_masks(
        BATCH["image_ids"], BATCH["caption_image_ids"]
    )
    options = TERMS, 0.5, None, "cosine", "sum"
    wanted = reference.triplet_loss(images, sentences, masks, *options)[0]
    pairs = reference.contrastive_loss(
        np.concatenate([regions, images]).astype("float64"),
        nodes[rows].astype("float64"),
        BATCH["region_of"],
        BATCH["is_contrast"].T,
        BATCH["weights"],
        0.5,
    )[0]
    assert pairs > 0
    total = wanted + 2 * pairs
    if own:
        mean = np.stack([regions[:2].sum(axis=0), regions[2]])
        mean /= np.linalg.norm(mean, axis=1, keepdims=True)
        total += reference.triplet_loss(mean, sentences, masks, *options)[0]
    found = made.batch_loss({k: tf.constant(v) for k, v in BATCH.items()})
    np.testing.assert_allclose(found.total, total, rtol=1e-4)
    reported = made.report(found)
    both = reported["region_to_phrase_loss"] + reported["phrase_to_region_loss"]
    np.testing.assert_allclose(both, pairs, rtol=1e-4)
    assert ("region_mean_loss" in reported) == own


def test_one_graph_trains_on_batches_with_and_without_pairs():
    traced = network(False, "last", loss=InfoNCELoss(1.0, TERMS))
    before = [np.array(weight) for weight in traced.weights]
    losses = fit(traced)
    after = [np.array(weight) for weight in traced.weights]
    traced.set_weights(before)
    traced.reset_metrics()
    tensors = tf.nest.map_structure(tf.constant, BATCHES)
    wanted = [float(traced.train_step(one)["loss"]) for one in tensors]
    np.testing.assert_allclose(losses, wanted, rtol=1e-4)
    assert np.isfinite(losses).all() and losses[0] != losses[1]
    assert all(np.isfinite(weight).all() for weight in after)
    for one, other in zip(traced.weights, after, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)


def test_nodes_use_the_statistics_of_their_batch_in_training():
    made, nodes = network(True, "last"), BATCH["phrase_nodes"]
    served, trained = (
        made.embed_nodes(BATCH["captions"], nodes, training)[1]
        for training in (False, True)
    )
    assert not np.allclose(served, trained, atol=1e-3)


def test_noun_phrases_are_ordered_by_tree_and_node():
    made = network(True)
    found, captions, spans = made.embed_noun_phrases(BATCH["captions"])
    assert captions.numpy().tolist() == [0, 0, 2]
    assert spans.numpy().tolist() == [[0, 1], [2, 3], [0, 2]]
    _, wanted = made.embed_nodes(BATCH["captions"], BATCH["phrase_nodes"])
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)
