import io
import zipfile

import h5py
import keras
import numpy as np
import pytest

import tbnets
from tbnets.errors import InputError
from tests import fresh
from tests.models.test_embedding_network import make, make_batch

BATCHES = [make_batch(seed=seed) for seed in range(2)]


def compiled():
    network = make()
    rate = keras.optimizers.schedules.ExponentialDecay(0.02, 1, 0.9)
    network.compile(
        tbnets.FusedAdam(rate),
        tbnets.TripletLoss(
            0.5,
            term_weights={"image_to_text": 1.0, "text_to_text": 0.1},
            negatives="hardest",
            reduction="sum",
        ),
        gradient_clip_norm=0.5,
        structure_steps=1,
    )
    return network


def test_a_loaded_model_continues_training_with_equal_weights(tmp_path):
    network, path = compiled(), tmp_path / "network.keras"
    network.train_step(BATCHES[0])
    network.save(path)
    loaded = tbnets.load_model(path)
    assert loaded.loss.get_config() == network.loss.get_config()
    assert (loaded.gradient_clip_norm, loaded.structure_steps) == (0.5, 1)
    for one in (network, loaded):
        one.train_step(BATCHES[1])
    for one, other in zip(loaded.weights, network.weights, strict=True):
        np.testing.assert_array_equal(one.numpy(), other.numpy())
    assert int(loaded.optimizer.iterations) == len(BATCHES)
    bare = tbnets.load_model(path, compile=False)
    assert bare.loss is None
    assert bare(BATCHES[0])["image_embeddings"].shape == (5, 4)


FRESH = """
import contextlib
import tbnets

with contextlib.suppress(OSError, ValueError):
    tbnets.load_model("missing.keras")
import keras

names = keras.saving.get_custom_objects()
print(*sorted(name for name in names if name.startswith("tbnets>")))
"""


def test_load_model_registers_all_classes_in_a_fresh_process():
    found = fresh.run("-c", FRESH, check=True).stdout.split()
    assert "tbnets>Branch" in found
    assert found == sorted(
        name
        for name, value in keras.saving.get_custom_objects().items()
        if name.startswith("tbnets>") and value.__module__.startswith("tbnets")
    )


def bomb(path, **options):
    """Writes a `.keras` file whose weights unpack to 50 MB."""
    weights = io.BytesIO()
    with h5py.File(weights, "w") as file:
        zeros = np.zeros(50_000_000 // 4, np.float32)
        file.create_dataset("0", data=zeros, **options)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("config.json", "{}")
        method = None if options else zipfile.ZIP_DEFLATED
        archive.writestr("model.weights.h5", weights.getvalue(), method)


def of_unknown_size(path, kind):
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(f"model.weights.{kind}", b"neither HDF5 nor npz")


@pytest.mark.parametrize(
    "write, options",
    [
        (bomb, {}),
        (bomb, {"compression": "gzip"}),
        (of_unknown_size, {"kind": "h5"}),
        (of_unknown_size, {"kind": "npz"}),
    ],
)
def test_a_file_that_would_fill_memory_is_rejected(
    tmp_path, write, options, monkeypatch
):
    write(tmp_path / "a.keras", **options)
    monkeypatch.setattr(keras.models, "load_model", None)
    with pytest.raises(InputError):
        tbnets.load_model(tmp_path / "a.keras")


def test_a_saved_network_of_zeros_loads(tmp_path):
    network = tbnets.EmbeddingNetwork(
        tbnets.Branch((4,)),
        tbnets.Branch((4,)),
        text_encoder=tbnets.MeanOfWords(1000, 600),  # 2.4 MB
    )
    network.compile("adam", tbnets.TripletLoss())
    network.build({"images": (None, 6), "captions": (None, None)})
    network.optimizer.build(network.trainable_variables)
    network.set_weights([np.zeros_like(w) for w in network.get_weights()])
    network.save(tmp_path / "zeros.keras")
    loaded = tbnets.load_model(tmp_path / "zeros.keras")
    assert not any(weight.any() for weight in loaded.get_weights())
