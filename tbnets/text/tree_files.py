"""Files of trees: JSON lines with brackets, and folders of gold trees.

A file of trees has a JSON object a line:

    {"id": "1.jpg#0", "caption": "A dog.", "tree": "(NP (DT A) (NN dog) (. .))"}

`"fallback": true` stands beside a tree that is right-branching because the
parser gave none. A folder of gold trees has a bracketed tree a line in each
`.txt`; the words with a blank between are the caption. Trees are found by the
text of their caption.
"""

import pathlib
import re

from tbnets.checked_files import CheckedFile, shown
from tbnets.errors import InputError, MissingFileError
from tbnets.text.trees import Tree, read_tree, unescaped

# What stands right before a closing bracket; it is tried at its start alone, so
# that an endless word takes no time.
_WORD = re.compile(r"(?<![^\s()])[^\s()]+(?=\s*\))")


def trees_of(path, captions) -> list[Tree]:
    """Returns the tree of each caption, found by its text.

    Args:
        path: JSON lines, as `tools/parse_captions.py` writes them, or a
            folder of gold trees, such as `trees` of the embedded scenes.
        captions: list of strings.

    Raises:
        FileNotFoundError: there is no such file, or none in the folder.
        ValueError: a caption has no tree, or two different ones, or a row is
            bad, which is named by file and line.
    """
    path, known, wanted = pathlib.Path(path), {}, set(captions)
    rows = gold_rows(path) if path.is_dir() else _parsed_rows(path)
    for file, line, name, caption, text in rows:
        if caption in wanted:
            try:
                tree = read_tree(text, name)
            except ValueError as error:
                file.report(f"expected a tree; {error}", line)
            if tree != known.setdefault(caption, tree):
                file.refuse(
                    f"the tree that {shown(caption)} has before: "
                    f"{known[caption].bracketed()}",
                    text,
                    line,
                    "Trees are found by the text of a caption: keep one.",
                )
    if missing := [one for one in captions if one not in known]:
        raise InputError(
            "`--trees` must hold a tree for every caption. Received: --trees="
            f"{path} without {len(missing)} of {len(captions)} captions, first "
            f"{shown(missing[0])}. Trees are found by text: parse these "
            "captions by tools/parse_captions.py."
        )
    return [known[caption] for caption in captions]


def _parsed_rows(path):
    """Yields of a file of trees what `gold_rows` yields."""
    file, lines_of = CheckedFile(path), {}
    names = ("id", "caption", "tree")
    for line, row in file.json_rows(names, strings=True):
        first = lines_of.setdefault(row["id"], line)
        if first != line:
            wanted = f"each id once, as in line {first}"
            file.refuse(wanted, row["id"], line, "Remove one of them.")
        yield file, line, *(row[name] for name in names)


def gold_rows(folder):
    """Yields what a folder of gold trees has, a tree a line in each `.txt`.

    Args:
        folder: such as `trees` of the embedded scenes.

    Yields:
        (file, line, id, caption, brackets): the `CheckedFile`, a number, and
        three strings.

    Raises:
        FileNotFoundError: there is no such file in the folder.
    """
    paths = sorted(pathlib.Path(folder).glob("*.txt"))
    if not paths:
        raise MissingFileError(
            "`--trees` must hold gold trees in .txt files. Received: --trees="
            f"{folder}, without any. Name the folder trees of the scenes."
        )
    for path in paths:
        file = CheckedFile(path)
        for line, text in enumerate(file.lines()[0], 1):
            caption = unescaped(" ".join(_WORD.findall(text)))
            yield file, line, f"{path.stem}#{line - 1}", caption, text
