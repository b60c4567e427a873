"""The phrases in which a scene is described.

`Speaker` knows one scene: it picks what can be said truly, says it in varying
words as constituency trees, and notes each claim.

Chains are numbered within a scene: 0 is a phrase that shows nothing ("there",
"each other"), 1.. are the objects in order, `BACKGROUND_CHAIN` is the
background, and `FIRST_GROUP_CHAIN`.. are plural phrases.
"""

import dataclasses
import itertools

from tbnets.scenes.layout import (
    find_gap,
    find_position,
    find_relation,
    pick,
    pick_weighted,
)
from tbnets.scenes.words import (
    BACKGROUND_WORDS,
    COLOUR_WORDS,
    NOUNS,
    NUMBERS,
    RELATION_WORDS,
    SIZE_WORDS,
    TEXTURE_WORDS,
    node,
    plural_of,
    word,
)

BACKGROUND_CHAIN = 10
FIRST_GROUP_CHAIN = 11

# "beside" and "next to" need a neighbour: the free space as a part of the
# image's width.
NEAR = 0.25


@dataclasses.dataclass(frozen=True)
class Group:
    """Objects that a plural phrase speaks of.

    Args:
        members: Tuple of object rows, from left to right.
        shape: The shape they share, or "" when none is said.
        colour: The colour they share, or "" when none is said.
    """

    members: tuple
    shape: str = ""
    colour: str = ""


