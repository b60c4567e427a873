"""Valid bytes -> broken bytes, by a seed and a number: the same each time.

Nothing here knows what the bytes mean. Text is broken at its words, numbers
and lines, other content at its integers; both at any byte.
"""

import random
import re
from typing import NamedTuple

ENCODINGS = (
    *(b"gbk", b"utf-7", b"utf-16", b"big5", b"shift_jis", b"cp1252"),
    *(b"idna", b"unicode_escape", b"base64", b"hz", b"none-such"),
)
INTEGERS = (0, 1, 127, 2**15, 2**31 - 1, 2**31, 2**32 - 1, 2**62, 2**64 - 1)
OPENERS = {
    b"[": b"]",
    b'{"a": ': b"}",
    b"(": b")",
    b"(NP ": b")",
    b"<object>": b"</object>",
    b"[/EN#1/people ": b"]",
    b"\x80\x02(": b"",
}
"""What opens a level -> what closes it."""
RUNS = (b"a", b" ", b"\n", b"9", b'"', b"\\", b"\x00", b"\xc3\xa9", b"a ", b"#")
VALUES = (
    *(b"null", b"true", b"[]", b"{}", b'""', b'"x"', b"[[]]", b'{"a": 1}'),
    *(b"-1", b"0", b"1.5", b"1e999", b"-1e308", b"NaN", b"Infinity"),
    *(b"9" * 5000, b"2147483648", b"18446744073709551616", b"1e-400", b"00"),
    *(b'"../../../etc/passwd"', b'"/etc/passwd"', b"../x", b"C:\\x", b".."),
    *(b'"a\\u0000b"', b'"\\ud800"', b"\x00", b"\xe2\x80\xa8", b"\r", b"%s%n"),
    *(b"\xff\xfe", b"\xed\xa0\x80", b"\xc0\xaf", b"\xf4\x90\x80\x80", b"<!--"),
)
_WORD = re.compile(rb'"[^"\n]*"|[A-Za-z_]+|-?[0-9]+(?:\.[0-9]+)?')
_MEMBER = re.compile(rb'("[^"\n]*"\s*:\s*)(?:"[^"\n]*"|[^,\[\]{}\n"]+)')
_NUMBER = re.compile(rb"-?[0-9]+(?:\.[0-9]+)?(?:e-?[0-9]+)?")
_EDGE = 128
"""Bytes at both ends that are hit more often: headers and tables lie there."""


class Mutation(NamedTuple):
    """Broken bytes, and in words what was done to them."""

    content: bytes
    what: str


def mutate(content, seed, number) -> Mutation:
    """Breaks bytes in one way, or now and then in two or three.

    Args:
        content: bytes.
        seed: of all that is drawn.
        number: of the mutation, from 0; neighbours break in other ways.
    """
    draw = random.Random(f"{seed}/{number}")
    names = list(KINDS)
    chosen = [names[number % len(names)]]
    if draw.random() < 0.15:
        chosen += draw.choices(names, k=draw.randint(1, 2))
    for name in chosen:
        content = KINDS[name](draw, content)
    return Mutation(content, " + ".join(chosen))


def _place(draw, content):
    """Returns where to break, from 0 to the length."""
    where = draw.random()
    edge = min(_EDGE, len(content))
    if where < 0.3:
        return draw.randint(0, edge)
    if where < 0.4:
        return draw.randint(len(content) - edge, len(content))
    return draw.randint(0, len(content))


def _two_places(draw, content):
    return sorted(_place(draw, content) for _ in range(2))


def _replaced(content, start, end, new):
    return content[:start] + new + content[end:]


def _flip_bits(draw, content):
    changed = bytearray(content)
    for _ in range(draw.choice((1, 1, 1, 2, 8))):
        place = _place(draw, content)
        if place < len(changed):
            changed[place] ^= 1 << draw.randrange(8)
    return bytes(changed)


def _overwrite(draw, content):
    start = _place(draw, content)
    new = draw.choice((b"\x00", b"\xff", draw.randbytes(1)))
    new *= draw.choice((1, 1, 4, 32))
    return _replaced(content, start, start + len(new), new)


def _cut_end(draw, content):
    return content[: _place(draw, content)]


def _cut_middle(draw, content):
    start = _place(draw, content)
    length = draw.choice((1, 1, 2, 7, 64, draw.randint(1, len(content) + 1)))
    return _replaced(content, start, start + length, b"")


def _insert_bytes(draw, content):
    start = _place(draw, content)
    new = draw.randbytes(draw.choice((1, 1, 2, 3, 16, 300)))
    return _replaced(content, start, start, new)


def _append(draw, content):
    choices = (b"\x00" * 64, b"\n", b"x", b"\n\n{}", content, b" " * 4096)
    return content + draw.choice(choices)


