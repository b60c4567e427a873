"""Reads, converts and writes bracketed constituency trees.

::

    tree = read_tree("(NP (NP (DT a) (NN dog)) (PP (IN on) (NP (NN grass))))")
    tree.words          # ("a", "dog", "on", "grass")
    tree.phrases("NP")  # [(0, 0, 4), (1, 0, 2), (6, 3, 4)]: node, start, end
"""

import dataclasses
import pathlib
import re
from collections.abc import Sequence

import numpy as np

from tbnets.checks import short_repr
from tbnets.errors import InputError, MissingFileError, check_kind
from tbnets.files import CheckedFile, shown

MOST_LETTERS = 200
MOST_DEEP = 128
MOST_WORDS = 4096
_BRACKETS = {
    "-LRB-": "(",
    "-RRB-": ")",
    "-LCB-": "{",
    "-RCB-": "}",
    "-LSB-": "[",
    "-RSB-": "]",
}
"""Maps the codes of treebanks to brackets."""
EMPTY = "-NONE-"
WRAPPERS = ("", "ROOT", "TOP", "S1")

_TOKEN = re.compile(r"[()]|[^\s()]+")


@dataclasses.dataclass(frozen=True)
class Tree:
    """A constituency tree of phrases, with words as leaves.

    Nodes are in preorder: the root is node 0, parents precede their children,
    and words are in the order of the sentence.

    Args:
        labels: for each node, a phrase type such as `NP`, a word's part of
            speech, or "" if the label is unknown.
        parents: each node's parent, or -1 for the root.
        texts: each node's word, or "" for a phrase.

    Example:
        tree = tbnets.read_tree("(NP (DT a) (NN dog))")
        tree.labels, tree.parents  # ("NP", "DT", "NN"), (-1, 0, 0)
        tree.words, tree.phrases("NP")  # ("a", "dog"), [(0, 0, 2)]
    """

    labels: tuple[str, ...]
    parents: tuple[int, ...]
    texts: tuple[str, ...]

    __repr__ = short_repr("num_nodes", "bracketed")

    @property
    def num_nodes(self) -> int:
        """The number of nodes, including words."""
        return len(self.labels)

    @property
    def words(self) -> tuple[str, ...]:
        """The words in order."""
        return tuple(text for text in self.texts if text)

    def spans(self) -> np.ndarray:
        """Returns each node's (start, end) word indices, int `[n, 2]`."""
        lengths = [int(bool(text)) for text in self.texts]
        starts = np.cumsum(lengths) - lengths
        for node in range(self.num_nodes - 1, 0, -1):
            lengths[self.parents[node]] += lengths[node]
        return np.stack([starts, starts + lengths], axis=1)

    def heights(self) -> np.ndarray:
        """Returns each node's height (0 for a word), int `[num_nodes]`."""
        heights = [0] * self.num_nodes
        for node in range(self.num_nodes - 1, 0, -1):
            parent = self.parents[node]
            heights[parent] = max(heights[parent], heights[node] + 1)
        return np.array(heights)

    def phrases(self, kind: str = "NP") -> list[tuple[int, int, int]]:
        """Returns (node, start, end) for nodes of type `kind`, in preorder."""
        return [
            (node, int(start), int(end))
            for node, (start, end) in enumerate(self.spans())
            if phrase_type(self.labels[node]) == kind
        ]

    def bracketed(self) -> str:
        """Returns the tree on one line, such as `(NP (DT a) (NN ring))`."""
        inside = [[] for _ in range(self.num_nodes + 1)]
        for node in reversed(range(self.num_nodes)):
            label, parent = self.labels[node], self.parents[node]
            part = escaped(self.texts[node]) or " ".join(inside[node][::-1])
            if label or not self.texts[node] or not node:
                part = f"({label} {part})" if label else f"({part})"
            inside[parent].append(part)
        return inside[-1][0]

    def with_texts(self, texts: Sequence[Sequence[str]]) -> "Tree | None":
        """Returns the tree with words replaced, or None if no words remain.

        Empty phrases are removed.

        Args:
            texts: for each word, a list of replacements. Several replacements
                become siblings, and an empty list removes the word.
        """
        if self.num_nodes == 1 and len(texts[0]) > 1:
            return right_branching(texts[0])
        texts, new_nodes, nodes = iter(texts), {-1: -1}, []
        for node, text in enumerate(self.texts):
            new_nodes[node] = len(nodes)
            parent = new_nodes[self.parents[node]]
            for new in next(texts) if text else [""]:
                nodes.append((self.labels[node], parent, new))
        return _without_empty(nodes)


