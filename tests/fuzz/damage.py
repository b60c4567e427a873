"""Strategies of damaged content: of a file, or of an array in a file.

Nothing here knows the format. Something else is put in the place of a part:
of a word, a number, a line or a member of a JSON object, or of any bytes, most
often near an end, where headers and tables are.
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
    *(b"-1", b"0", b"1.5", b"1e999", b"-1e308", b"NaN", b"Infinity"),
    *(b"9" * 5000, b"2147483648", b"18446744073709551616", b"1e-400", b"00"),
    *(b'"../../../etc/passwd"', b'"/etc/passwd"', b"../x", b"C:\\x", b".."),
    *(b'"a\\u0000b"', b'"\\ud800"', b"\x00", b"\xe2\x80\xa8", b"\r", b"%s%n"),
    *(b"\xff\xfe", b"\xed\xa0\x80", b"\xc0\xaf", b"\xf4\x90\x80\x80", b"<!--"),
)
NUMBERS = VALUES[8:20]
INTEGERS = (0, 1, 127, 2**15, 2**31 - 1, 2**31, 2**32 - 1, 2**62, 2**64 - 1)
RUNS = st.sampled_from(
    (b"a", b" ", b"\n", b"9", b'"', b"\\", b"\x00", b"\xff", b"a ", b"#")
)
RUN_LENGTHS = st.sampled_from((1, 4, 32, 300, 5000, 40_000))
BETWEEN = st.sampled_from((b"", b"\n", b", "))
LEVELS = {
    b"[": b"]",
    b'{"a": ': b"}",
    b"(": b")",
    b"(NP ": b")",
    b"<object>": b"</object>",
    b"[/EN#1/people ": b"]",
    b"\x80\x02(": b"",
}
"""What opens a level of nesting -> what closes it."""
DEPTHS = (3, 200, 3000, 100_000)
ENCODINGS = ("utf-8-sig", "utf-16", "utf-16-be", "utf-32", "utf-7", "latin-1")
XML_ENCODINGS = (
    *(b"gbk", b"utf-7", b"utf-16", b"big5", b"shift_jis", b"cp1252"),
    *(b"idna", b"unicode_escape", b"base64", b"hz", b"none-such"),
)
EMPTY = (b"", b"\n", b"\x00", b"{}", b"[]", b"null", b"0")
PARTS = [
    re.compile(pattern)
    for pattern in (
        rb'"[^"\n]*"|[A-Za-z_]+|-?[0-9]+(?:\.[0-9]+)?',
        rb"-?[0-9]+(?:\.[0-9]+)?(?:e-?[0-9]+)?",
        rb'"[^"\n]*"\s*:\s*(?:"[^"\n]*"|[^,\[\]{}\n"]+)',
        rb'(?<=": )(?:"[^"\n]*"|[^,\[\]{}\n"]+)',
        rb"(?m)^[^\n]*\n",
    )
]
"""Words, numbers, members of JSON objects, their values, lines."""
JSON_VALUES = (
    *(None, True, [], {}, "", "x", [[]], {"a": 1}, -1, 0, 1.5, 1e308),
    *(float("nan"), 10**30, "../x", "a\0b", "\ud800"),
)
DTYPES = ("<f4", ">f8", "<f2", "<i8", "|u1", "|b1", "<c8", "<U3", "<M8[s]")
ODD_NUMBERS = (np.nan, np.inf, -1, 0, 0.5, 1e30, 2**40)


PATTERNS = st.sampled_from((None, None, *PARTS))
LENGTHS = st.sampled_from((0, 1, 4, 64, None))


def damaged(content):
    """Returns a strategy of content that differs from valid content."""
    ways = [*[_other_parts] * 8, _parts_swapped, _encoded_otherwise]
    if content.startswith(b"\x93NUMPY"):
        ways += [_other_array] * 4
    if _documents(content):
        ways += [_other_json] * 4
    if content.startswith(b"PK"):
        ways += [_other_member] * 10
    return _drawn(st.sampled_from(ways), content).filter(
        lambda new: new != content
    )


# One strategy draws all: each that is made while it draws takes its time.


@st.composite
def _drawn(draw, ways, content):
    return draw(ways)(draw, content)


def _part(draw, content):
    """Draws start and end of a part, which may be empty."""
    pattern = draw(PATTERNS)
    found = pattern and [match.span() for match in pattern.finditer(content)]
    if found:
        return found[draw(st.integers(0, len(found) - 1))]
    start = draw(st.integers(0, len(content)))  # Small ones are more likely.
    if draw(st.booleans()):
        start = len(content) - start
    length = draw(LENGTHS)
    return start, len(content) if length is None else start + length


def _other_parts(draw, content):
    for _ in range(draw(st.sampled_from((1, 1, 1, 1, 2, 3)))):
        start, end = _part(draw, content)
        old = content[start:end]
        new = draw(INSTEAD)(draw, old, content)
        content = content[:start] + new + content[end:]
    return content


# Functions of (draw, what is replaced, all content) -> what replaces it.


def _another_member(draw, old, content):
    value = draw(st.sampled_from(VALUES))
    return old.partition(b":")[0] + b": " + value + b"," + old


def _flipped(draw, old, content):
    bit = draw(st.integers(0, 7))
    return bytes([old[0] ^ 1 << bit]) + old[1:] if old else b"\x01"


def _over(draw, old, content):
    new = draw(st.binary(min_size=1, max_size=16))
    return new + old[len(new) :]


def _integer(draw, old, content):
    size = draw(st.sampled_from((1, 2, 4, 8)))
    value = draw(st.sampled_from(INTEGERS)) % 256**size
    order = draw(st.sampled_from(("little", "big")))
    return value.to_bytes(size, order) + old[size:]


def _nested(draw, old, content):
    opener, closer = draw(st.sampled_from([*LEVELS.items()]))
    depth, is_closed = draw(st.sampled_from(DEPTHS)), draw(st.booleans())
    return opener * depth + old + closer * depth * is_closed


INSTEAD = st.sampled_from(
    [
        lambda draw, old, content: b"",
        lambda draw, old, content: draw(st.sampled_from(VALUES)),
        lambda draw, old, content: draw(st.sampled_from(NUMBERS)),
        lambda draw, old, content: content[slice(*_part(draw, content))],
        lambda draw, old, content: draw(BETWEEN).join((old, old)),
        lambda draw, old, content: draw(RUNS) * draw(RUN_LENGTHS),
        *(_another_member, _flipped, _over, _integer, _nested),
    ]
)


def _parts_swapped(draw, content):
    (a, b), (c, d) = sorted(_part(draw, content) for _ in range(2))
    c, d = max(b, c), max(b, d)
    parts = content[:a], content[c:d], content[b:c], content[a:b], content[d:]
    return b"".join(parts)


def _encoded_otherwise(draw, content):
    way = draw(st.sampled_from(("empty", "text", "xml")))
    if way == "empty":
        return draw(st.sampled_from(EMPTY))
    if way == "text":
        text = content.decode("utf-8", errors="replace")
        return text.encode(draw(st.sampled_from(ENCODINGS)), "replace")
    name = draw(st.sampled_from(XML_ENCODINGS))
    return b'<?xml version="1.0" encoding="%s"?>' % name + content


def _documents(content):
    """Returns the JSON objects and lists that content or lines of it are."""
    found = []
    for part in (content, *content.split(b"\n")):
        with contextlib.suppress(ValueError):
            document = json.loads(part)
            if isinstance(document, dict | list) and document:
                found.append((part, document))
    return found


def _other_json(draw, content):
    """Draws content with JSON in which a value is missing or another."""
    part, document = draw(st.sampled_from(_documents(content)))
    holder, key = draw(st.sampled_from(_values_in(document)))
    if draw(st.booleans()):
        del holder[key]
    else:
        holder[key] = draw(st.sampled_from(JSON_VALUES))
    return content.replace(part, json.dumps(document).encode(), 1)


def _values_in(holder):
    """Returns (object or list, key or index) of all values, at any depth."""
    keys = holder if isinstance(holder, dict) else range(len(holder))
    found = [(holder, key) for key in keys]
    for key in keys:
        if isinstance(holder[key], dict | list):
            found += _values_in(holder[key])
    return found


def _other_array(draw, content):
    """Draws an `.npy` with another type, rank, number or other rows."""
    array = np.load(io.BytesIO(content))
    way = draw(st.sampled_from(("type", "rank", "number", "rows")))
    if way == "type":
        array = array.astype(draw(st.sampled_from(DTYPES)))
    elif way == "rank" or not array.size:
        array = draw(st.sampled_from((array[None], array[..., None])))
    elif way == "number":
        place = draw(st.integers(0, array.size - 1))
        number = np.array([draw(st.sampled_from(ODD_NUMBERS))])
        array.flat[place] = number.astype(array.dtype)[0]
    elif array.ndim:
        axis = draw(st.integers(0, array.ndim - 1))
        rows = st.integers(0, array.shape[axis] - 1)
        array = array.take(draw(st.lists(rows, max_size=6)), axis)
    return npy(array)


def _other_member(draw, content):
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
