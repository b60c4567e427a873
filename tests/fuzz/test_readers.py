"""Damaged files of every reader: an error that names the file, or an answer."""

import pytest

from tbnets.errors import InputError
from tests.fuzz import array_readers, model_readers, reader, text_readers

READERS = {
    **text_readers.READERS,
    **array_readers.READERS,
    **model_readers.READERS,
}


@pytest.mark.parametrize("name", READERS)
def test_a_damaged_file_is_told_or_read_as_it_stands(name, tmp_path):
    reader.check(READERS[name], tmp_path)


def _forget_the_name(folder):
    raise InputError("expected JSON; found something else.")


def _stumble(folder):
    return {}["missing"]


def _spin(folder):
    while True:
        pass


def _take_memory(folder):
    return len(b"x" * (200 * 2**20))


@pytest.mark.parametrize(
    "read, error",
    [
        (_forget_the_name, AssertionError),
        (_stumble, KeyError),
        (_spin, AssertionError),
        (_take_memory, AssertionError),
    ],
)
def test_a_reader_that_fails_otherwise_is_found(
    tmp_path, monkeypatch, read, error
):
    monkeypatch.setattr(reader, "SECONDS", 0.2)
    bad = reader.reader_of({}, read)
    with pytest.raises(error):
        reader.answer_of(bad, tmp_path, expected="", size=0)
