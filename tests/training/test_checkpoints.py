import errno
import io
import json
import os
import zipfile

import keras
import numpy as np
import pytest

from tbnets import files
from tbnets.errors import UserError
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


STATE = checkpoints.RunState(
    epoch=3,
    best_metric=210.5,
    best_epoch=2,
    fitted={"words": ["", "[UNK]", "a"]},
)


def values(model, optimizer):
    variables = model.weights + checkpoints.optimizer_variables(optimizer)
    return [np.array(v.numpy()) for v in variables]


def test_round_trip_restores_everything(tmp_path):
    path = tmp_path / "last.npz"
    model, optimizer = make()
    step(model, optimizer)
    checkpoints.save_checkpoint(path, model, optimizer, STATE)
    other, other_optimizer = make()
    state = checkpoints.restore_checkpoint(path, other, other_optimizer)
    assert state == STATE
    for one, two in zip(
        values(model, optimizer), values(other, other_optimizer)
    ):
        np.testing.assert_array_equal(one, two)


def test_the_optimizer_goes_on_as_if_nothing_happened(tmp_path):
    path = tmp_path / "last.npz"
    model, optimizer = make()
    step(model, optimizer)
    checkpoints.save_checkpoint(path, model, optimizer, STATE)
    step(model, optimizer)
    other, other_optimizer = make()
    checkpoints.restore_checkpoint(path, other, other_optimizer)
    step(other, other_optimizer)
    for one, two in zip(model.get_weights(), other.get_weights()):
        np.testing.assert_array_equal(one, two)


def test_a_full_disk_leaves_the_last_good_checkpoint(tmp_path, monkeypatch):
    path = tmp_path / "last.npz"
    model, optimizer = make()
    checkpoints.save_checkpoint(path, model, optimizer, STATE)
    good = path.read_bytes()

    def full(*_, **__):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(np, "savez", full)
    with pytest.raises(OSError, match="last.npz could not be written: No sp"):
        checkpoints.save_checkpoint(path, model, optimizer, STATE)
    assert path.read_bytes() == good
    assert os.listdir(tmp_path) == ["last.npz"]


def test_a_really_full_disk(tmp_path):
    if not os.path.exists("/dev/full"):
        pytest.skip("no /dev/full on this system")
    path = tmp_path / "note.json"
    files.write_json(path, {"a": 1})

    def write(file):
        with open("/dev/full", "wb", buffering=0) as full:
            full.write(b"x")

    with pytest.raises(OSError, match="what it held before is unharmed"):
        files.write_atomically(path, write)
    assert path.read_text() == '{\n  "a": 1\n}\n'


@pytest.mark.parametrize("keep", [0, 10, 0.5, 0.99])
def test_a_file_cut_short_is_named(tmp_path, keep):
    path = tmp_path / "best.npz"
    checkpoints.save_checkpoint(path, *make(), STATE)
    content = path.read_bytes()
    size = keep if isinstance(keep, int) else int(len(content) * keep)
    path.write_bytes(content[:size])
    with pytest.raises(ValueError, match="best.npz must be a whole tbnets"):
        checkpoints.read_checkpoint(path)


def test_a_flipped_byte_is_noticed(tmp_path):
    path = tmp_path / "best.npz"
    checkpoints.save_checkpoint(path, *make(), STATE)
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 255
    path.write_bytes(content)
    with pytest.raises(ValueError, match="best.npz must be a whole"):
        checkpoints.read_checkpoint(path)


def test_pickled_arrays_are_refused(tmp_path):
    path = tmp_path / "best.npz"
    np.savez(path, header=np.array([{"format": "x"}], dtype=object))
    with pytest.raises(ValueError, match="best.npz must be a whole"):
        checkpoints.read_checkpoint(path)


def test_another_network_is_refused_and_left_alone(tmp_path):
    path = tmp_path / "best.npz"
    checkpoints.save_checkpoint(path, *make(), STATE)
    other = keras.Sequential([keras.layers.Dense(5), keras.layers.Dense(2)])
    other.build((None, 4))
    before = other.get_weights()
    with pytest.raises(ValueError, match=r"shape \(4, 5\).*Received"):
        checkpoints.restore_checkpoint(path, other)
    for one, two in zip(before, other.get_weights()):
        np.testing.assert_array_equal(one, two)
    smaller = keras.Sequential([keras.layers.Dense(2)])
    smaller.build((None, 4))
    with pytest.raises(ValueError, match="expected 2 variables. Received: 4"):
        checkpoints.restore_checkpoint(path, smaller)


