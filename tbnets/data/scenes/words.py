"""The words of the scenes' captions and the trees that hold them."""

import dataclasses

WORDS = {
    "shape": {
        "circle": {"circle": 0.65, "disc": 0.35},
        "square": {"square": 0.65, "box": 0.35},
        "triangle": {"triangle": 1.0},
        "star": {"star": 1.0},
        "cross": {"cross": 0.7, "plus sign": 0.3},
        "ring": {"ring": 0.7, "hoop": 0.3},
        "diamond": {"diamond": 0.75, "rhombus": 0.25},
        "heart": {"heart": 1.0},
        "": {"shape": 0.7, "object": 0.3},
    },
    "colour": {
        "red": {"red": 0.7, "crimson": 0.15, "scarlet": 0.15},
        "green": {"green": 0.75, "emerald": 0.25},
        "blue": {"blue": 0.75, "cobalt": 0.25},
        "yellow": {"yellow": 0.75, "golden": 0.25},
        "orange": {"orange": 1.0},
        "purple": {"purple": 0.7, "violet": 0.3},
        "white": {"white": 1.0},
        "black": {"black": 1.0},
    },
    "size": {
        "small": {"small": 0.6, "little": 0.25, "tiny": 0.15},
        "large": {"large": 0.55, "big": 0.45},
    },
    "texture": {
        "plain": {"plain": 0.6, "solid": 0.4},
        "striped": {"striped": 1.0},
        "dotted": {"dotted": 0.55, "spotted": 0.45},
        "checked": {"checked": 0.5, "checkered": 0.5},
    },
    "background": {
        "grey": {"grey": 0.6, "gray": 0.4},
        "beige": {"beige": 0.65, "tan": 0.35},
        "pink": {"pink": 0.7, "rosy": 0.3},
        "turquoise": {"turquoise": 0.65, "teal": 0.35},
        "brown": {"brown": 1.0},
    },
    # Words joined by "_" get a tree of their own.
    "relation": {
        "left": {"to_left_of": 0.5, "left_of": 0.3, "beside": 0.2},
        "right": {"to_right_of": 0.5, "right_of": 0.3, "beside": 0.2},
        "above": {"above": 0.75, "over": 0.25},
        "below": {"below": 0.5, "under": 0.25, "beneath": 0.25},
        "inside": {"inside": 0.6, "within": 0.4},
        "around": {"around": 1.0},
    },
}
"""What is said of a scene -> its value -> words for it, and how often."""
PLURALS = {"cross": "crosses", "box": "boxes", "rhombus": "rhombuses"}
NUMBERS = {2: "two", 3: "three", 4: "four"}


@dataclasses.dataclass(frozen=True)
class Node:
    """A constituency tree, or one word of it.

    Args:
        label: Constituent label, or the part of speech of a word.
        children: Tuple of `Node`; empty for a word.
        text: The word; "" for a constituent.
        chain: Coreference chain of a phrase within its scene; None for what
            is no phrase of its own.
    """

    label: str
    children: tuple = ()
    text: str = ""
    chain: int | None = None

    def leaves(self):
        """Returns the word nodes from left to right."""
        if not self.children:
            return [self]
        return [leaf for child in self.children for leaf in child.leaves()]

    def bracketed(self):
        """Returns the tree on one line: (NP (DT a) (NN ring))."""
        inside = self.text or " ".join(one.bracketed() for one in self.children)
        return f"({self.label} {inside})"

    def phrases(self):
        """Returns the nodes that carry a chain, from left to right."""
        if self.chain is not None:
            return [self]
        return [one for child in self.children for one in child.phrases()]


def word(label, text):
    """Returns a word with its part of speech."""
    return Node(label, (), text)


def node(label, *children, chain=None):
    """Returns a constituent over `children`."""
    return Node(label, children, "", chain)


def capitalised(tree):
    """Returns the tree with its first word capitalised."""
    if not tree.children:
        return dataclasses.replace(tree, text=tree.text.capitalize())
    first = capitalised(tree.children[0])
    return dataclasses.replace(tree, children=(first, *tree.children[1:]))


def plural_of(noun):
    """Returns the plural of a noun of this module."""
    return PLURALS.get(noun, noun + "s")
