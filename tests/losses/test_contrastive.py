import numpy as np
import pytest
import tensorflow as tf

from tbnets.losses.positives import pair_views
from tbnets.losses.presets import PRESETS
from tbnets.losses.ranking import rank
from tbnets.losses.triplet import TripletLoss
from tests import reference
from tests.losses.cases import unit_rows

# How many regions and phrases, and the region of each phrase.
BATCHES = {
    "some": (4, [2, 0, 0, 3, 1, 2]),
    "more_regions": (7, [5, 1]),
    "one_pair": (1, [0]),
    "no_pair": (3, []),
    "nothing": (0, []),
}


def batch(name, share):
    generator = np.random.default_rng(3)
    num_regions, region_of = BATCHES[name]
    is_contrast = generator.uniform(size=(num_regions, len(region_of))) < share
    for phrase, region in enumerate(region_of):
        is_contrast[region, phrase] = False
    return (
        unit_rows(num_regions, 1),
        unit_rows(len(region_of), 2),
        np.array(region_of, "int32"),
        is_contrast,
        generator.uniform(size=len(region_of)).astype("float32"),
    )


@pytest.mark.parametrize(
    "name, share, margin",
    [
        *((name, 0.8, 1.0) for name in BATCHES),
        ("some", 0.8, 0.05),
        ("some", 0.0, 1.0),
        ("more_regions", 0.0, 0.05),
    ],
)
def test_values_and_gradients_equal_the_reference(name, share, margin):
    regions, phrases, *pairs = map(tf.constant, batch(name, share))
    loss = TripletLoss(**(PRESETS["niu2017"] | {"margin": margin}))
    with tf.GradientTape() as tape:
        tape.watch([regions, phrases])
        output = rank(loss, pair_views(regions, phrases, *pairs))
    gradients = tape.gradient(
        output.total, [regions, phrases], unconnected_gradients="zero"
    )
    total, *wanted = reference.contrastive_loss(*batch(name, share), margin)
    np.testing.assert_allclose(output.total, total, rtol=1e-5, atol=1e-6)
    for found, values in zip(gradients, wanted):
        np.testing.assert_allclose(found, values, rtol=1e-4, atol=1e-5)
