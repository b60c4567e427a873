"""Tests of arrays of features and the ids beside them."""

import io
import tracemalloc

import numpy as np
import pytest

from tbnets.data.store.features import (
    FeatureArray,
    check_finite,
    ids_file,
    open_array,
)
from tbnets.errors import InputError
from tests import refusals


def save(folder, array, ids=None, name="train_ims.npy"):
    np.save(folder / name, array)
    if ids is not None:
        ids_path = ids_file(folder / name)
        with open(ids_path, "w", encoding="utf-8") as stream:
            stream.writelines(f"{key}\n" for key in ids)
    return folder / name


@pytest.mark.parametrize(
    "dtype, order", [("<f8", "C"), (">f4", "F"), ("<i2", "C")]
)
def test_rows_are_found_by_id(tmp_path, dtype, order):
    array = np.asarray([[1, 2], [3, 4], [5, 6]], dtype, order=order)
    path = save(tmp_path, array, ["c", "a", "b"])
    features = open_array(path)
    rows = features.rows(["a", "c", "a"])
    assert rows.tolist() == [1, 0, 1] and rows.dtype == np.int64
    taken = features.take(rows)
    assert taken.tolist() == [[3, 4], [1, 2], [3, 4]]
    assert taken.dtype == np.float32
    assert features.take([]).shape == (0, 2)
    for row in (-1, 3):
        with pytest.raises(ValueError, match="rows"):
            features.take([row])
    assert (len(features), features.dim) == (3, 2)
    assert features.path == str(path)


def test_number_of_ids_must_equal_number_of_rows(tmp_path):
    path = save(tmp_path, np.zeros((2, 1)), ["a", "b", "c"])
    with refusals.at(ids_file(path), 3):
        open_array(path)
    path = save(tmp_path, np.zeros((2, 1)), ["a", ""])
    with refusals.at(ids_file(path), 2):
        open_array(path)


def test_repeated_ids_with_different_rows_raise_an_error(tmp_path, monkeypatch):
    # A chunk has two rows.
    monkeypatch.setattr("tbnets.data.store.features.CHUNK_BYTES", 16)
    array = np.asarray([[1], [2], [1], [3]], np.float64)
    path = save(tmp_path, array, ["a", "b", "a", "b"])
    with pytest.raises(ValueError, match="rows 1 and 3 of 'b'"):
        open_array(path)


def saved(array):
    """Returns the content of a `.npy` file."""
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


def forged(text, length=None):
    """Returns a `.npy` file of format 2 with a header and 64 bytes of data."""
    length = len(text) if length is None else length
    return (
        b"\x93NUMPY\x02\x00" + length.to_bytes(4, "little") + text + b"." * 64
    )


def header(shape, dtype="<f4"):
    value = {"descr": dtype, "fortran_order": False, "shape": shape}
    return repr(value).encode()


WHOLE = saved(np.zeros((4, 4), np.float32))  # 128 bytes of header, 64 of data.


@pytest.mark.parametrize(
    "content",
    [
        saved(np.zeros((0, 4))),
        saved(np.zeros((2, 2), complex)),
        saved(np.asarray([[{"a": 1}]], object)),
        *(WHOLE[:end] for end in (0, 60, 191)),
        forged(header((10**12, 1))),
        forged(header((-4, -4))),
        forged(header((4, 4)), 2**32 - 1),
        forged(b"{'descr': " + b"-" * 9000 + b"1}"),
        forged(header((4, 4), "|V1000000000000")),
        b"PK\x03\x04",  # An archive of arrays.
    ],
    ids=str,
)
def test_invalid_arrays_raise_an_error_without_allocation(tmp_path, content):
    (tmp_path / "x.npy").write_bytes(content)
    tracemalloc.start()
    with pytest.raises(InputError, match=rf"^{tmp_path / 'x.npy'}: "):
        open_array(tmp_path / "x.npy")
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 2**23


def test_numbers_too_large_for_float32_are_not_finite():
    fine = FeatureArray(("a",), np.asarray([[3e38]]), "x")
    large = FeatureArray(("a",), np.asarray([[4e38]]), "x")
    check_finite(fine)
    with pytest.raises(InputError, match="column 0"):
        check_finite(large)
    whole = FeatureArray(("a",), np.ones((1, 1), np.uint8), "x")
    check_finite(whole)
