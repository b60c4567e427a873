"""Tests of JSON that is read with its line and cure."""

import json

import pytest

from tbnets.errors import UserError
from tbnets.files import CheckedFile, parse_json


@pytest.mark.parametrize(
    "text",
    [
        '{"a": {"b": 1}, "c": [{"b": 2}, {"b": 3}]}',
        "[1, 2.5, null]",
        b'"caf\xc3\xa9"',
    ],
)
def test_json_is_read_as_python_does(text):
    assert parse_json(text) == json.loads(text)


def test_a_mark_of_the_order_of_bytes_is_left_out():
    assert parse_json(b'\xef\xbb\xbf{"a": 1}') == {"a": 1}


@pytest.mark.parametrize(
    "content, place",
    [
        (b'{"a": 1,\n"b": 2,\n"a": 3}', "x.json:"),
        (b'[{"x": {"b": 1, "c": 2, "b": 3}}]', "x.json:"),
        (b"[" * 100_000, "x.json:"),
        (b'{"a": ' * 100_000, "x.json:"),
        (b"9" * 5000, "x.json:"),
        (b'"\xff"', "x.json:"),
        (b"{\n1", "x.json:2:"),
    ],
)
def test_what_is_no_json_is_refused(tmp_path, content, place):
    with pytest.raises(ValueError):
        parse_json(content)
    path = tmp_path / "x.json"
    path.write_bytes(content)
    with pytest.raises(UserError, match=place):
        CheckedFile(path).json()
    problems = []
    assert CheckedFile(path, problems).json() is None
    assert [place in str(one) for one in problems] == [True]
