"""Damaged files of every reader: an error that names the file, or an answer."""

import pytest

from tests.fuzz import (
    archive_readers,
    array_readers,
    model_readers,
    reader,
    text_readers,
)

READERS = {
    **text_readers.READERS,
    **array_readers.READERS,
    **model_readers.READERS,
    **archive_readers.READERS,
}


@pytest.mark.parametrize("name", READERS)
def test_a_damaged_file_is_an_error_or_read(name, tmp_path):
    reader.check(READERS[name], tmp_path)