def phrase_type(label) -> str:
    """Removes the grammatical function from a label: `NP-SBJ` becomes `NP`."""
    return re.split("[-=|]", label, maxsplit=1)[0]


def read_tree(text: str, name: str = "") -> Tree:
    """Reads a tree in the bracket notation of treebanks and parsers.

    - A word may be bare, `(NP a dog)`, or have a part of speech, `(DT a)`.
    - `(NP (NNS dogs))` is a phrase of one word.
    - An outer bracket without a label, or labelled ROOT, TOP or S1, is removed.
    - Empty nodes such as `(-NONE- *)`, and phrases of empty nodes, are removed.
    - `-LRB-`, `-RRB-`, `-LCB-`, `-RCB-`, `-LSB-` and `-RSB-` are read as
      brackets.

    Args:
        text: the tree.
        name: name of the tree for error messages, such as its caption's id.

    Raises:
        ValueError: If brackets do not match, no words remain, a word is longer
            than 200 letters, the height exceeds 128, or there are more than
            4096 words.

    Example:
        tree = tbnets.read_tree("(S (NP (DT a) (NN dog)) (VP (VBZ runs)))")
        tree.num_nodes, tree.bracketed()
    """
    check_kind("text", text, str)
    try:
        tree = _without_empty(_nodes(text))
        if tree is None:
            raise InputError("it has no words")
        if tree.heights()[0] > MOST_DEEP:
            raise InputError(f"it is deeper than {MOST_DEEP}")
        if (count := len(tree.words)) > MOST_WORDS:
            raise InputError(f"it has {count} words, more than {MOST_WORDS}")
    except InputError as error:
        of = f" of caption {name}" if name else ""
        expected = "be one tree in brackets, such as (NP (DT a) (NN dog))"
        received = f"{shown(text)}{of} ({error})"
        raise InputError("text", expected, received) from error
    return tree


def _nodes(text):
    nodes, stack, wants_label = [], [], False
    for match in _TOKEN.finditer(text):
        token = match[0]
        parent = stack[-1] if stack else -1
        if not stack and (nodes or token != "("):
            reason = "follows the end" if nodes else "does not open it"
            raise InputError(f"{shown(token)} {reason}")
        if token == "(":
            stack.append(len(nodes))
            nodes.append(("", parent, ""))
            if len(stack) > 2 * MOST_DEEP:  # Wrappers are removed later.
                raise InputError(f"it is deeper than {MOST_DEEP}")
        elif token == ")":
            stack.pop()
            label, inner, word = nodes[-1]
            if parent == inner == len(nodes) - 2 and label is None:
                label, outer, _ = nodes[parent]
                nodes[-2:] = [(label, outer, "" if label == EMPTY else word)]
        elif wants_label:
            nodes[parent] = (token, nodes[parent][1], "")
        elif len(token) > MOST_LETTERS:
            raise InputError(
                f"a word has {len(token)} letters, more than {MOST_LETTERS}"
            )
        else:
            nodes.append((None, parent, unescaped(token)))
        wants_label = token == "("
    if stack:
        raise InputError(f"{len(stack)} brackets are not closed")
    return nodes


def escaped(token) -> str:
    """Replaces brackets in a word with codes, such as `-LRB-`."""
    return token.replace("(", "-LRB-").replace(")", "-RRB-")


