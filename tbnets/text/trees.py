"""Constituency trees: brackets -> nodes -> brackets.

    tree = read_tree("(NP (NP (DT a) (NN dog)) (PP (IN on) (NP (NN grass))))")
    tree.words          # ("a", "dog", "on", "grass")
    tree.phrases("NP")  # [(0, 0, 4), (1, 0, 2), (6, 3, 4)]: node, start, end

Nothing here calls itself: a tree of any depth is read with a stack, and
everything that is computed of it is one pass over its nodes.
"""

import dataclasses
import re

import numpy as np

from tbnets.checked_files import shown
from tbnets.errors import InputError

MOST_LETTERS = 200
MOST_DEEP = 128
MOST_WORDS = 4096
EMPTY = "-NONE-"
WRAPPERS = ("", "ROOT", "TOP", "S1")

_TOKEN = re.compile(r"[()]|[^\s()]+")
_ESCAPES = {"(": "-LRB-", ")": "-RRB-"}
_UNESCAPED = {escape: bracket for bracket, escape in _ESCAPES.items()}


@dataclasses.dataclass(frozen=True)
class Tree:
    """A constituency tree: phrases, and words as its leaves.

    Nodes stand in preorder: the root is node 0, a parent stands before its
    children, and the words come in the order of the sentence.

    Args:
        labels: of each node, such as `NP`, or the part of speech of a word;
            "" where none is known.
        parents: node of the parent of each node; -1 of the root.
        texts: of each node that is a word; "" of a phrase.
    """

    labels: tuple[str, ...]
    parents: tuple[int, ...]
    texts: tuple[str, ...]

    @property
    def num_nodes(self) -> int:
        """The number of nodes, words included."""
        return len(self.labels)

    @property
    def words(self) -> tuple[str, ...]:
        """The words in order."""
        return tuple(text for text in self.texts if text)

    def spans(self) -> np.ndarray:
        """Returns the words of each node, int `[num_nodes, 2]`.

        A node holds the words `start` to `end - 1`, counted from 0.
        """
        lengths = [int(bool(text)) for text in self.texts]
        starts = np.cumsum(lengths) - lengths
        for node in range(self.num_nodes - 1, 0, -1):
            lengths[self.parents[node]] += lengths[node]
        return np.stack([starts, starts + lengths], axis=1)

    def heights(self) -> np.ndarray:
        """Returns int `[num_nodes]`: 0 of a word; 1 more than its children."""
        heights = [0] * self.num_nodes
        for node in range(self.num_nodes - 1, 0, -1):
            parent = self.parents[node]
            heights[parent] = max(heights[parent], heights[node] + 1)
        return np.array(heights)

    def phrases(self, kind="NP") -> list[tuple[int, int, int]]:
        """Returns (node, start, end) of each node of a kind, in preorder."""
        return [
            (node, int(start), int(end))
            for node, (start, end) in enumerate(self.spans())
            if kind_of(self.labels[node]) == kind
        ]

    def bracketed(self) -> str:
        """Returns the tree on one line, `(NP (DT a) (NN ring))`.

        `read_tree` reads it back; without a label, brackets stand bare.
        """
        parts, open_nodes = [], []
        for node, (label, parent, text) in enumerate(
            zip(self.labels, self.parents, self.texts)
        ):
            while open_nodes and open_nodes[-1] != parent:
                open_nodes.pop()
                parts.append(")")
            space = "" if not node or parts[-1].endswith("(") else " "
            word = text.replace("(", "-LRB-").replace(")", "-RRB-")
            if text and not label and node:
                parts.append(space + word)
                continue
            parts.append(f"{space}({label}" if label else f"{space}(")
            open_nodes.append(node)
            if text:
                parts.append(f" {word}" if label else word)
        return "".join(parts) + ")" * len(open_nodes)

    def with_texts(self, texts) -> "Tree":
        """Returns the tree with other words; phrases that lose all go.

        Args:
            texts: for each word of the tree the strings that take its place:
                none, one or several, which then stand side by side.

        Returns:
            A `Tree`; None where no word is left.
        """
        if self.num_nodes == 1 and len(texts[0]) > 1:
            return right_branching(texts[0])
        places, nodes = iter(texts), []
        for node, (label, parent, text) in enumerate(
            zip(self.labels, self.parents, self.texts)
        ):
            if text:
                nodes += [(label, parent, new, node) for new in next(places)]
            else:
                nodes.append((label, parent, "", node))
        return _without_empty(nodes)


def kind_of(label) -> str:
    """Returns a label without its function: `NP` for `NP-SBJ` and `NP=2`."""
    return re.split("[-=|]", label, maxsplit=1)[0]


