"""Builds the phrases that describe a scene.

Phrases are trees in bracket notation. If a phrase names an object, its label
ends with the object's coreference chain, as in `(NP#2 (DT a) (NN ring))`.

Chains are numbered within a scene. Chain 0 is for phrases that name no object
("there", "each other"). Chains 1 and up are for the objects in order,
`BACKGROUND_CHAIN` is for the background, and chains `FIRST_GROUP_CHAIN` and up
are for plural phrases.
"""

import itertools
from typing import NamedTuple

from tbnets.data.scenes import layout

WORDS = {
    "shape": {
        "circle": {"circle": 0.65, "disc": 0.35},
        "square": {"square": 0.65, "box": 0.35},
        "cross": {"cross": 0.7, "plus sign": 0.3},
        "ring": {"ring": 0.7, "hoop": 0.3},
        "diamond": {"diamond": 0.75, "rhombus": 0.25},
        "": {"shape": 0.7, "object": 0.3},
    },
    "colour": {
        "red": {"red": 0.7, "crimson": 0.15, "scarlet": 0.15},
        "green": {"green": 0.75, "emerald": 0.25},
        "blue": {"blue": 0.75, "cobalt": 0.25},
        "yellow": {"yellow": 0.75, "golden": 0.25},
        "purple": {"purple": 0.7, "violet": 0.3},
    },
    "size": {
        "small": {"small": 0.6, "little": 0.25, "tiny": 0.15},
        "large": {"large": 0.55, "big": 0.45},
    },
    "texture": {
        "plain": {"plain": 0.6, "solid": 0.4},
        "dotted": {"dotted": 0.55, "spotted": 0.45},
        "checked": {"checked": 0.5, "checkered": 0.5},
    },
    "background": {
        "grey": {"grey": 0.6, "gray": 0.4},
        "beige": {"beige": 0.65, "tan": 0.35},
        "pink": {"pink": 0.7, "rosy": 0.3},
        "turquoise": {"turquoise": 0.65, "teal": 0.35},
    },
    # `Speaker.relation` builds the trees of names with "_".
    "relation": {
        "left": {"to_left_of": 0.5, "left_of": 0.3, "beside": 0.2},
        "right": {"to_right_of": 0.5, "right_of": 0.3, "beside": 0.2},
        "above": {"above": 0.75, "over": 0.25},
        "below": {"below": 0.5, "under": 0.25, "beneath": 0.25},
        "inside": {"inside": 0.6, "within": 0.4},
        "around": {"around": 1.0},
    },
}
"""Maps values to words with weights. A missing value is itself the word."""
PLURALS = {"cross": "crosses", "box": "boxes", "rhombus": "rhombuses"}
NUMBERS = {2: "two", 3: "three", 4: "four"}


BACKGROUND_CHAIN = 10
FIRST_GROUP_CHAIN = 11

# Maximum distance for "beside" and "next to", as a fraction of the image width.
NEAR = 0.25


class NothingToSay(LookupError):
    """Raised if no phrase of a rule is true for a scene."""


class Group(NamedTuple):
    """Objects that a plural phrase names.

    `members` contains their rows, from left to right. `attributes` contains the
    shape or colour that the phrase names, or is empty.
    """

    members: tuple
    attributes: dict


def _noun_phrase(chain, *words):
    leaves = " ".join(f"({label} {word})" for label, word in words)
    return f"(NP#{chain} {leaves})"