def unescaped(token) -> str:
    """Replaces codes such as `-LRB-` in a word with brackets."""
    for code, bracket in _BRACKETS.items():
        token = token.replace(code, bracket)
    return token


def right_branching(words) -> Tree:
    """Returns the right-branching tree of one or more words.

    Each of the first 60 words is the sibling of a phrase that contains all
    later words. No node is a noun phrase.
    """
    nodes, parent = [], -1
    for position, word in enumerate(words):
        if position < min(len(words) - 1, 60):
            nodes.append(("X", parent, ""))
            parent = len(nodes) - 1
        nodes.append(("X", parent, word))
    return Tree(*zip(*nodes))


def _without_empty(nodes):
    has_words = [bool(text) for _, _, text in nodes]
    for node in range(len(nodes) - 1, 0, -1):
        has_words[nodes[node][1]] |= has_words[node]
    nonempty = [node for node in range(len(nodes)) if has_words[node]]
    while len(nonempty) > 1 and nodes[nonempty[0]][0] in WRAPPERS:
        if sum(nodes[node][1] == nonempty[0] for node in nonempty) > 1:
            break
        nonempty.pop(0)
    if not nonempty:
        return None
    new_nodes = {node: new for new, node in enumerate(nonempty)}
    labels, parents, texts = zip(*(nodes[node] for node in nonempty))
    parents = (-1, *(new_nodes[parent] for parent in parents[1:]))
    return Tree(tuple(label or "" for label in labels), parents, texts)


# A file of trees has a JSON object on each line:
#
#     {"id": "1.jpg#0", "caption": "A dog.", "tree": "(NP (DT A) (NN dog))"}
#
# `"fallback": true` marks a right-branching tree, used if the parser failed. A
# folder of gold trees has `.txt` files with a bracketed tree on each line. The
# words of a gold tree, joined by spaces, are its caption.

# A word before a closing bracket. It matches only at the word's start, so that
# the time is linear in the word's length.
_WORD = re.compile(r"(?<![^\s()])[^\s()]+(?=\s*\))")


def trees_of(path, captions) -> list[Tree]:
    """Looks up the tree of every caption by the caption's text.

    `path` is a JSON lines file from `tbnets parse_captions`, or a folder of
    gold trees.
    """
    path, trees, distinct = pathlib.Path(path), {}, set(captions)
    rows = gold_rows(path) if path.is_dir() else _parsed_rows(path)
    for file, line, name, caption, text in rows:
        if caption in distinct:
            try:
                tree = read_tree(text, name)
            except ValueError as error:
                file.report(f"expected a tree. {error}", line)
            if tree != trees.setdefault(caption, tree):
                expected = f"the earlier tree of {shown(caption)}"
                file.refuse(expected, text, line)
    if missing := [text for text in captions if text not in trees]:
        raise InputError(
            "--trees",
            "have a tree for every caption",
            f"--trees={path} without {len(missing)} of {len(captions)} "
            f"captions, such as {shown(missing[0])}",
        )
    return [trees[caption] for caption in captions]


def _parsed_rows(path):
    file, lines_of = CheckedFile(path), {}
    names = ("id", "caption", "tree")
    for line, row in file.json_rows(names, strings=True):
        first = lines_of.setdefault(row["id"], line)
        if first != line:
            file.refuse(f"an id other than in line {first}", row["id"], line)
        yield file, line, *(row[name] for name in names)


def gold_rows(folder):
    """Yields (file, line, id, caption, brackets) for a folder's gold trees."""
    paths = sorted(pathlib.Path(folder).glob("*.txt"))
    if not paths:
        expected = "be a file, or a folder with gold trees in .txt files"
        raise MissingFileError("--trees", expected, f"--trees={folder}")
    for path in paths:
        file = CheckedFile(path)
        for line, text in enumerate(file.lines()[0], 1):
            caption = unescaped(" ".join(_WORD.findall(text)))
            yield file, line, f"{path.stem}#{line - 1}", caption, text
