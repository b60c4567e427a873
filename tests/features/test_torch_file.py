"""Tests of reading torch checkpoints without torch."""

import os
import pickle

import numpy as np
import pytest

from tbnets.errors import InputError
from tbnets.features.cnn_weights import read_tensors
from tests.features.torch_checkpoints import (
    DICTIONARY,
    checkpoint,
    dictionary,
    head,
    number,
    storage,
    storage_bytes,
    tensor,
    text,
)

SIX = np.arange(6, dtype="<f4")


def one_tensor(note, keys=("7",)):
    """A checkpoint of one tensor, told by pickled bytes."""
    return b"".join(
        (
            head(),
            dictionary({"x": note}),
            pickle.dumps(list(keys), 2),
            storage_bytes(SIX),
        )
    )


def floats(size=6, key="7", kind="FloatStorage"):
    return storage(key, kind, size)


GOOD = one_tensor(tensor(floats(), 0, (2, 3), (3, 1)))


def read(tmp_path, content):
    path = tmp_path / "weights.pth"
    path.write_bytes(content)
    return read_tensors(path)


def test_tensors_are_read_by_name(tmp_path):
    expected = {
        "a.weight": np.float32([[1, 2, 3], [4, 5, 6]]),
        "a.num_batches_tracked": np.int64(7),
        "b.weight": np.linspace(0, 1, 24, dtype="f4").reshape(1, 2, 3, 4),
    }
    found = read(tmp_path, checkpoint(expected))
    assert list(found) == list(expected)
    for name, array in expected.items():
        assert found[name].dtype == array.dtype
        np.testing.assert_array_equal(found[name], array)


def test_function_in_a_pickle_is_not_called(tmp_path):
    class Evil:
        def __reduce__(self):
            return os.mkdir, (str(tmp_path / "called"),)

    for protocol in range(6):
        evil = pickle.dumps(Evil(), protocol)
        for content in (evil, head() + evil):
            with pytest.raises(InputError, match=r"'(posix|nt)\.mkdir'"):
                read(tmp_path, content)
    assert not (tmp_path / "called").exists()


HUGE = 1 << 40


def forged(size, offset, shape, strides):
    """A checkpoint of one tensor that its storage of six may not have."""
    return one_tensor(tensor(floats(size), offset, shape, strides))


@pytest.mark.parametrize(
    "content",
    [
        b"PK\x03\x04rest",
        b"",
        pickle.dumps({"x": 1}, 2),
        GOOD.replace(head(), head(version=1002)),
        GOOD.replace(head(), head(facts={"little_endian": False})),
        *(head() + pickle.dumps(one, 2) for one in ([], {"x": 1})),
        head() + b"\x80\x02ctorch\nload\n.",
        head() + b"\x80\x02cos\nsystem\n.",
        forged(HUGE, 0, (HUGE,), (1,)),
        forged(5, 0, (5,), (1,)),
        forged(6, 0, (HUGE,), (0,)),
        forged(6, 1, (6,), (1,)),
        forged(6, 0, (2, 3), (4, 1)),
        forged(6, -1, (2,), (1,)),
        forged(6, 0, (2,), (-1,)),
        forged(6, 0, (2, 3), (1,)),
        forged(6, 0, (1,) * 70, (1,) * 70),
        one_tensor(tensor(number(6), 0, (2,), (1,))),
        one_tensor(DICTIONARY),
        one_tensor(text("a") + number(1) + b"b"),
        one_tensor(b"\x88r" + (1 << 30).to_bytes(4, "little")),
        one_tensor(tensor(floats(), 0, (6,), (1,)), ["8"]),
    ],
    ids=str,
)
def test_invalid_checkpoints_are_refused(tmp_path, content):
    with pytest.raises(InputError, match=r"weights\.pth"):
        read(tmp_path, content)


def test_pickle_cannot_change_the_reader(tmp_path):
    entries = b"(" + text("items") + number(1) + text("get") + number(2) + b"u"
    for target in (
        b"ctorch._utils\n_rebuild_tensor_v2\n",
        b"ccollections\nOrderedDict\n",
    ):
        for state in (b"}" + entries, b"N}" + entries + b"\x86"):
            with pytest.raises(InputError):
                read(tmp_path, one_tensor(target + state + b"b"))
    with pytest.raises(InputError):
        read(tmp_path, one_tensor(DICTIONARY + b"}" + entries + b"b"))
    assert read(tmp_path, GOOD)


def test_read_only_arrays_and_the_limit_of_files(tmp_path, monkeypatch):
    with pytest.raises(ValueError, match="read-only"):
        read(tmp_path, GOOD)["x"][0] = 1
    monkeypatch.setattr("tbnets.features.cnn_weights.MOST_BYTES", 20)
    with pytest.raises(InputError, match="20"):
        read(tmp_path, GOOD)
