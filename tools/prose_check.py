#!/usr/bin/env python3
"""Counts habits of prose that make a reader stop.

Prints the number of each habit per 1000 words, separately for docstrings,
messages (errors, flags and printed text) and pages, and then the files with the
most habits. The docstrings of Keras 3.15 have 3.4 per 1000 words.

    python tools/prose_check.py
    python tools/prose_check.py docs/search.md --show="the same"
"""

import argparse
import ast
import collections
import pathlib
import re

# Each habit's description and pattern. `ALIKE` ignores case.
ALIKE = re.I | re.M
HABITS = {
    "what, who or that as a noun": (
        r"\b(?:returns?|of|to|by|for|from|with|than|tells?|says?) what\b"
        r"|\b(?:that|those|such|one|ones) of\b"
        r"|\bwho(?:ever)? (?:\w+s|has|is)\b(?! (?:the|a)\b)"
        r"|\bwhat (?:a|an|the|is|was|are|has|have|it|there|else|others?|users?"
        r"|no|nobody)\b",
        ALIKE,
    ),
    "files, flags or objects that tell or ask": (
        r"\b(?:told|tells?|says?|said|speaks?|spoken|asked|asks|answers?)\b",
        ALIKE,
    ),
    "data that stand, lie, go or come": (
        r"\b(?:stands?|stood|lies|lay|goes on|go on|went|comes? along|stays?"
        r"|begins? (?:with|by|at))\b",
        ALIKE,
    ),
    "an empty noun or quantifier": (
        r"\b(?:nothing|nobody|none of|no one|anything|everything|something"
        r"|the same|the others?|another's|of each|of any|of all|of both)\b",
        ALIKE,
    ),
    "inverted order": (
        r"(?:^|[.:;] )(?:Of|By|Whoever|Who|Where|What|Beside|Nor|Such)\b",
        re.M,
    ),
    "can not, anew, beside, likewise, things": (
        r"\b(?:can not|anew|beside|likewise|things?|whose turn|so many"
        r"|as many as|no more than)\b",
        ALIKE,
    ),
}
KINDS = ("docstrings", "messages", "pages")
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
        if isinstance(node, ast.Raise) or _is_message(node):
            yield "messages", " ".join(_strings(node))


def _is_message(node):
    function = getattr(node, "func", None)
    name = getattr(function, "attr", getattr(function, "id", ""))
    return isinstance(node, ast.Call) and name in SPEAKERS


def _strings(node):
    """Yields the strings of at least two words within a node."""
    for part in ast.walk(node):
        value = getattr(part, "value", None)
        if isinstance(part, ast.Constant) and isinstance(value, str):
            if " " in value:
                yield value


def files_in(paths):
    """Returns the Python files and pages found in `paths`, sorted.

    If a folder contains `tbnets` and `tools`, only these two, `docs` and
    `README.md` are searched.
    """
    files = []
    for path in map(pathlib.Path, paths):
        parts = [path / name for name in ("tbnets", "tools", "docs")]
        if path.is_file():
            files.append(path)
        elif all(part.is_dir() for part in parts):
            files += [*files_in(parts), path / "README.md"]
        else:
            files += [x for x in path.rglob("*") if x.suffix in (".py", ".md")]
    return sorted(files)


def count(files):
    """Counts words and habits.

    Returns:
        (words, habits, hits): `Counter`s with the keys kind, (kind, habit) and
        file.
    """
    words, habits, hits = (collections.Counter() for _ in range(3))
    for path in files:
        for kind, text in texts_of(path):
            words[kind] += len(text.split())
            for habit, (pattern, options) in HABITS.items():
                number = len(re.findall(pattern, text, flags=options))
                habits[kind, habit] += number
                hits[path] += number
    return words, habits, hits


def rates(files):
    """Returns the number of habits per 1000 words, for each kind of text."""
    words, habits, _ = count(files)
    totals = collections.Counter()
    for (kind, _), number in habits.items():
        totals[kind] += number
    return {kind: 1000 * totals[kind] / words[kind] for kind in words}


def show(files, pattern):
    """Prints the sentences that match a pattern."""
    for path in files:
        for _, text in texts_of(path):
            for sentence in re.split(r"(?<=[.:;]) ", " ".join(text.split())):
                if re.search(pattern, sentence, re.I):
                    print(f"{path}: {sentence[:200]}")


def main():
    """Prints the rates, and the files with the most habits."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument(
        "paths", nargs="*", default=["."], help="files or folders; default: ."
    )
    parser.add_argument(
        "--worst", type=int, default=12, help="number of files to print"
    )
    parser.add_argument(
        "--show", help="print the sentences that match this pattern instead"
    )
    options = parser.parse_args()
    files = files_in(options.paths)
    if options.show:
        show(files, options.show)
        return
    words, habits, hits = count(files)
    kinds = [kind for kind in KINDS if words[kind]]
    for habit in HABITS:
        cells = [1000 * habits[kind, habit] / words[kind] for kind in kinds]
        print(*(f"{cell:10.1f}" for cell in cells), f"  {habit}")
    print(*(f"{rates(files)[kind]:10.1f}" for kind in kinds), "  all habits")
    print(*(f"{kind:>10s}" for kind in kinds), "  per 1000 words")
    print(*(f"{words[kind]:10d}" for kind in kinds), "  words")
    for path, number in hits.most_common(options.worst):
        print(f"{number:5d}  {path}")


if __name__ == "__main__":
    main()