def test_arrays_that_were_fitted_or_are_held_come_back(tmp_path):
    path = tmp_path / "last.npz"
    state = checkpoints.RunState(
        fitted={"words": ["a"], "mean": np.arange(3.0)},
        held={"pairs": np.array([[1, 2]]), "round": 4},
    )
    model, optimizer = make()
    checkpoints.save_checkpoint(path, model, optimizer, state)
    found = checkpoints.restore_checkpoint(path, model, optimizer)
    assert found.fitted["words"] == ["a"] and found.held["round"] == 4
    np.testing.assert_array_equal(found.fitted["mean"], np.arange(3.0))
    np.testing.assert_array_equal(found.held["pairs"], [[1, 2]])
    # What was saved is as it was.
    assert set(state.fitted) == {"words", "mean"}


def forged(path, name, shape):
    """Puts an array into an `.npz` that says it is of another shape."""
    header = np.lib.format.header_data_from_array_1_0(np.zeros(3))
    content = io.BytesIO()
    np.lib.format.write_array_header_1_0(content, {**header, "shape": shape})
    content.write(np.zeros(3).tobytes())
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr(name, content.getvalue())


@pytest.mark.parametrize("shape", [(10**12,), (10**6, 10**6), (-1,), (2,)])
def test_an_array_that_lies_about_its_size_is_refused(tmp_path, shape):
    path = tmp_path / "best.npz"
    checkpoints.save_checkpoint(path, *make(), STATE)
    forged(path, "model/9999.npy", shape)
    with pytest.raises(ValueError, match="best.npz must be a whole tbnets"):
        checkpoints.read_checkpoint(path)


def test_a_compressed_file_is_refused_before_it_is_unpacked(tmp_path):
    path = tmp_path / "best.npz"
    np.savez_compressed(path, header=np.zeros(10**7, np.uint8))
    with pytest.raises(ValueError, match="best.npz must be a whole tbnets"):
        checkpoints.read_checkpoint(path)


def rewritten(path, **values):
    """Puts other values into the state of a checkpoint."""
    with np.load(path) as file:
        arrays = dict(file)
    header = json.loads(arrays.pop("header").tobytes())
    header["state"] |= values
    header = np.frombuffer(json.dumps(header).encode(), np.uint8)
    np.savez(path, header=header, **arrays)


@pytest.mark.parametrize("read", ["read_checkpoint", "read_progress"])
@pytest.mark.parametrize(
    "values",
    [
        {"settings": [1]},
        {"fitted": "words"},
        {"held": None},
        {"epoch": "3"},
        {"epoch": -1},
        {"best_epoch": 1.5},
        {"best_metric": "high"},
        {"history": {"0": 1}},
        {"history": [{"loss": "low"}]},
        {"surplus": 1},
    ],
    ids=str,
)
def test_a_state_of_another_kind_is_refused(tmp_path, values, read):
    path = tmp_path / "best.npz"
    checkpoints.save_checkpoint(path, *make(), STATE)
    rewritten(path, **values)
    with pytest.raises(UserError, match=f"best.npz .*{min(values)}"):
        getattr(checkpoints, read)(path)


def encrypt(content):
    at = content.index(b"PK\1\2")
    content[at + 8] |= 1  # A flag of the first entry in the directory.


def compress_by_another(content):
    at = content.index(b"PK\1\2")
    content[at + 10] = 99


def begin_before_the_file(content):
    at = content.rindex(b"PK\5\6")
    content[at + 16 : at + 20] = b"\xff\xff\xff\x7f"


def nest(content):
    deep = b"[" * 100_000 + b"]" * 100_000
    file = io.BytesIO()
    np.savez(file, header=np.frombuffer(deep, np.uint8))
    content[:] = file.getvalue()


@pytest.mark.parametrize(
    "damage", [encrypt, compress_by_another, begin_before_the_file, nest]
)
def test_a_file_that_is_damaged_otherwise_is_named(tmp_path, damage):
    path = tmp_path / "best.npz"
    checkpoints.save_checkpoint(path, *make(), STATE)
    content = bytearray(path.read_bytes())
    damage(content)
    path.write_bytes(content)
    with pytest.raises(UserError, match="best.npz must be a whole tbnets"):
        checkpoints.read_checkpoint(path)


def test_a_file_that_is_not_there_is_not_called_damaged(tmp_path):
    with pytest.raises(FileNotFoundError, match="best.npz"):
        checkpoints.read_checkpoint(tmp_path / "best.npz")


def test_progress_is_read_without_the_arrays(tmp_path, monkeypatch):
    path = tmp_path / "best.npz"
    checkpoints.save_checkpoint(path, *make(), STATE)
    whole = checkpoints.read_checkpoint(path).state
    read, arrays = np.lib.format.read_array, []

    def kept(stream, **options):
        arrays.append(read(stream, **options))
        return arrays[-1]

    monkeypatch.setattr(np.lib.format, "read_array", kept)
    state = checkpoints.read_progress(path)
    assert len(arrays) == 1 and arrays[0].dtype == np.uint8
    assert (state.epoch, state.settings) == (whole.epoch, whole.settings)
