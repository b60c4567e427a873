"""A strategy of damaged content: of a file, or of an array in a file.

Nothing here knows the format of a reader. A part of the content is replaced: a
word, a number, a line or any bytes, most often near an end, where headers and
tables are. A value in JSON, an array or a member of an archive is replaced so
that the rest of the file stays valid.
"""

import contextlib
import io
import json
import re
import zipfile

import numpy as np
from hypothesis import strategies as st

VALUES = (
    *(b"null", b"true", b"[]", b"{}", b'""', b'"x"', b"[[]]", b'{"a": 1}'),
    *(b"-1", b"0", b"1.5", b"1e999", b"NaN", b"9" * 5000, b"2147483648"),
    *(b'"../../../etc/passwd"', b"/etc/passwd", b"C:\\x", b'"a\\u0000b"'),
    *(b'"\\ud800"', b"\x00", b"\r", b"%s%n", b"\xff\xfe", b"\xed\xa0\x80"),
    *(b"a" * 40_000, b" " * 300, b"\n" * 300, b"\\" * 300, b"\xff" * 5000),
    *(b"<!--", b'<?xml version="1.0" encoding="gbk"?>'),
)
INTEGERS = (0, 1, 127, 2**15, 2**31 - 1, 2**31, 2**32 - 1, 2**62, 2**64 - 1)
LEVELS = {
    b"[": b"]",
    b'{"a": ': b"}",
    b"(NP ": b")",
    b"<object>": b"</object>",
    b"[/EN#1/people ": b"]",
    b"\x80\x02(": b"",
}
"""What opens a level of nesting -> what closes it."""
ENCODINGS = ("utf-8-sig", "utf-16", "utf-32", "utf-7", "latin-1")
EMPTY = (b"", b"\n", b"\x00", b"{}", b"[]", b"null")
PARTS = [
    re.compile(pattern)
    for pattern in (
        rb'"[^"\n]*"|[A-Za-z_]+|-?[0-9]+(?:\.[0-9]+)?',
        rb"-?[0-9]+(?:\.[0-9]+)?(?:e-?[0-9]+)?",
        rb'"[^"\n]*"\s*:\s*(?:"[^"\n]*"|[^,\[\]{}\n"]+)',
        rb"(?m)^[^\n]*\n",
    )
]
"""Words, numbers, members of JSON objects, lines."""
JSON_VALUES = (
    *(None, True, [], {}, "", "x", [[]], {"a": 1}, -1, 0, 1.5, 1e308),
    *(float("nan"), 10**30, "../x", "a\0b", "\ud800"),
)
DTYPES = ("<f4", ">f8", "<f2", "<i8", "|u1", "|b1", "<c8", "<U3", "<M8[s]")
ODD_NUMBERS = (np.nan, np.inf, -1, 0, 0.5, 1e30, 2**40)


@st.composite
def damaged(draw, content):
    """Draws content that differs from valid content."""
    ways = [*[_replace_parts] * 8, _replace_all]
    if content.startswith(b"\x93NUMPY"):
        ways += [_change_array] * 4
    if _documents(content):
        ways += [_change_json] * 4
    if content.startswith(b"PK"):
        ways += [_change_member] * 10
    return draw(st.sampled_from(ways))(draw, content)


def _part(draw, content):
    """Draws start and end of a part, which may be empty."""
    pattern = draw(st.sampled_from((None, None, *PARTS)))
    found = pattern and [match.span() for match in pattern.finditer(content)]
    if found:
        return draw(st.sampled_from(found))
    start = draw(st.integers(0, len(content)))  # Small ones are more likely.
    if draw(st.booleans()):
        start = len(content) - start
    return start, start + draw(st.sampled_from((0, 1, 4, 64, len(content))))


def _replace_parts(draw, content):
    for _ in range(draw(st.sampled_from((1, 1, 1, 1, 2, 3)))):
        start, end = _part(draw, content)
        new = _instead(draw, content[start:end], content)
        content = content[:start] + new + content[end:]
    return content


def _instead(draw, old, content):
    """Draws what replaces a part of the content."""
    way = draw(st.integers(0, 6))
    if way == 0:
        return b""
    if way == 1:
        return content[slice(*_part(draw, content))]
    if way == 2:
        return old + draw(st.sampled_from((b"", b"\n", b", "))) + old
    if way == 3:
        return bytes([old[0] ^ 1 << draw(st.integers(0, 7))]) if old else b"x"
    if way == 4:
        size = draw(st.sampled_from((1, 2, 4, 8)))
        value = draw(st.sampled_from(INTEGERS)) % 256**size
        order = draw(st.sampled_from(("little", "big")))
        return value.to_bytes(size, order) + old[size:]
    if way == 5:
        opener, closer = draw(st.sampled_from([*LEVELS.items()]))
        depth = draw(st.sampled_from((3, 200, 100_000)))
        return opener * depth + old + closer * depth
    return draw(st.sampled_from(VALUES))


def _replace_all(draw, content):
    text = content.decode("utf-8", errors="replace")
    encoded = [text.encode(name, "replace") for name in ENCODINGS]
    return draw(st.sampled_from((*EMPTY, *encoded)))


def _documents(content):
    """Returns the JSON objects and lists that content or lines of it are."""
    found = []
    for part in (content, *content.split(b"\n")):
        with contextlib.suppress(ValueError):
            document = json.loads(part)
            if isinstance(document, dict | list) and document:
                found.append((part, document))
    return found


def _change_json(draw, content):
    """Draws content with JSON in which a value is missing or another."""
    part, document = draw(st.sampled_from(_documents(content)))
    holder, key = draw(st.sampled_from([*_values_in(document)]))
    if draw(st.booleans()):
        del holder[key]
    else:
        holder[key] = draw(st.sampled_from(JSON_VALUES))
    return content.replace(part, json.dumps(document).encode(), 1)


def _values_in(holder):
    """Yields (object or list, key or index) of all values, at any depth."""
    for key in holder if isinstance(holder, dict) else range(len(holder)):
        yield holder, key
        if isinstance(holder[key], dict | list):
            yield from _values_in(holder[key])


def _change_array(draw, content):
    """Draws an `.npy` with another type, shape or number."""
    array = np.load(io.BytesIO(content))
    way = draw(st.sampled_from(("type", "shape", "number")))
    if way == "type":
        array = array.astype(draw(st.sampled_from(DTYPES)))
    elif way == "shape" or not array.size:
        rows = np.resize(array, (5, *array.shape[1:]))
        array = draw(st.sampled_from((array[None], array[..., None], rows)))
    else:
        place = draw(st.integers(0, array.size - 1))
        number = np.array([draw(st.sampled_from(ODD_NUMBERS))])
        array.flat[place] = number.astype(array.dtype)[0]
    return npy(array)


def _change_member(draw, content):
    """Draws an archive with another member, whose checksum is right."""
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    name = draw(st.sampled_from(sorted(members)))
    array = np.load(io.BytesIO(members[name]))
    if array.dtype == np.uint8 and draw(st.booleans()):  # Text.
        text = draw(damaged(array.tobytes()))
        members[name] = npy(np.frombuffer(text, np.uint8))
    else:
        members[name] = draw(damaged(members[name]))
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        for name, member in members.items():
            archive.writestr(name, member)
    return file.getvalue()


def npy(array):
    """Returns an array as the content of a file."""
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()
