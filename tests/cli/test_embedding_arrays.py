import io

import numpy as np
import pytest

from tbnets.cli import evaluate
from tests.refusals import refused


def content_of(*arrays, save=np.save, **options):
    file = io.BytesIO()
    save(file, *arrays, **options)
    return file.getvalue()


def test_array_is_memory_mapped(tmp_path):
    np.save(tmp_path / "x.npy", np.eye(3))
    array = evaluate.read_array(tmp_path / "x.npy")
    assert isinstance(array, np.memmap)
    np.testing.assert_array_equal(array, np.eye(3))


@pytest.mark.parametrize(
    "content",
    [
        # NumPy tokenizes such a header, and its error is no ValueError.
        content_of(np.eye(4)).replace(b"(4, 4)", b"(4, 4 "),
        content_of(np.array(["1"])),
        content_of(np.zeros((0, 3))),
        content_of(np.array([{}]), allow_pickle=True),
        content_of(a=np.eye(2), save=np.savez),
    ],
)
def test_broken_file_is_named(tmp_path, content):
    (tmp_path / "x.npy").write_bytes(content)
    with refused("x.npy"):
        evaluate.read_array(tmp_path / "x.npy")


def test_unit_rows_have_length_1_but_those_of_zeros():
    rows = np.array([[3, 4], [0, 0], [-300, 400]], np.float16)
    found, _ = evaluate.unit_rows(images=rows, texts=rows)
    np.testing.assert_allclose(found, [[0.6, 0.8], [0, 0], [-0.6, 0.8]])
    assert found.dtype == np.float32
