"""Counts phrases that make prose hard to read, called habits.

The limits are the numbers of habits per 1000 words. The docstrings of Keras
3.15 have 3.4.
"""

import ast
import collections
import pathlib
import re

import pytest

ROOT = pathlib.Path(__file__).resolve().parent.parent
LIMITS = {"docstrings": 4.3, "messages": 2.8, "pages": 5.6, "tests": 13.0}
HABITS = re.compile(
    # "returns what", "that of", "who trains", "what there is".
    r"\b(?:returns?|of|to|by|for|from|with|than|tells?|says?) what\b"
    r"|\b(?:that|those|such|one|ones) of\b"
    r"|\bwho(?:ever)? (?:\w+s|has|is)\b(?! (?:the|a)\b)"
    r"|\bwhat (?:a|an|the|is|was|are|has|have|it|there|else|others?|users?"
    r"|no|nobody)\b"
    # Files, flags or objects that tell or ask.
    r"|\b(?:told|tells?|says?|said|speaks?|spoken|asked|asks|answers?)\b"
    # Data that stand, lie, go or come.
    r"|\b(?:stands?|stood|lies|lay|goes on|go on|went|comes? along|stays?"
    r"|begins? (?:with|by|at))\b"
    # Empty nouns and quantifiers.
    r"|\b(?:nothing|nobody|none of|no one|anything|everything|something"
    r"|the same|the others?|another's|of each|of any|of all|of both)\b"
    # Inverted order.
    r"|(?-i:(?:^|[.:;] )(?:Of|By|Whoever|Who|Where|What|Beside|Nor|Such)\b)"
    r"|\b(?:can not|anew|beside|likewise|things?|whose turn|so many"
    r"|as many as|no more than)\b",
    re.I | re.M,
)
DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


def texts_of_page(text):
    """Yields the prose of a page, without code, tables and headings."""
    text = re.sub(r"```.*?```", "", text, flags=re.S)
    marks = ("    ", "|", "#", "<!--")
    lines = [x for x in text.splitlines() if not x.startswith(marks)]
    yield "pages", "\n".join(lines)


def texts_of_module(text):
    """Yields the docstrings and messages of a module."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, DOCUMENTED) and ast.get_docstring(node):
            blocks = r"::\n(?:\n| +.*\n?)+"
            yield "docstrings", re.sub(blocks, "\n", ast.get_docstring(node))
        function = getattr(node, "func", None)
        name = getattr(function, "attr", getattr(function, "id", ""))
        if isinstance(node, ast.Raise) or name in ("InputError", "flag"):
            parts = (getattr(part, "value", None) for part in ast.walk(node))
            strings = [x for x in parts if isinstance(x, str) and " " in x]
            yield "messages", " ".join(strings)


def texts():
    """Yields (kind, text) for the pages, the modules and names of tests."""
    for path in (ROOT / "README.md", *ROOT.glob("docs/**/*.md")):
        yield from texts_of_page(path.read_text("utf-8"))
    for path in (*ROOT.glob("tbnets/**/*.py"), *ROOT.glob("tools/**/*.py")):
        yield from texts_of_module(path.read_text("utf-8"))
    for path in ROOT.glob("tests/**/*.py"):
        for name in re.findall(r"def test_(\w+)", path.read_text("utf-8")):
            yield "tests", name.replace("_", " ")


@pytest.fixture(scope="module")
def rates():
    words, habits = collections.Counter(), collections.Counter()
    for kind, text in texts():
        words[kind] += len(text.split())
        habits[kind] += len(HABITS.findall(text))
    return {kind: 1000 * habits[kind] / words[kind] for kind in words}


@pytest.mark.parametrize("kind", LIMITS)
def test_habits_per_1000_words_are_rare(rates, kind):
    assert rates[kind] <= LIMITS[kind]
