"""Files of trees: JSON lines with brackets, and folders of gold trees.

A file of trees has a JSON object a line:

    {"id": "1.jpg#0", "caption": "A dog.", "tree": "(NP (DT A) (NN dog) (. .))"}

`"fallback": true` stands beside a tree that is right-branching because the
parser gave none. A folder of gold trees has a bracketed tree a line in each
`.txt`; the words with a blank between are the caption.
"""

import pathlib
import re
from typing import NamedTuple

from tbnets.checked_files import CheckedFile, shown
from tbnets.errors import InputError, MissingFileError
from tbnets.text.trees import Tree, read_tree, unescaped

_TOKEN = re.compile(r"[()]|[^\s()]+")


class ParsedCaption(NamedTuple):
    """A line of a file of trees.

    Attributes:
        id: of the caption.
        caption: its text.
        tree: the `Tree`.
        is_fallback: whether it is right-branching for want of a parse.
    """

    id: str
    caption: str
    tree: Tree
    is_fallback: bool


def read_parses(path, captions=None, problems=None) -> list[ParsedCaption]:
    """Reads a file of trees.

    Args:
        path: JSON lines, as `tools/parse_captions.py` writes them.
        captions: set of the captions that are wanted; None for all.
        problems: a list that collects bad rows; None raises at the first.

    Raises:
        FileNotFoundError: there is no such file.
        ProblemError: a row is none; names file and line.
    """
    file, found, lines_of = CheckedFile(path, problems), [], {}
    names = ("id", "caption", "tree")
    for number, row in file.json_rows(names, strings=True):
        name, caption = row["id"], row["caption"]
        if name in lines_of:
            file.report(
                f"expected each id once; found {shown(name)}, as in line "
                f"{lines_of[name]}. Remove one of them.",
                number,
            )
            continue
        lines_of[name] = number
        if captions is not None and caption not in captions:
            continue
        tree = _tree(file, number, row["tree"], name)
        if tree is not None:
            is_fallback = row.get("fallback") is True
            found.append(ParsedCaption(name, caption, tree, is_fallback))
    return found


def read_gold_trees(folder, captions=None) -> list[ParsedCaption]:
    """Reads a folder of gold trees, a tree a line in each `.txt`.

    Args:
        folder: such as `trees` of the embedded scenes.
        captions: set of the captions that are wanted; None for all.

    Raises:
        FileNotFoundError: there is no such file in the folder.
        ProblemError: a line is no tree; names file and line.
    """
    paths, found = sorted(pathlib.Path(folder).glob("*.txt")), []
    if not paths:
        raise MissingFileError(
            "`folder` must hold gold trees in .txt files. Received: folder="
            f"{folder}, without any. Name the folder trees of the scenes."
        )
    for path in paths:
        file = CheckedFile(path)
        for number, line in enumerate(file.lines()[0], 1):
            caption = unescaped(" ".join(_words(line)))
            if captions is None or caption in captions:
                name = f"{path.stem}#{number - 1}"
                tree = _tree(file, number, line, name)
                found.append(ParsedCaption(name, caption, tree, False))
    return found


def trees_of(path, captions) -> list[Tree]:
    """Returns the tree of each caption, found by its text.

    Args:
        path: a file of trees, or a folder of gold trees.
        captions: list of strings.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: a caption has no tree, or a row is bad.
    """
    path = pathlib.Path(path)
    read = read_gold_trees if path.is_dir() else read_parses
    known = {row.caption: row.tree for row in read(path, set(captions))}
    missing = [caption for caption in captions if caption not in known]
    if missing:
        raise InputError(
            "`--trees` must hold a tree for every caption. Received: --trees="
            f"{path} without {len(missing)} of {len(captions)} captions, first "
            f"{shown(missing[0])}. Trees are found by text: parse these "
            "captions by tools/parse_captions.py."
        )
    return [known[caption] for caption in captions]


def _words(line):
    """Returns what stands right before a closing bracket, in order."""
    tokens = _TOKEN.findall(line)
    return [
        token
        for token, after in zip(tokens, tokens[1:])
        if after == ")" and token not in "()"
    ]


def _tree(file, number, text, name):
    """Returns a tree, or None once a problem was collected."""
    try:
        return read_tree(text, name)
    except ValueError as error:
        file.report(f"expected a tree; {error}", number)
    return None
