"""A small network learns as well as it did when this test was written.

The bands are narrow enough that a wrong miner, mask or gradient leaves them,
and wide enough for the rounding of other versions and machines.
"""

import numpy as np

from tbnets.data.batches import EpochBatches, Examples
from tbnets.evaluation.retrieval import evaluate_retrieval
from tbnets.layers.branch import Branch
from tbnets.losses.triplet import TripletLoss
from tbnets.models.embedding_network import EmbeddingNetwork
from tbnets.training.optimizers import FusedAdam

NUM_IMAGES, PER_IMAGE, LATENT, FEATURES = 48, 3, 6, 16

BANDS = {
    "recall_sum": (355.6, 9.0),
    "loss": (0.521, 0.015),
    "image_to_text_active": (0.369, 0.02),
    "text_to_image_active": (0.244, 0.02),
    "text_to_text_active": (0.235, 0.02),
}
"""A value of the trained network, and how much it may differ."""


def examples(seed):
    """Returns images and captions that are views of common latent vectors."""
    views = np.random.default_rng(0).normal(size=(2, LATENT, FEATURES))
    rng = np.random.default_rng(seed)
    latent = rng.normal(size=(NUM_IMAGES, LATENT))
    owners = np.repeat(np.arange(NUM_IMAGES), PER_IMAGE)
    images, texts = latent @ views[0], latent[owners] @ views[1]
    images += rng.normal(size=images.shape)
    texts += rng.normal(size=texts.shape)
    return images.astype("f4"), texts.astype("f4"), owners


def network():
    """Returns a network whose weights do not depend on the Keras version."""
    sides = [Branch((24, 8), dropout=0.0) for _ in range(2)]
    model = EmbeddingNetwork(*sides)
    model.build({"images": (None, FEATURES), "captions": (None, FEATURES)})
    rng = np.random.default_rng(1)
    for weight in model.trainable_variables:
        if len(weight.shape) == 2:
            weight.assign(rng.normal(size=weight.shape) / 4)
    return model


def test_training_reaches_known_losses_and_recalls(eagerly):
    images, texts, owners = examples(seed=2)
    data = Examples.from_arrays(images, texts, owners)
    batches = EpochBatches(data, 16, captions_per_image=2, seed=3)
    model = network()
    weights = {"image_to_text": 1, "text_to_image": 1.5, "text_to_text": 0.5}
    loss = TripletLoss(0.2, 5, weights)
    model.compile(FusedAdam(0.01), loss)
    logs = model.fit(batches, epochs=8, verbose=0).history
    images, texts, owners = examples(seed=4)
    embedded = model.embed_images(images), model.embed_text(texts)
    found = evaluate_retrieval(*map(np.asarray, embedded), owners)
    found |= {name: values[-1] for name, values in logs.items()}
    for name, (value, tolerance) in BANDS.items():
        np.testing.assert_allclose(
            found[name], value, 0, tolerance, err_msg=name
        )
