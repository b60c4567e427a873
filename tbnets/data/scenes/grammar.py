"""Describes scenes in captions, which are generated as constituency trees.

Each rule builds a caption from the phrases of a `Speaker`, and returns a tree
in Penn Treebank style. If no caption of the rule is true for the scene, it
raises `NothingToSay`. If a phrase names an object, its label ends with the
object's coreference chain, as in `(NP#2 (DT a) (NN ring))`.

Chains are numbered within a scene. Chain 0 is for phrases that name no object
("there", "each other"). Chains 1 and up are for the objects in order,
`BACKGROUND_CHAIN` is for the background, and chains `FIRST_GROUP_CHAIN` and up
are for plural phrases.
"""

import dataclasses
import itertools
import re
from typing import NamedTuple

from tbnets.data.scenes import layout
from tbnets.data.scenes.layout import pick_weighted

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
        self.relations = {
            pair: layout.find_relation(*(self.boxes[row] for row in pair))
            for pair in self.rows(2)
        }
        self.positions = [
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
        return self.pick(
            pair
            for pair, relation in self.relations.items()
            if relation in relations and (self._near(*pair) or not near)
        )

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
        name = self.relations[rows[0], rows[-1]]
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
        name = self.positions[row]
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

    def pick(self, choices):
        """Samples one of the choices, uniformly."""
        choices = list(choices)
        if not choices:
            raise NothingToSay
        return layout.pick(self._rng, choices)

    def rows(self, count):
        """Returns all ordered choices of `count` objects, as tuples of rows."""
        return itertools.permutations(range(len(self.boxes)), count)

    def _near(self, row, other_row):
        gap = layout.find_gap(self.boxes[row], self.boxes[other_row])
        return gap <= NEAR * self.scene.image_size

    def from_the_left(self, rows):
        """Returns the rows in the order of their objects' left edges."""
        return tuple(sorted(rows, key=lambda row: self.boxes[row][0]))

    def groups_of(self, *names):
        """Returns the `Group`s of objects with one of the named attributes."""
        groups = []
        for name in names or ("shape", "colour"):
            values = [getattr(item, name) for item in self.scene.objects]
            for value in sorted(set(values)):
                rows = [row for row, has in enumerate(values) if has == value]
                group = Group(self.from_the_left(rows), {name: value})
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


NUM_CAPTIONS = {4: 0.2, 5: 0.6, 6: 0.2}
# A phrase with a chain contains only words.
_PIECE = re.compile(r"\(NP#(\d+) (?:\(\S+ [^() ]+\) ?)+\)|\(\S+ [^() ]+\)")
_WORD = re.compile(r" ([^() ]+)\)")


@dataclasses.dataclass(frozen=True)
class SceneCaption:
    """A caption with its gold tree, its claims (dicts) and its grammar rule.

    `marked` is the tree with coreference chains.
    """

    marked: str
    claims: tuple
    rule: str

    @property
    def tree(self):
        """The tree without coreference chains."""
        return re.sub(r"#\d+", "", self.marked)

    @property
    def pieces(self):
        """Yields (chain, text) per phrase, and (None, word) for other words."""
        for piece in _PIECE.finditer(self.marked):
            text = " ".join(_WORD.findall(piece[0]))
            yield piece[1] and int(piece[1]), text

    @property
    def raw(self):
        """The caption with a space before its full stop, as in Flickr30K."""
        return " ".join(_WORD.findall(self.marked))

    @property
    def tokens(self):
        """The lower-case words without punctuation, as in Karpathy's json."""
        return re.findall("[a-z]+", self.raw.lower())


def describe_scene(scene, boxes, rng):
    """Generates 4 to 6 different captions of a scene.

    At least three captions list objects or describe their relations, mostly
    with colours. `boxes` is int `[num_objects, 4]`, half-open, in pixels.

    Returns:
        A list of `SceneCaption`s, and a dict that maps the object rows of
        each plural phrase to the coreference chain of that phrase.
    """
    speaker = Speaker(scene, boxes, rng)
    num_captions = pick_weighted(rng, NUM_CAPTIONS)
    captions = []
    while len(captions) < num_captions:
        telling = len(captions) < 3
        rule = pick_weighted(rng, TELLING_RULES if telling else ALL_RULES)
        speaker.begin(telling)
        try:
            tree = rule(speaker)
        except NothingToSay:
            continue
        tree = _WORD.sub(lambda word: word[0].title(), tree, count=1)
        if rng.random() < 0.9:
            tree = f"{tree[:-1]} (. .))"
        caption = SceneCaption(tree, tuple(speaker.claims), rule.__name__)
        if not _repeats(caption, captions):
            captions.append(caption)
    order = rng.permutation(len(captions))
    return [captions[row] for row in order], speaker.groups


def _repeats(caption, captions):
    # Relations may be repeated in different words.
    once = caption.rule not in {rule.__name__ for rule in TELLING_RULES}

    def objects(caption):
        return caption.rule, [claim["objects"] for claim in caption.claims]

    return any(
        caption.tokens == earlier.tokens
        or (once and objects(caption) == objects(earlier))
        for earlier in captions
    )


def _joined(phrases):
    """Joins noun phrases, as in "a ring , a star and a box"."""
    return f"(NP {' (, ,) '.join(phrases[:-1])} (CC and) {phrases[-1]})"


def relation_fragment(speaker):
    """Builds captions like "A red circle above a blue star"."""
    return "(NP {} {})".format(*speaker.related())


def relation_clause(speaker):
    """Builds captions like "A red circle is above a blue star"."""
    subject, where = speaker.related()
    verb = speaker.choose({"is": 0.75, "sits": 0.25})
    if speaker.claims[-1]["relation"] == "around":
        verb = "is"
    return f"(S {subject} (VP (VBZ {verb}) {where}))"


def existential(speaker):
    """Builds captions like "There is a red circle above a blue star"."""
    related = "(NP {} {})".format(*speaker.related())
    return f"(S (NP#0 (EX there)) (VP (VBZ is) {related}))"


def relative_clause(speaker):
    """Builds captions like "A red circle that is above a blue star"."""
    subject, where = speaker.related()
    clause = f"(SBAR (WHNP (WDT that)) (S (VP (VBZ is) {where})))"
    return f"(NP {subject} {clause})"


def scene_first(speaker):
    """Builds captions like "On a grey surface , a ring is above a star"."""
    subject, where = speaker.related()
    background = speaker.on_background()
    return f"(S {background} (, ,) {subject} (VP (VBZ is) {where}))"


def with_companion(speaker):
    """Builds captions like "A red circle with a blue star below it"."""
    pair = speaker.pick_related(("left", "right", "above", "below", "inside"))
    subject, companion = speaker.noun_phrases(pair[::-1])
    where = speaker.relation(pair, "(NP#0 (PRP it))")
    return f"(NP {subject} (PP (IN with) (NP {companion} {where})))"


def two_relations(speaker):
    """Builds captions like "A ring above a star and to the left of a heart"."""
    to = speaker.relations
    rows = speaker.pick(
        (row, first, second)
        for row, first, second in speaker.rows(3)
        if to[row, first] and to[row, second] not in (None, to[row, first])
    )
    subject, *landmarks = speaker.noun_phrases(rows)
    first, last = (
        speaker.relation((rows[0], row), landmark)
        for row, landmark in zip(rows[1:], landmarks)
    )
    return f"(NP {subject} (PP {first} (CC and) {last}))"


def listing(speaker):
    """Builds captions like "A red circle , a blue star and a green ring"."""
    objects = speaker.pick_objects(speaker.choose({2: 0.6, 3: 0.4}))
    several = _joined(speaker.noun_phrases(objects))
    if speaker.chance(0.35):
        return f"(NP {several} {speaker.on_background()})"
    return several


def side_by_side(speaker):
    """Builds captions like "A red circle and a star are next to each other"."""
    pair = speaker.pick_related(("left", "right"), near=True)
    several = _joined(speaker.noun_phrases(pair))
    where = speaker.nearness(pair, "(NP#0 (DT each) (JJ other))")
    return f"(S {several} (VP (VBP are) {where}))"


def _pick_pair(speaker, shared):
    pairs = (x for x in speaker.groups_of(shared) if len(x.members) == 2)
    return speaker.pick(pairs)


def group_members(speaker):
    """Builds captions like "Two circles , one red and one blue"."""
    group = _pick_pair(speaker, "shape")
    plural = speaker.plural(group)
    members = _joined([speaker.one_of(row) for row in group.members])
    return f"(NP {plural} (, ,) {members})"


def group_kinds(speaker):
    """Builds captions like "Two red shapes , a circle and a star"."""
    group = _pick_pair(speaker, "colour")
    plural = speaker.plural(group)
    phrases = speaker.noun_phrases(group.members, shape=1.0, colour=0.0)
    return f"(NP {plural} (, ,) {_joined(phrases)})"


def group_relation(speaker):
    """Builds captions like "Two circles are above a blue star"."""
    to, choices = speaker.relations, []
    for group in speaker.groups_of():
        for row in range(len(speaker.boxes)):
            shared = {to.get((member, row)) for member in group.members}
            if len(shared) == 1 and None not in shared:
                choices.append((group, row))
    group, landmark = speaker.pick(choices)
    plural = speaker.plural(group)
    (phrase,) = speaker.noun_phrases((landmark,))
    where = speaker.relation((*group.members, landmark), phrase)
    if speaker.chance(0.5):
        return f"(NP {plural} {where})"
    return f"(S {plural} (VP (VBP are) {where}))"


def between(speaker):
    """Builds captions like "A blue star between two circles"."""
    sides, to = (("left", "right"), ("above", "below")), speaker.relations
    triple = speaker.pick(
        (row, first, second)
        for row, first, second in speaker.rows(3)
        if (to[first, row], to[second, row]) in sides
    )
    groups = [
        group
        for group in speaker.groups_of()
        if {*group.members} == {*triple[1:]}
    ]
    if groups and speaker.chance(0.7):
        (subject,) = speaker.noun_phrases(triple[:1])
        ends = speaker.plural(groups[0])
    else:
        subject, *ends = speaker.noun_phrases(triple)
        ends = _joined(ends)
    speaker.claim("between", triple)
    return f"(NP {subject} (PP (IN between) {ends}))"


def single_placed(speaker):
    """Builds captions like "A red circle in the top left corner"."""
    row = speaker.pick(r for r, x in enumerate(speaker.positions) if x)
    (subject,) = speaker.noun_phrases((row,))
    where = speaker.position(row)
    if speaker.chance(0.6):
        return f"(NP {subject} {where})"
    return f"(S {subject} (VP (VBZ is) {where}))"


def single_on_background(speaker):
    """Builds captions like "A red circle on a grey background"."""
    (subject,) = speaker.noun_phrases(speaker.pick_objects(1))
    return f"(NP {subject} {speaker.on_background()})"


def count_of_all(speaker):
    """Builds captions like "Three shapes on a grey background"."""
    rows = speaker.from_the_left(range(len(speaker.boxes)))
    plural = speaker.plural(Group(rows, {}))
    return f"(NP {plural} {speaker.on_background()})"


TELLING_RULES = {
    relation_fragment: 0.22,
    relation_clause: 0.16,
    existential: 0.09,
    relative_clause: 0.06,
    scene_first: 0.07,
    with_companion: 0.1,
    two_relations: 0.08,
    listing: 0.16,
    side_by_side: 0.06,
}
ALL_RULES = {
    **{rule: 0.3 * weight for rule, weight in TELLING_RULES.items()},
    group_members: 0.14,
    group_kinds: 0.1,
    group_relation: 0.3,
    between: 0.6,
    single_placed: 0.16,
    single_on_background: 0.1,
    count_of_all: 0.03,
}
