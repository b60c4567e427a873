import numpy as np
import pytest
import tensorflow as tf

from tbnets.losses.hinges import pair_views
from tbnets.losses.presets import PRESETS
from tbnets.losses.triplet import TripletLoss
from tests import reference
from tests.losses.batches import unit_rows

# How many regions and phrases, and the region of each phrase.
BATCHES = {
    "some": (4, [2, 0, 0, 3, 1, 2]),
    "more_regions": (7, [5, 1]),
    "one_pair": (1, [0]),
    "no_pair": (3, []),
    "nothing": (0, []),
}


def batch(name, share=0.8):
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


def with_gradients(loss):
    def run(regions, phrases, *pairs):
        with tf.GradientTape() as tape:
            tape.watch([regions, phrases])
            output = loss.of_views(pair_views(regions, phrases, *pairs))
        return output, tape.gradient(
            output.total, [regions, phrases], unconnected_gradients="zero"
        )

    return run


def check(run, arrays, margin):
    output, gradients = run(*map(tf.constant, arrays))
    total, *wanted = reference.contrastive_loss(*arrays, margin)
    np.testing.assert_allclose(output.total, total, rtol=1e-5, atol=1e-6)
    for found, values in zip(gradients, wanted):
        np.testing.assert_allclose(found, values, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("share", [0.8, 0.0])
@pytest.mark.parametrize("name", BATCHES)
def test_values_and_gradients_are_those_of_the_loops(name, share):
    for margin in (0.05, 1.0):
        loss = TripletLoss(**(PRESETS["niu2017"] | {"margin": margin}))
        check(with_gradients(loss), batch(name, share), margin)


@pytest.mark.parametrize(
    "kept", [{"num_negatives": 2}, {"negatives": "hardest"}]
)
def test_weights_scale_where_a_few_are_picked(kept):
    regions, phrases, region_of, contrast, weights = batch("some")
    loss = TripletLoss(reduction="sum", margin=0.5, **kept)
    totals = []
    for one in (np.ones_like(weights), weights):
        found = pair_views(regions, phrases, region_of, contrast, one)
        by_anchor = [
            loss.of_views(
                {
                    term: view._replace(weights=np.eye(6, dtype="f4")[k] * one)
                    for term, view in found.items()
                }
            ).total
            for k in range(6)
        ]
        totals.append((np.array(by_anchor), loss.of_views(found).total))
    np.testing.assert_allclose(totals[1][0], weights * totals[0][0], rtol=1e-5)
    np.testing.assert_allclose(totals[1][1], totals[1][0].sum(), rtol=1e-5)
