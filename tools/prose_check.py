#!/usr/bin/env python3
"""Finds phrases that make prose hard to read, called habits.

Prints each habit that is found, and the number of habits per 1000 words,
separately for docstrings, messages (errors, flags and printed text) and pages.
The docstrings of Keras 3.15 have 3.4 per 1000 words.

    python tools/prose_check.py
    python tools/prose_check.py docs/search.md
"""

import ast
import collections
import pathlib
import re
import sys

HABITS = (
    r"\b(?:returns?|of|to|by|for|from|with|than|tells?|says?) what\b"
    r"|\b(?:that|those|such|one|ones) of\b"
    r"|\bwho(?:ever)? (?:\w+s|has|is)\b(?! (?:the|a)\b)"
    r"|\bwhat (?:a|an|the|is|was|are|has|have|it|there|else|others?|users?"
    r"|no|nobody)\b",
    # Files, flags or objects that tell or ask.
    r"\b(?:told|tells?|says?|said|speaks?|spoken|asked|asks|answers?)\b",
    # Data that stand, lie, go or come.
    r"\b(?:stands?|stood|lies|lay|goes on|go on|went|comes? along|stays?"
    r"|begins? (?:with|by|at))\b",
    # Empty nouns and quantifiers.
    r"\b(?:nothing|nobody|none of|no one|anything|everything|something"
    r"|the same|the others?|another's|of each|of any|of all|of both)\b",
    # Inverted order.
    r"(?-i:(?:^|[.:;] )(?:Of|By|Whoever|Who|Where|What|Beside|Nor|Such)\b)",
    r"\b(?:can not|anew|beside|likewise|things?|whose turn|so many"
    r"|as many as|no more than)\b",
)
SPEAKERS = ("InputError", "flag", "print")
"""Functions and classes whose string arguments are messages."""
_DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


def texts_of(path):
    """Yields (kind, text) for the prose of a Python file or a page."""
    source = path.read_text(encoding="utf-8")
    if path.suffix == ".md":
        source = re.sub(r"```.*?```", "", source, flags=re.S)
        marks = ("    ", "|", "#", "<!--")  # Code, tables, headings, comments.
        lines = [x for x in source.splitlines() if not x.startswith(marks)]
        yield "pages", "\n".join(lines)
        return
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, _DOCUMENTED) and ast.get_docstring(node):
            blocks = r"::\n(?:\n| +.*\n?)+"
            yield "docstrings", re.sub(blocks, "\n", ast.get_docstring(node))
        function = getattr(node, "func", None)
        name = getattr(function, "attr", getattr(function, "id", ""))
        if isinstance(node, ast.Raise) or name in SPEAKERS:
            parts = (getattr(part, "value", None) for part in ast.walk(node))
            strings = [x for x in parts if isinstance(x, str) and " " in x]
            yield "messages", " ".join(strings)


def files_in(root):
    """Returns the Python files of tbnets and tools, the README and docs/."""
    folders = [root / name for name in ("tbnets", "tools", "docs")]
    files = [path for folder in folders for path in folder.rglob("*")]
    return [
        root / "README.md",
        *(x for x in files if x.suffix in (".py", ".md")),
    ]


def habits_in(text):
    """Returns the habits found in a text."""
    return [
        found[0]
        for habit in HABITS
        for found in re.finditer(habit, text, re.I | re.M)
    ]


def rates(files):
    """Returns the number of habits per 1000 words, for each kind of text."""
    words, habits = collections.Counter(), collections.Counter()
    for path in files:
        for kind, text in texts_of(path):
            words[kind] += len(text.split())
            habits[kind] += len(habits_in(text))
    return {kind: 1000 * habits[kind] / words[kind] for kind in words}


def main():
    """Prints the habits in each file, and their rates per kind of text."""
    root = pathlib.Path(__file__).resolve().parents[1]
    files = [*map(pathlib.Path, sys.argv[1:])] or files_in(root)
    for path in files:
        for _, text in texts_of(path):
            for habit in habits_in(text):
                print(f"{path}: {habit}")
    for kind, rate in rates(files).items():
        print(f"{rate:10.1f}  {kind}")


if __name__ == "__main__":
    main()