class Speaker:
    """Says true things about one scene in varying words.

    Args:
        scene: `scene_layout.Scene`.
        boxes: Int array `[num_objects, 4]`, half open, in pixels.
        rng: `numpy.random.Generator`.
    """

    def __init__(self, scene, boxes, rng):
        self.scene = scene
        self.boxes = [tuple(int(edge) for edge in box) for box in boxes]
        self.groups = {}
        self._rng = rng
        self.begin(telling=True)

    def begin(self, telling):
        """Starts a caption; a telling one seldom leaves out a colour."""
        self.claims = []
        self._telling = telling

    def chance(self, probability):
        """Returns True as often as `probability` says."""
        return self._rng.random() < probability

    def choose(self, weights):
        """Returns one key of the dict `weights`, as likely as its weight."""
        return pick_weighted(self._rng, weights)

    def claim(self, kind, objects, **said):
        """Notes what the caption says of the objects in these rows."""
        self.claims.append({"kind": kind, "objects": list(objects), **said})

    # What there is to say.

    def pick_objects(self, count):
        """Returns `count` rows in any order, or all when there are fewer."""
        order = self._rng.permutation(len(self.boxes))
        return tuple(int(row) for row in order[:count])

    def pick_related(self, relations=tuple(RELATION_WORDS)):
        """Returns the rows of two objects in one of these relations."""
        return self._pick(
            pair
            for pair in self._rows(2)
            if self._relation_of(*pair) in relations
        )

    def pick_twice_related(self):
        """Returns a row and two others that it stands to differently."""
        return self._pick(
            (row, one, other)
            for row, one, other in self._rows(3)
            if self._relation_of(row, one)
            and self._relation_of(row, other)
            not in (None, self._relation_of(row, one))
        )

    def pick_near(self):
        """Returns the rows of two neighbours that stand side by side."""
        return self._pick(
            pair
            for pair in self._rows(2)
            if self._relation_of(*pair) in ("left", "right")
            and self._near(*pair)
        )

    def pick_placed(self):
        """Returns a row whose place in the image has a name."""
        size = self.scene.image_size
        rows = range(len(self.boxes))
        return self._pick(r for r in rows if find_position(self.boxes[r], size))

    def pick_group(self, shared, num_objects=None):
        """Returns a `Group` of all objects that share a shape or a colour."""
        return self._pick(
            group
            for group in self._find_groups()
            if getattr(group, shared)
            and num_objects in (None, len(group.members))
        )

    def pick_group_relation(self):
        """Returns a `Group` and a row that all its members stand alike to."""
        rows = range(len(self.boxes))
        return self._pick(
            (group, row)
            for group in self._find_groups()
            for row in rows
            if row not in group.members
            and self._relation_of(group.members[0], row)
            and len({self._relation_of(one, row) for one in group.members}) == 1
        )

    def pick_between(self):
        """Returns three rows: the first stands between the other two."""
        stands = ("left", "right"), ("above", "below")
        return self._pick(
            (row, one, other)
            for row, one, other in self._rows(3)
            if (self._relation_of(one, row), self._relation_of(other, row))
            in stands
        )

    def find_group(self, members):
        """Returns the `Group` of exactly these rows, or None."""
        groups = self._find_groups()
        return next((g for g in groups if set(g.members) == set(members)), None)

    def everything(self):
        """Returns the `Group` of all objects."""
        return Group(self._from_the_left(range(len(self.boxes))))

    # How it is said.

    def noun_phrases(self, rows, colour=None, shape=None):
        """Returns one noun phrase for each row, no two of them alike.

        Args:
            rows: Object rows.
            colour: Probability that a colour is said; None: as usual.
            shape: Probability that a shape is said; None: as usual.
        """
        if colour is None:
            colour = 0.96 if self._telling else 0.7
        if shape is None:
            shape = 0.97 if self._telling else 0.9
        said = [self._attributes(row, colour, shape) for row in rows]
        keys = [(one["shape"], one["colour"]) for one in said]
        shapes = [shape for shape, colour in keys if not colour]
        if len(set(keys)) < len(keys) or any(
            shape in shapes for shape, colour in keys if colour
        ):
            said = [self._attributes(row, 1.0, 1.0) for row in rows]
        phrases = []
        for row, one in zip(rows, said):
            one = {name: value for name, value in one.items() if value}
            self.claim("object", (row,), **one)
            words = [*self._adjectives(one), *self._noun(one.get("shape", ""))]
            vowel = words[0].text[0] in "aeiou"
            article = word("DT", "an" if vowel else "a")
            phrases.append(node("NP", article, *words, chain=row + 1))
        return phrases

    def one_of(self, row):
        """Returns "one red" for a member of a group just mentioned."""
        colour = self.scene.objects[row].colour
        self.claim("object", (row,), colour=colour)
        adjective = word("JJ", self.choose(COLOUR_WORDS[colour]))
        return node("NP", word("CD", "one"), adjective, chain=row + 1)

    def plural(self, group):
        """Returns "two red shapes" and opens the group's chain."""
        members = group.members
        said = {"shape": group.shape, "colour": group.colour}
        said = {name: value for name, value in said.items() if value}
        self.claim("count", members, **said)
        chain = FIRST_GROUP_CHAIN + len(self.groups)
        chain = self.groups.setdefault(tuple(sorted(members)), chain)
        number = word("CD", NUMBERS[len(members)])
        *rest, noun = self._noun(group.shape)
        noun = word("NNS", plural_of(noun.text))
        return node(
            "NP", number, *self._adjectives(said), *rest, noun, chain=chain
        )

    def relation(self, rows, landmark):
        """Returns how the objects in `rows[:-1]` stand to `rows[-1]`.

        Args:
            rows: Object rows; all but the last stand alike to the last.
            landmark: Tree of the noun phrase for the last.
        """
        name = self._relation_of(rows[0], rows[-1])
        ways = dict(RELATION_WORDS[name])
        if not all(self._near(row, rows[-1]) for row in rows[:-1]):
            ways.pop("beside", None)
        way = self.choose(ways)
        if way == "beside":
            return self.nearness(rows, landmark)
        for row in rows[:-1]:
            self.claim("relation", (row, rows[-1]), relation=name)
        if not way.endswith("_of"):
            return node("PP", word("IN", way), landmark)
        of_landmark = node("PP", word("IN", "of"), landmark)
        if way.startswith("to_"):
            side = node("NP", word("DT", "the"), word("NN", name), chain=0)
            return node("PP", word("TO", "to"), node("NP", side, of_landmark))
        return node("ADVP", word("RB", name), of_landmark)

    def nearness(self, rows, landmark):
        """Returns "next to" or "beside" and the landmark."""
        for row in rows[:-1]:
            self.claim("relation", (row, rows[-1]), relation="beside")
        if self.chance(0.5) or landmark.chain == 0:
            to_landmark = node("PP", word("TO", "to"), landmark)
            return node("ADJP", word("JJ", "next"), to_landmark)
        return node("PP", word("IN", "beside"), landmark)

    def position(self, row):
        """Returns "in the top left corner" or the like for an object."""
        name = find_position(self.boxes[row], self.scene.image_size)
        self.claim("position", (row,), position=name)
        names = name.split()
        if len(names) == 2:
            where = "in"
            words = [*(word("JJ", one) for one in names), word("NN", "corner")]
        elif name in ("left", "right"):
            where, side = "on", self.choose({"": 0.6, "side": 0.4})
            words = [word("JJ" if side else "NN", name)]
            words += [word("NN", side)] if side else []
        elif name == "centre":
            middle = self.choose({"middle": 0.7, "centre": 0.3})
            where, words = "in", [word("NN", middle)]
        else:
            where, words = "at", [word("NN", name)]
        place = node("NP", word("DT", "the"), *words, chain=0)
        return node("PP", word("IN", where), place)

    def on_background(self):
        """Returns "on a grey background"."""
        name = self.scene.background
        self.claim("background", (), colour=name)
        adjective = word("JJ", self.choose(BACKGROUND_WORDS[name]))
        noun = word("NN", self.choose({"background": 0.8, "surface": 0.2}))
        phrase = node(
            "NP", word("DT", "a"), adjective, noun, chain=BACKGROUND_CHAIN
        )
        preposition = self.choose({"on": 0.75, "against": 0.25})
        return node("PP", word("IN", preposition), phrase)

    def joined(self, phrases):
        """Returns "a ring , a star and a box" as one noun phrase."""
        *others, last = phrases
        parts = [part for one in others for part in (word(",", ","), one)]
        ending = [word("CC", "and"), last] if others else [last]
        return node("NP", *parts[1:], *ending)

    def _pick(self, found):
        found = list(found)
        return pick(self._rng, found) if found else None

    def _rows(self, count):
        """Returns so many rows in every order there is."""
        return itertools.permutations(range(len(self.boxes)), count)

    def _relation_of(self, row, other):
        return find_relation(self.boxes[row], self.boxes[other])

    def _near(self, row, other):
        gap = find_gap(self.boxes[row], self.boxes[other])
        return gap <= NEAR * self.scene.image_size

    def _from_the_left(self, rows):
        return tuple(sorted(rows, key=lambda row: self.boxes[row][0]))

    def _find_groups(self):
        """Returns a `Group` for each shape or colour that repeats."""
        groups = []
        for name in ("shape", "colour"):
            values = [getattr(one, name) for one in self.scene.objects]
            for value in sorted(set(values)):
                rows = [row for row, one in enumerate(values) if one == value]
                members = self._from_the_left(rows)
                groups += [Group(members, **{name: value})] * (len(rows) > 1)
        return groups

    def _attributes(self, row, colour, shape):
        """Returns what is said of an object, "" for what is left out."""
        one = self.scene.objects[row]
        texture = 0.08 if one.texture == "plain" else 0.55
        return {
            "shape": one.shape if self.chance(shape) else "",
            "colour": one.colour if self.chance(colour) else "",
            "size": one.size if self.chance(0.4) else "",
            "texture": one.texture if self.chance(texture) else "",
        }

    def _adjectives(self, said):
        """Returns adjectives in their usual order: size, texture, colour."""
        names = ["size", "texture", "colour"]
        if said.get("texture") not in (None, "plain") and self.chance(0.35):
            names = ["size", "colour", "texture"]
        lexicons = {
            "size": SIZE_WORDS,
            "texture": TEXTURE_WORDS,
            "colour": COLOUR_WORDS,
        }
        ways = [lexicons[name][said[name]] for name in names if name in said]
        return [word("JJ", self.choose(one)) for one in ways]

    def _noun(self, shape):
        noun = self.choose(NOUNS[shape])
        return [word("NN", part) for part in noun.split()]
