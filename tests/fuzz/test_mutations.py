"""Tests of the mutations: many kinds, and the same each time."""

import json

import pytest

from tests.fuzz.mutations import KINDS, mutate

TEXT = json.dumps({"a": [1, 2.5], "b": "dog", "c": None}).encode()
BINARY = bytes(range(256)) * 4


@pytest.mark.parametrize("content", [TEXT, BINARY, b"", b"\n"])
def test_a_mutation_is_the_same_each_time(content):
    for number in range(40):
        found = mutate(content, 7, number)
        assert found == mutate(content, 7, number)
        assert isinstance(found.content, bytes)


def test_another_seed_or_number_breaks_otherwise():
    broken = [mutate(TEXT, 0, number).content for number in range(200)]
    assert len(set(broken)) > 150
    other = [mutate(TEXT, 1, number).content for number in range(200)]
    assert sum(a == b for a, b in zip(broken, other)) < 50


def test_almost_every_mutation_changes_something():
    same = [n for n in range(400) if mutate(TEXT, 0, n).content == TEXT]
    assert len(same) < 40


def test_every_kind_comes_and_is_told():
    told = [mutate(TEXT, 0, number).what for number in range(len(KINDS))]
    assert [what.split(" + ")[0] for what in told] == list(KINDS)


@pytest.mark.parametrize(
    "wanted",
    [
        b"[" * 3000,  # Deep nesting.
        b"9" * 5000,
        b"1e999",
        b"../../../etc/passwd",
        b'"/etc/passwd"',
        b"\xed\xa0\x80",  # No UTF-8: half of a surrogate pair.
        b'encoding="gbk"',
        b"\xef\xbb\xbf",
        b'"b": "dog", "b": "dog"',
    ],
)
def test_what_readers_stumble_over_comes(wanted):
    assert any(wanted in mutate(TEXT, 0, n).content for n in range(5000))


def test_files_grow_by_less_than_two_megabytes():
    sizes = [len(mutate(TEXT, 0, number).content) for number in range(1000)]
    assert max(sizes) < 2**21