def read_tree(text, name="", labelled=True) -> Tree:
    """Reads a tree in brackets, as treebanks and parsers write them.

    - The brackets around a word with its part of speech are the word:
      `(DT a)` is one node. A word may also stand bare: `(NP a dog)`.
    - Other unary chains stay: `(NP (NNS dogs))` is a phrase of one word.
    - A nameless bracket or one called ROOT, TOP or S1 around the whole tree
      is taken off.
    - Empty nodes, `(-NONE- *)`, go, and phrases that hold nothing else.
    - `-LRB-` and `-RRB-` are read as the brackets that they stand for.

    Args:
        text: the tree.
        name: what an error calls the tree, such as the id of its caption.
        labelled: whether the first word after `(` is a label. Without, every
            word is a word, as in `((a dog) runs)`.

    Raises:
        ValueError: brackets do not match, no word is left, a word is longer
            than 200 letters, the tree is deeper than 128 or has more than
            4096 words.
    """
    nodes, stack, wants_label = [], [], False
    for match in _TOKEN.finditer(text):
        token = match[0]
        if not stack and (nodes or token != "("):
            reason = "follows the end of the tree" if nodes else "opens none"
            raise _bad_tree(name, text, f"{shown(token)} {reason}")
        if token == "(":
            nodes.append(("", stack[-1] if stack else -1, "", len(nodes)))
            stack.append(len(nodes) - 1)
            if len(stack) > 2 * MOST_DEEP:  # Unary wrappers may yet go.
                raise _too_deep(name, text)
        elif token == ")":
            stack.pop()
        elif wants_label:
            node = stack[-1]
            nodes[node] = (token, nodes[node][1], "", node)
        elif len(token) > MOST_LETTERS:
            reason = f"a word has {len(token)} letters, at most {MOST_LETTERS}"
            raise _bad_tree(name, text, reason)
        else:
            nodes.append((None, stack[-1], unescaped(token), len(nodes)))
        wants_label = token == "(" and labelled
    if stack:
        raise _bad_tree(name, text, f"{len(stack)} of the brackets stay open")
    tree = _without_empty(_merged(nodes))
    if tree is None:
        raise _bad_tree(name, text, "there is no word in it")
    _check_size(tree, name, text)
    return tree


def unescaped(token) -> str:
    """Returns a word with brackets for what stands for them."""
    for escape, bracket in _UNESCAPED.items():
        token = token.replace(escape, bracket)
    return token


def right_branching(words) -> Tree:
    """Returns the tree of a sentence that no parser took apart.

    Each word stands beside a phrase of all the words after it; from the 60th
    on they stand side by side. No node is a noun phrase.

    Args:
        words: at least one string.
    """
    labels, parents, texts, parent = [], [], [], -1
    for place, word in enumerate(words):
        if place < min(len(words) - 1, 60):
            labels.append("X")
            parents.append(parent)
            texts.append("")
            parent = len(labels) - 1
        labels.append("X")
        parents.append(parent)
        texts.append(word)
    return Tree(tuple(labels), tuple(parents), tuple(texts))


def _merged(nodes):
    """Makes one node of a word and the brackets that hold it alone.

    Empty nodes become words without a text. What is left of a treebank's
    wrapper around the tree goes.
    """
    num_children, only = [0] * len(nodes), [None] * len(nodes)
    for node, (_, parent, _, _) in enumerate(nodes):
        if parent >= 0:
            num_children[parent] += 1
            only[parent] = node
    found, gone = [], set()
    for node, (label, parent, text, number) in enumerate(nodes):
        if node in gone:
            continue
        child = only[node] if num_children[node] == 1 else None
        if child is not None and nodes[child][0] is None:  # A bare word.
            text = "" if label == EMPTY else nodes[child][2]
            gone.add(child)
        found.append((label or "", parent, text, number))
    return found


def _without_empty(nodes):
    """Returns the `Tree` of nodes, without phrases that hold no word.

    Args:
        nodes: list of (label, number of the parent, text, number), in
            preorder; numbers grow.
    """
    held = {}
    for _, parent, text, number in reversed(nodes):
        held[number] = held.get(number, False) or bool(text)
        if parent >= 0:
            held[parent] = held.get(parent, False) or held[number]
    kept = [one for one in nodes if held[one[3]]]
    while len(kept) > 1 and kept[0][0] in WRAPPERS:
        root = kept[0][3]
        if sum(parent == root for _, parent, _, _ in kept) > 1:
            break
        kept.pop(0)
    if not kept:
        return None
    places = {}
    for place, (_, _, _, number) in enumerate(kept):
        places.setdefault(number, place)
    parents = [places.get(parent, -1) for _, parent, _, _ in kept]
    labels, _, texts, _ = zip(*kept)
    return Tree(labels, (-1, *parents[1:]), texts)


def _check_size(tree, name, text):
    if tree.heights()[0] > MOST_DEEP:
        raise _too_deep(name, text)
    if len(tree.words) > MOST_WORDS:
        reason = f"it has {len(tree.words)} words, at most {MOST_WORDS}"
        raise _bad_tree(name, text, reason)


def _too_deep(name, text):
    return _bad_tree(name, text, f"it is deeper than {MOST_DEEP}")


def _bad_tree(name, text, reason):
    of = f" of caption {name}" if name else ""
    return InputError(
        "`text` must be one tree in brackets, such as (NP (DT a) (NN dog)). "
        f"Received: text={shown(text)}{of}, where {reason}. Parse the caption "
        "again, or correct it."
    )
