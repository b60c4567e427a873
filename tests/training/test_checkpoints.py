import errno
import io
import json
import os
import shutil
import zipfile

import keras
import numpy as np
import pytest

from tbnets.errors import FileError, InputError, UserError
from tbnets.training import checkpoints


def make():
    model = keras.Sequential([keras.layers.Dense(3), keras.layers.Dense(2)])
    model.build((None, 4))
    optimizer = keras.optimizers.Adam()
    optimizer.build(model.trainable_variables)
    return model, optimizer


def step(model, optimizer):
    values = [v * 0 + 0.5 for v in model.trainable_variables]
    optimizer.apply_gradients(zip(values, model.trainable_variables))


def restore(path, *into):
    """Puts a checkpoint into a model; returns its state."""
    checkpoint = checkpoints.read_checkpoint(path)
    checkpoints.put_into(checkpoint, path, *into)
    return checkpoint.state


STATE = checkpoints.RunState(
    epoch=3,
    best_metric=210.5,
    best_epoch=2,
    fitted={"words": ["", "[UNK]", "a"]},
)


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    path = tmp_path_factory.mktemp("checkpoint") / "best.npz"
    checkpoints.save_checkpoint(path, *make(), STATE)
    return path


@pytest.fixture
def path(checkpoint, tmp_path):
    """Returns the path of a checkpoint that a test may change."""
    return shutil.copy(checkpoint, tmp_path / "best.npz")


def values(model, optimizer):
    variables = model.weights + checkpoints.optimizer_variables(optimizer)
    return [np.array(v.numpy()) for v in variables]


def test_round_trip_restores_everything(tmp_path):
    path = tmp_path / "last.npz"
    model, optimizer = make()
    step(model, optimizer)
    checkpoints.save_checkpoint(path, model, optimizer, STATE)
    other, other_optimizer = make()
    state = restore(path, other, other_optimizer)
    assert state == STATE
    for _ in range(2):  # A further step also gives equal values.
        for one, two in zip(
            values(model, optimizer), values(other, other_optimizer)
        ):
            np.testing.assert_array_equal(one, two)
        step(model, optimizer)
        step(other, other_optimizer)


def test_a_full_disk_leaves_the_last_good_checkpoint(path, monkeypatch):
    good = path.read_bytes()

    def full(file, **_):
        file.write(b"half of it")
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(np, "savez", full)
    with pytest.raises(FileError, match="best.npz"):
        checkpoints.save_checkpoint(path, *make(), STATE)
    assert path.read_bytes() == good
    assert os.listdir(path.parent) == ["best.npz"]


def test_a_checkpoint_of_another_network_is_rejected_without_changes(path):
    other = keras.Sequential([keras.layers.Dense(5), keras.layers.Dense(2)])
    other.build((None, 4))
    before = other.get_weights()
    with pytest.raises(InputError):
        restore(path, other)
    for one, two in zip(before, other.get_weights()):
        np.testing.assert_array_equal(one, two)
    smaller = keras.Sequential([keras.layers.Dense(2)])
    smaller.build((None, 4))
    with pytest.raises(InputError):
        restore(path, smaller)


def test_fitted_and_held_arrays_are_restored(tmp_path):
    path = tmp_path / "last.npz"
    state = checkpoints.RunState(
        fitted={"words": ["a"], "mean": np.arange(3.0)},
        held={"pairs": np.array([[1, 2]]), "round": 4},
    )
    model, optimizer = make()
    checkpoints.save_checkpoint(path, model, optimizer, state)
    found = restore(path, model, optimizer)
    assert found.fitted["words"] == ["a"] and found.held["round"] == 4
    np.testing.assert_array_equal(found.fitted["mean"], np.arange(3.0))
    np.testing.assert_array_equal(found.held["pairs"], [[1, 2]])
    # Saving does not change the state.
    assert set(state.fitted) == {"words", "mean"}


def rewritten(path, **values):
    """Replaces values in the state of a checkpoint."""
    with np.load(path) as file:
        arrays = dict(file)
    header = json.loads(arrays.pop("header").tobytes())
    header["state"] |= values
    header = np.frombuffer(json.dumps(header).encode(), np.uint8)
    np.savez(path, header=header, **arrays)


@pytest.mark.parametrize("dtype", ["complex64", "S4"])
def test_arrays_that_are_not_real_numbers_are_rejected(path, dtype):
    with np.load(path) as file:
        arrays = dict(file)
    key = next(key for key in arrays if key.startswith("model/"))
    arrays[key] = np.zeros(arrays[key].shape, dtype)
    np.savez(path, **arrays)
    with pytest.raises(UserError, match="best.npz"):
        checkpoints.read_checkpoint(path)


@pytest.mark.parametrize(
    "values",
    [{"epoch": "3"}, {"history": [{"loss": "low"}]}, {"surplus": 1}],
    ids=str,
)
def test_a_state_of_wrong_types_is_rejected(path, values):
    rewritten(path, **values)
    for read in (checkpoints.read_checkpoint, checkpoints.read_progress):
        with pytest.raises(UserError, match=f"best.npz .*{min(values)}"):
            read(path)


def forged(shape):
    """Returns a function that adds an array with a false shape."""

    def forge(content):
        header = np.lib.format.header_data_from_array_1_0(np.zeros(3))
        array = io.BytesIO()
        header |= {"shape": shape}
        np.lib.format.write_array_header_1_0(array, header)
        array.write(np.zeros(3).tobytes())
        file = io.BytesIO(content)
        with zipfile.ZipFile(file, "a") as archive:
            archive.writestr("model/9999.npy", array.getvalue())
        content[:] = file.getvalue()

    return forge


def saved(save, header):
    """Returns a function that writes a file with only a header."""

    def write(content):
        file = io.BytesIO()
        save(file, header=header)
        content[:] = file.getvalue()

    return write


def cut(share):
    def keep(content):
        del content[int(len(content) * share) :]

    return keep


PICKLED = np.array([{"format": "x"}], dtype=object)
DAMAGES = {
    "cut": cut(0.99),
    "pickled": saved(np.savez, PICKLED),
    "compressed": saved(np.savez_compressed, np.zeros(10**7, np.uint8)),
    "larger than its file": forged((10**12,)),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_error_names_the_damaged_checkpoint(path, damage):
    content = bytearray(path.read_bytes())
    DAMAGES[damage](content)
    path.write_bytes(content)
    with pytest.raises(UserError, match="best.npz must be a complete"):
        checkpoints.read_checkpoint(path)


def test_a_missing_checkpoint_is_a_missing_file(tmp_path):
    with pytest.raises(FileNotFoundError, match="best.npz"):
        checkpoints.read_checkpoint(tmp_path / "best.npz")


def test_progress_is_read_without_the_arrays(path, monkeypatch):
    whole = checkpoints.read_checkpoint(path).state
    read, arrays = np.lib.format.read_array, []

    def kept(stream, **options):
        arrays.append(read(stream, **options))
        return arrays[-1]

    monkeypatch.setattr(np.lib.format, "read_array", kept)
    state = checkpoints.read_progress(path)
    assert len(arrays) == 1 and arrays[0].dtype == np.uint8
    assert (state.epoch, state.settings) == (whole.epoch, whole.settings)
