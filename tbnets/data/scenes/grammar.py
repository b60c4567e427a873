"""Generates the captions of a scene as constituency trees.

Each rule builds a caption from the phrases of a `phrases.Speaker`, and returns
a tree in Penn Treebank style. If no caption of the rule is true for the scene,
it raises `NothingToSay`.
"""

import dataclasses
import re

from tbnets.data.scenes.layout import pick_weighted
from tbnets.data.scenes.phrases import NothingToSay, Speaker

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

    @property
    def remark(self):
        """The rule and the claimed objects, used to find repeated captions."""
        return self.rule, [claim["objects"] for claim in self.claims]


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
    return any(
        caption.tokens == earlier.tokens
        or (once and caption.remark == earlier.remark)
        for earlier in captions
    )


def relation_fragment(speaker):
    """Builds captions like "A red circle above a blue star"."""
    subject, where = speaker.related()
    return f"(NP {subject} {where})"


def relation_clause(speaker):
    """Builds captions like "A red circle is above a blue star"."""
    subject, where = speaker.related()
    verb = speaker.choose({"is": 0.75, "sits": 0.25})
    if speaker.claims[-1]["relation"] == "around":
        verb = "is"
    return f"(S {subject} (VP (VBZ {verb}) {where}))"


def existential(speaker):
    """Builds captions like "There is a red circle above a blue star"."""
    subject, where = speaker.related()
    verb = f"(VP (VBZ is) (NP {subject} {where}))"
    return f"(S (NP#0 (EX there)) {verb})"


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
    row, first_row, second_row = speaker.pick_twice_related()
    subject, *landmarks = speaker.noun_phrases((row, first_row, second_row))
    first = speaker.relation((row, first_row), landmarks[0])
    last = speaker.relation((row, second_row), landmarks[1])
    return f"(NP {subject} (PP {first} (CC and) {last}))"


def listing(speaker):
    """Builds captions like "A red circle , a blue star and a green ring"."""
    objects = speaker.pick_objects(speaker.choose({2: 0.6, 3: 0.4}))
    several = speaker.joined(speaker.noun_phrases(objects))
    if speaker.chance(0.35):
        return f"(NP {several} {speaker.on_background()})"
    return several


def side_by_side(speaker):
    """Builds captions like "A red circle and a star are next to each other"."""
    pair = speaker.pick_related(("left", "right"), near=True)
    several = speaker.joined(speaker.noun_phrases(pair))
    where = speaker.nearness(pair, "(NP#0 (DT each) (JJ other))")
    return f"(S {several} (VP (VBP are) {where}))"


def group_members(speaker):
    """Builds captions like "Two circles , one red and one blue"."""
    group = speaker.pick_two("shape")
    plural = speaker.plural(group)
    members = speaker.joined([speaker.one_of(row) for row in group.members])
    return f"(NP {plural} (, ,) {members})"


def group_kinds(speaker):
    """Builds captions like "Two red shapes , a circle and a star"."""
    group = speaker.pick_two("colour")
    plural = speaker.plural(group)
    phrases = speaker.noun_phrases(group.members, shape=1.0, colour=0.0)
    return f"(NP {plural} (, ,) {speaker.joined(phrases)})"


def group_relation(speaker):
    """Builds captions like "Two circles are above a blue star"."""
    group, landmark = speaker.pick_group_relation()
    plural = speaker.plural(group)
    (phrase,) = speaker.noun_phrases((landmark,))
    where = speaker.relation((*group.members, landmark), phrase)
    if speaker.chance(0.5):
        return f"(NP {plural} {where})"
    return f"(S {plural} (VP (VBP are) {where}))"


def between(speaker):
    """Builds captions like "A blue star between two circles"."""
    triple = speaker.pick_between()
    group = speaker.find_group(triple[1:])
    if group and speaker.chance(0.7):
        (subject,) = speaker.noun_phrases(triple[:1])
        ends = speaker.plural(group)
    else:
        subject, *ends = speaker.noun_phrases(triple)
        ends = speaker.joined(ends)
    speaker.claim("between", triple)
    return f"(NP {subject} (PP (IN between) {ends}))"


def single_placed(speaker):
    """Builds captions like "A red circle in the top left corner"."""
    row = speaker.pick_placed()
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
    plural = speaker.plural(speaker.everything())
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
