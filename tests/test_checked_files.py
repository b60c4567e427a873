"""Tests of reading that names line and cure."""

import pytest

from tbnets.files import CheckedFile, parse_json

DEEP = "[" * 100_000


@pytest.mark.parametrize(
    "text, value",
    [
        ('{"a": {"b": 1}, "c": [{"b": 2}, {"b": 3}]}', None),
        (b'\xef\xbb\xbf{"a": 1}', {"a": 1}),
        ("[1, 2.5, null]", [1, 2.5, None]),
        (b'"caf\xc3\xa9"', "caf\u00e9"),
    ],
)
def test_json_is_read_as_python_does(text, value):
    import json

    assert parse_json(text) == (json.loads(text) if value is None else value)


@pytest.mark.parametrize(
    "text, message",
    [
        ('{"a": 1, "a": 1}', "each key once.*found 'a' twice"),
        ('[{"x": {"b": 1, "c": 2, "b": 3}}]', "found 'b' twice"),
        (DEEP, "nested less deeply"),
        ('{"a": ' * 100_000, "nested less deeply"),
        ("9" * 5000, "4300 digits"),
        ("{", "line 1 column 2"),
        (b'"\xff"', "0xff"),
    ],
)
def test_what_is_no_json_is_a_value_error(text, message):
    with pytest.raises(ValueError, match=message):
        parse_json(text)


@pytest.mark.parametrize(
    "content, message",
    [
        (b'{"a": 1,\n"b": 2,\n"a": 3}', r"x.json: expected JSON.*'a' twice"),
        (DEEP.encode(), "x.json: expected JSON.*nested less deeply"),
        (b"{\n1", "x.json:2: expected JSON"),
    ],
)
def test_a_file_that_is_no_json_is_told(tmp_path, content, message):
    path = tmp_path / "x.json"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=message):
        CheckedFile(path).json()
    problems = []
    assert CheckedFile(path, problems).json() is None
    assert [message.split(":")[0] in str(one) for one in problems] == [True]