def _duplicate(draw, content):
    start, end = _two_places(draw, content)
    return _replaced(content, end, end, content[start:end])


def _swap(draw, content):
    a, b, c, d = sorted(_place(draw, content) for _ in range(4))
    parts = (content[:a], content[c:d], content[b:c], content[a:b], content[d:])
    return b"".join(parts)


def _change_lines(draw, content):
    lines = content.split(b"\n")
    row, other = (draw.randrange(len(lines)) for _ in range(2))
    what = draw.randrange(4)
    if what == 0:
        lines.insert(other, lines[row])
    elif what == 1:
        del lines[row]
    elif what == 2:
        lines[row], lines[other] = lines[other], lines[row]
    else:
        lines[row] = b""
    return b"\n".join(lines)


def _pick(draw, pattern, content):
    """Returns the span of a match, or of nothing at some place."""
    found = [match.span() for match in pattern.finditer(content)]
    if found:
        return draw.choice(found)
    place = _place(draw, content)
    return place, place


def _replace_word(draw, content):
    start, end = _pick(draw, _WORD, content)
    return _replaced(content, start, end, draw.choice(VALUES))


def _replace_number(draw, content):
    start, end = _pick(draw, _NUMBER, content)
    return _replaced(content, start, end, draw.choice(VALUES[8:20]))


def _swap_words(draw, content):
    first = _pick(draw, _WORD, content)
    second = _pick(draw, _WORD, content)
    (a, b), (c, d) = sorted((first, second))
    if b > c:
        return content
    return b"".join(
        (content[:a], content[c:d], content[b:c], content[a:b], content[d:])
    )


def _replace_value(draw, content):
    """Gives a member of a JSON object another value."""
    found = list(_MEMBER.finditer(content))
    if not found:
        return _replace_word(draw, content)
    match = draw.choice(found)
    return _replaced(content, match.end(1), match.end(), draw.choice(VALUES))


def _repeat_key(draw, content):
    """Writes a member of a JSON object once more before it, or drops it."""
    found = list(_MEMBER.finditer(content))
    if not found:
        return _change_lines(draw, content)
    match = draw.choice(found)
    if draw.random() < 0.3:
        return _replaced(content, match.start(), match.end(), b'"y": 0')
    new = draw.choice((match[0], match[1] + draw.choice(VALUES))) + b", "
    return _replaced(content, match.start(), match.start(), new)


def _nest(draw, content):
    opener, closer = draw.choice(list(OPENERS.items()))
    depth = draw.choice((3, 200, 3000, 100_000))
    start, end = _pick(draw, _WORD, content)
    if draw.random() < 0.5:
        closer = b""
    new = opener * depth + content[start:end] + closer * depth
    return _replaced(content, start, end, new)


def _insert_run(draw, content):
    start = _place(draw, content)
    length = draw.choice((300, 5000, 40_000))
    return _replaced(content, start, start, draw.choice(RUNS) * length)


def _insert_value(draw, content):
    start = _place(draw, content)
    return _replaced(content, start, start, draw.choice(VALUES))


def _integer(draw, content):
    start = _place(draw, content)
    size = draw.choice((1, 2, 4, 8))
    value = draw.choice(INTEGERS) % 256**size
    new = value.to_bytes(size, draw.choice(("little", "big")))
    return _replaced(content, start, start + size, new)


def _encode_otherwise(draw, content):
    if draw.random() < 0.3:
        return b"\xef\xbb\xbf" + content
    if draw.random() < 0.5:
        name = draw.choice(ENCODINGS)
        return b'<?xml version="1.0" encoding="%s"?>' % name + content
    text = content.decode("utf-8", errors="replace")
    name = draw.choice(("utf-16", "utf-16-be", "utf-32", "utf-7", "latin-1"))
    return text.encode(name, errors="replace")


def _empty(draw, content):
    del content
    return draw.choice((b"", b"\n", b"\x00", b"{}", b"[]", b"null", b"0"))


KINDS = {
    "bits flipped": _flip_bits,
    "word replaced": _replace_word,
    "bytes overwritten": _overwrite,
    "end cut": _cut_end,
    "bytes inserted": _insert_bytes,
    "member of another value": _replace_value,
    "integer overwritten": _integer,
    "number replaced": _replace_number,
    "middle cut": _cut_middle,
    "key repeated": _repeat_key,
    "bytes appended": _append,
    "part repeated": _duplicate,
    "deep nesting": _nest,
    "parts swapped": _swap,
    "lines changed": _change_lines,
    "words swapped": _swap_words,
    "long run inserted": _insert_run,
    "value inserted": _insert_value,
    "another encoding": _encode_otherwise,
    "emptied": _empty,
}
"""What is done -> function of a `random.Random` and bytes."""