class Speaker:
    """Describes a scene correctly in varying words, and records each claim.

    `boxes` is int `[num_objects, 4]`, half-open, in pixels. The `pick_...`
    methods raise `NothingToSay` if no object qualifies.
    """

    def __init__(self, scene, boxes, rng):
        self.scene = scene
        self.boxes = [tuple(int(edge) for edge in box) for box in boxes]
        self.groups = {}
        self._rng = rng
        self._relations = {
            pair: layout.find_relation(*(self.boxes[row] for row in pair))
            for pair in self._rows(2)
        }
        self._positions = [
            layout.find_position(box, scene.image_size) for box in self.boxes
        ]
        self.begin(telling=True)

    def begin(self, telling):
        """Starts a caption. A `telling` caption rarely omits a colour."""
        self.claims = []
        self._telling = telling

    def chance(self, probability):
        """Returns True with the given probability."""
        return self._rng.random() < probability

    def choose(self, weights):
        """Samples a key of `weights` in proportion to its weight."""
        return layout.pick_weighted(self._rng, weights)

    def claim(self, kind, objects, **attributes):
        """Records a claim that the caption makes about objects."""
        claim = {"kind": kind, "objects": list(objects), **attributes}
        self.claims.append(claim)

    def pick_objects(self, count):
        """Returns the rows of at most `count` random objects."""
        return tuple(self._rng.permutation(len(self.boxes))[:count].tolist())

    def pick_related(self, relations=tuple(WORDS["relation"]), near=False):
        """Returns the rows of two objects whose relation is in `relations`.

        If `near` is true, the objects must be near each other.
        """
        return self._pick(
            pair
            for pair, relation in self._relations.items()
            if relation in relations and (self._near(*pair) or not near)
        )

    def pick_twice_related(self):
        """Returns three rows: an object with different relations to two."""
        to = self._relations
        return self._pick(
            (row, first, second)
            for row, first, second in self._rows(3)
            if to[row, first] and to[row, second] not in (None, to[row, first])
        )

    def pick_placed(self):
        """Returns the row of an object whose position has a name."""
        return self._pick(r for r, name in enumerate(self._positions) if name)

    def pick_two(self, shared):
        """Returns a `Group` of two objects that share a shape or colour."""
        return self._pick(
            group
            for group in self._find_groups()
            if len(group.members) == 2 and shared in group.attributes
        )

    def pick_group_relation(self):
        """Returns a `Group` whose objects share a relation to another row."""
        choices = []
        for group in self._find_groups():
            for row in range(len(self.boxes)):
                stand = {self._relations.get((m, row)) for m in group.members}
                if len(stand) == 1 and None not in stand:
                    choices.append((group, row))
        return self._pick(choices)

    def pick_between(self):
        """Returns three rows. The first object is between the other two."""
        stands = ("left", "right"), ("above", "below")
        to = self._relations
        return self._pick(
            (row, first, second)
            for row, first, second in self._rows(3)
            if (to[first, row], to[second, row]) in stands
        )

    def find_group(self, members):
        """Returns the `Group` with exactly the rows in `members`, or None."""
        groups = self._find_groups()
        return next((g for g in groups if set(g.members) == set(members)), None)

    def everything(self):
        """Returns all objects as a `Group`."""
        return Group(self._from_the_left(range(len(self.boxes))), {})

    def noun_phrases(self, rows, shape=None, colour=None):
        """Returns a different noun phrase for each object row.

        `shape` and `colour` are the probabilities of naming these attributes;
        None selects the defaults.
        """
        if shape is None:
            shape, colour = (0.97, 0.96) if self._telling else (0.9, 0.7)
        attributes = [self._attributes(row, shape, colour) for row in rows]
        keys = [(x.get("shape"), x.get("colour")) for x in attributes]
        plain = {shape for shape, colour in keys if not colour}
        coloured = {shape for shape, colour in keys if colour}
        if len(set(keys)) < len(keys) or plain & coloured:
            attributes = [self._attributes(row, 1.0, 1.0) for row in rows]
        phrases = []
        for row, values in zip(rows, attributes):
            self.claim("object", (row,), **values)
            words = [*self._adjectives(values), *self._noun(values)]
            article = "an" if words[0][1][0] in "aeiou" else "a"
            phrases.append(_noun_phrase(row + 1, ("DT", article), *words))
        return phrases

    def one_of(self, row):
        """Returns a phrase such as "one red" for an object of a group."""
        attributes = {"colour": self.scene.objects[row].colour}
        self.claim("object", (row,), **attributes)
        words = self._adjectives(attributes)
        return _noun_phrase(row + 1, ("CD", "one"), *words)

    def plural(self, group):
        """Returns a phrase for a group, such as "two red shapes"."""
        members, attributes = group
        self.claim("count", members, **attributes)
        chain = FIRST_GROUP_CHAIN + len(self.groups)
        chain = self.groups.setdefault(tuple(sorted(members)), chain)
        number = "CD", NUMBERS[len(members)]
        *modifiers, (_, noun) = self._noun(attributes)
        noun = "NNS", PLURALS.get(noun, noun + "s")
        words = *self._adjectives(attributes), *modifiers, noun
        return _noun_phrase(chain, number, *words)

    def related(self):
        """Returns phrases for an object and its relation to another object."""
        pair = self.pick_related()
        subject, landmark = self.noun_phrases(pair)
        return subject, self.relation(pair, landmark)

    def relation(self, rows, landmark):
        """Returns a phrase for the relation of `rows[:-1]` to `rows[-1]`.

        All objects in `rows[:-1]` must have this relation. `landmark` is the
        noun phrase of the last object.
        """
        name = self._relations[rows[0], rows[-1]]
        ways = dict(WORDS["relation"][name])
        if not all(self._near(row, rows[-1]) for row in rows[:-1]):
            ways.pop("beside", None)
        way = self.choose(ways)
        if way == "beside":
            return self.nearness(rows, landmark)
        for row in rows[:-1]:
            self.claim("relation", (row, rows[-1]), relation=name)
        if not way.endswith("_of"):
            return f"(PP (IN {way}) {landmark})"
        of_landmark = f"(PP (IN of) {landmark})"
        if way.startswith("to_"):
            side = f"(NP#0 (DT the) (NN {name}))"
            return f"(PP (TO to) (NP {side} {of_landmark}))"
        return f"(ADVP (RB {name}) {of_landmark})"

    def nearness(self, rows, landmark):
        """Returns "next to" or "beside", followed by the landmark."""
        for row in rows[:-1]:
            self.claim("relation", (row, rows[-1]), relation="beside")
        if self.chance(0.5) or landmark.startswith("(NP#0 "):
            return f"(ADJP (JJ next) (PP (TO to) {landmark}))"
        return f"(PP (IN beside) {landmark})"

    def position(self, row):
        """Returns a phrase such as "in the top left corner" for an object."""
        name = self._positions[row]
        self.claim("position", (row,), position=name)
        where, *adjectives, noun = "at", *name.split()
        if adjectives:
            where, adjectives, noun = "in", [*adjectives, noun], "corner"
        elif name in ("left", "right"):
            where = "on"
            if self.choose({"noun": 0.6, "side": 0.4}) == "side":
                adjectives, noun = [name], "side"
        elif name == "centre":
            where, noun = "in", self.choose({"middle": 0.7, "centre": 0.3})
        words = [("JJ", adjective) for adjective in adjectives]
        place = _noun_phrase(0, ("DT", "the"), *words, ("NN", noun))
        return f"(PP (IN {where}) {place})"

    def on_background(self):
        """Returns a phrase such as "on a grey background"."""
        name = self.scene.background
        self.claim("background", (), colour=name)
        adjective = self._word("background", name)
        noun = self.choose({"background": 0.8, "surface": 0.2})
        preposition = self.choose({"on": 0.75, "against": 0.25})
        words = f"(DT a) (JJ {adjective}) (NN {noun})"
        return f"(PP (IN {preposition}) (NP#{BACKGROUND_CHAIN} {words}))"

    def joined(self, phrases):
        """Joins noun phrases, as in "a ring , a star and a box"."""
        return f"(NP {' (, ,) '.join(phrases[:-1])} (CC and) {phrases[-1]})"

    def _pick(self, choices):
        choices = list(choices)
        if not choices:
            raise NothingToSay
        return layout.pick(self._rng, choices)

    def _rows(self, count):
        return itertools.permutations(range(len(self.boxes)), count)

    def _near(self, row, other_row):
        gap = layout.find_gap(self.boxes[row], self.boxes[other_row])
        return gap <= NEAR * self.scene.image_size

    def _from_the_left(self, rows):
        return tuple(sorted(rows, key=lambda row: self.boxes[row][0]))

    def _find_groups(self):
        groups = []
        for name in ("shape", "colour"):
            values = [getattr(item, name) for item in self.scene.objects]
            for value in sorted(set(values)):
                rows = [row for row, has in enumerate(values) if has == value]
                group = Group(self._from_the_left(rows), {name: value})
                groups += [group] * (len(rows) > 1)
        return groups

    def _attributes(self, row, shape, colour):
        item = self.scene.objects[row]
        texture = 0.08 if item.texture == "plain" else 0.55
        shares = dict(shape=shape, colour=colour, size=0.4, texture=texture)
        names = [name for name, share in shares.items() if self.chance(share)]
        return {name: getattr(item, name) for name in names}

    def _adjectives(self, attributes):
        # The usual order is size, texture and colour.
        names = ["size", "texture", "colour"]
        if attributes.get("texture", "plain") != "plain" and self.chance(0.35):
            names = ["size", "colour", "texture"]
        return [
            ("JJ", self._word(name, attributes[name]))
            for name in names
            if name in attributes
        ]

    def _noun(self, attributes):
        noun = self._word("shape", attributes.get("shape", ""))
        return [("NN", part) for part in noun.split()]

    def _word(self, attribute, value):
        return self.choose(WORDS[attribute].get(value, {value: 1.0}))
