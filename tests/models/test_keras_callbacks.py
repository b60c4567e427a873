"""Keras' own callbacks do with a network what they do with any model."""

import keras
import numpy as np
import pytest

import tbnets


def pairs(seed, count=8):
    """Images beside captions that name them, each pair alike."""
    rows = np.random.default_rng(seed).normal(size=(count, 6))
    ids = np.arange(count)
    return {
        "images": rows.astype(np.float32),
        "captions": rows.astype(np.float32),
        "image_ids": ids,
        "caption_image_ids": ids,
    }


@pytest.fixture
def network():
    keras.utils.set_random_seed(0)
    network = tbnets.EmbeddingNetwork(tbnets.Branch((4,)), tbnets.Branch((4,)))
    network.compile(keras.optimizers.SGD(1e-3), tbnets.TripletLoss())
    return network


def fit(network, *callbacks, epochs=3):
    return network.fit(
        pairs(0),
        validation_data=pairs(1),
        batch_size=4,
        epochs=epochs,
        verbose=0,
        callbacks=list(callbacks),
    ).history


def test_loss_and_val_loss_are_logged(network):
    history = fit(network)
    assert len(history["loss"]) == len(history["val_loss"]) == 3
    assert np.isfinite(history["loss"] + history["val_loss"]).all()


def test_early_stopping_stops_where_nothing_gets_better(network):
    stop = keras.callbacks.EarlyStopping("val_loss", min_delta=1e9)
    assert len(fit(network, stop, epochs=9)["loss"]) == 2


def test_the_best_model_is_saved_and_loads(network, tmp_path):
    path = str(tmp_path / "best.keras")
    fit(network, keras.callbacks.ModelCheckpoint(path, save_best_only=True))
    loaded = tbnets.load_model(path)
    rows = pairs(1)["images"]
    assert loaded.embed_images(rows).shape == (8, 4)


def test_the_rate_is_lowered_on_a_plateau(network):
    lower = keras.callbacks.ReduceLROnPlateau(
        "val_loss", factor=0.1, patience=1, min_delta=1e9
    )
    fit(network, lower)
    rate = float(np.asarray(network.optimizer.learning_rate))
    # The first epoch is the best; each of the two after it waits in vain.
    assert rate == pytest.approx(1e-5)
