import io

import numpy as np
import pytest

from tbnets.cli import embedding_files
from tests.refusals import refused


def content_of(*arrays, save=np.save, **options):
    file = io.BytesIO()
    save(file, *arrays, **options)
    return file.getvalue()


def test_array_is_memory_mapped(tmp_path):
    np.save(tmp_path / "x.npy", np.eye(3))
    array = embedding_files.read_array(tmp_path / "x.npy")
    assert isinstance(array, np.memmap)
    np.testing.assert_array_equal(array, np.eye(3))


@pytest.mark.parametrize(
    "content",
    [
        content_of(np.eye(100))[:1000],
        content_of(np.eye(4)) + b"\0",
        # NumPy tokenizes such a header, and its error is no ValueError.
        content_of(np.eye(4)).replace(b"(4, 4)", b"(4, 4 "),
        content_of(np.array(["1"])),
        content_of(np.zeros((0, 3))),
        content_of(np.array([{}]), allow_pickle=True),
        content_of(a=np.eye(2), save=np.savez),
        b"",
    ],
)
def test_broken_file_is_named(tmp_path, content):
    (tmp_path / "x.npy").write_bytes(content)
    with refused("x.npy"):
        embedding_files.read_array(tmp_path / "x.npy")


def test_row_numbers_are_read_from_text(tmp_path):
    path = tmp_path / "rows.txt"
    path.write_text("1\r\n 0\n9007199254740993\n\n")
    rows = embedding_files.read_caption_to_image(path)
    # 2**53 + 1 would become even in a float.
    assert rows.tolist() == [1, 0, 9007199254740993]
    assert rows.dtype == np.int64


@pytest.mark.parametrize(
    ("text", "line"),
    [("1\n\n2\n", 2), ("1\n2.0\n", 2), ("", 1), ("9" * 30, 1)],
)
def test_bad_line_is_named(tmp_path, text, line):
    path = tmp_path / "rows.txt"
    path.write_text(text)
    with refused(f"rows.txt:{line}"):
        embedding_files.read_caption_to_image(path)


def test_unit_rows_have_length_1_but_those_of_zeros():
    rows = np.array([[3, 4], [0, 0], [-300, 400]], np.float16)
    found = embedding_files.unit_rows(rows)
    np.testing.assert_allclose(found, [[0.6, 0.8], [0, 0], [-0.6, 0.8]])
    assert found.dtype == np.float32


def test_rows_without_unit_length_are_reported():
    assert not embedding_files.lengths_note([[0.6, 0.8], [0, 1.001]])
    assert "0.1 to 5" in embedding_files.lengths_note([[3, 4], [0.1, 0]])
