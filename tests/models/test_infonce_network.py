"""The embedding network with a softmax loss, its temperature fixed or not."""

import keras
import numpy as np
import pytest

import tbnets
from tests.models.test_embedding_network import SHAPES, make_batch

BATCHES = [make_batch(seed=seed) for seed in range(3)]


def compiled(temperature=0.2):
    keras.utils.set_random_seed(0)
    network = tbnets.EmbeddingNetwork(
        tbnets.Branch((8, 4), seed=1),
        tbnets.Branch((8, 4), seed=2),
        text_encoder=tbnets.MeanOfWords(9, 5),
        logit_scale=temperature and tbnets.LogitScale(temperature),
    )
    network.build(SHAPES)
    network.compile(tbnets.FusedAdam(0.05), tbnets.InfoNCELoss(0.2))
    return network


def steps(network, batches):
    return [network.train_step(batch) for batch in batches]


def test_a_learned_temperature_begins_as_a_fixed_one_and_moves():
    fixed, learned = compiled(None), compiled()
    losses = [one.batch_loss(BATCHES[0]).total for one in (fixed, learned)]
    np.testing.assert_allclose(*losses, rtol=1e-6)
    logs = steps(learned, BATCHES)[-1]
    temperature = learned.logit_scale.learned_temperature()
    assert float(temperature) != pytest.approx(0.2, rel=1e-3)
    assert "temperature" in logs
    assert "temperature" not in steps(fixed, BATCHES[:1])[0]


def test_a_loaded_network_goes_on_with_its_temperature(tmp_path):
    straight, stopped = compiled(), compiled()
    steps(straight, BATCHES)
    steps(stopped, BATCHES[:2])
    stopped.save(tmp_path / "network.keras")
    loaded = tbnets.load_model(tmp_path / "network.keras")
    steps(loaded, BATCHES[2:])
    for one, other in zip(loaded.weights, straight.weights, strict=True):
        np.testing.assert_array_equal(one.numpy(), other.numpy())
