"""Captions against their scenes, by a checker that shares no code with them.

The checker reads the words and the claims of a caption and looks at the
drawn boxes and attributes only.
"""

import re

import numpy as np
import pytest

from tbnets.data.scenes import grammar, phrases
from tbnets.data.scenes.dataset import draw_scenes
from tbnets.data.scenes.layout import (
    BACKGROUNDS,
    COLOURS,
    SHAPES,
    SIZES,
    TEXTURES,
    Scene,
    SceneObject,
    SceneSettings,
)
from tbnets.data.scenes.phrases import (
    Group,
    NothingToSay,
    Speaker,
    node,
    plural_of,
    word,
)

WORDS = {
    "above": "above",
    "over": "above",
    "below": "below",
    "under": "below",
    "beneath": "below",
    "inside": "inside",
    "within": "inside",
    "around": "around",
    "beside": "beside",
    "next": "beside",
}


@pytest.fixture(scope="module")
def described():
    """180 scenes with their captions."""
    return [
        one
        for split, seed in (("train", 0), ("train", 1), ("test", 2))
        for one in draw_scenes(
            split,
            SceneSettings(60, 60, 60, image_size=64, seed=seed, clutter=0.0),
        )
    ]


def centre(box):
    return (box[0] + box[2]) / 2, (box[1] + box[3]) / 2


def is_true(relation, box, other, image_size):
    (x, y), (other_x, other_y) = centre(box), centre(other)
    across, down = other_x - x, other_y - y
    return {
        "left": box[2] <= other[0] and across >= 1.25 * abs(down),
        "right": other[2] <= box[0] and -across >= 1.25 * abs(down),
        "above": box[3] <= other[1] and down >= 1.25 * abs(across),
        "below": other[3] <= box[1] and -down >= 1.25 * abs(across),
        "inside": box[0] > other[0] and box[2] < other[2],
        "around": box[0] < other[0] and box[2] > other[2],
        "beside": (
            abs(across) >= 1.25 * abs(down)
            and max(other[0] - box[2], box[0] - other[2]) <= image_size / 4
        ),
    }[relation]


def check_claim(claim, one):
    """Checks one claim against what was drawn."""
    objects, boxes = one.scene.objects, one.boxes.tolist()
    rows, size = claim["objects"], one.scene.image_size
    said = {
        name: claim[name]
        for name in ("shape", "colour", "size", "texture")
        if name in claim
    }
    if claim["kind"] == "object":
        assert_fits(objects[rows[0]], said)
    elif claim["kind"] == "count":
        fitting = [
            row
            for row, other in enumerate(objects)
            if all(
                getattr(other, name) == value for name, value in said.items()
            )
        ]
        assert sorted(rows) == fitting
    elif claim["kind"] == "relation":
        first, second = (boxes[row] for row in rows)
        assert is_true(claim["relation"], first, second, size)
    elif claim["kind"] == "between":
        middle, first, second = (boxes[row] for row in rows)
        assert (
            is_true("left", first, middle, size)
            and is_true("right", second, middle, size)
        ) or (
            is_true("above", first, middle, size)
            and is_true("below", second, middle, size)
        )
    elif claim["kind"] == "position":
        x, y = centre(boxes[rows[0]])
        for name in claim["position"].split():
            assert {
                "left": x < 0.4 * size,
                "right": x > 0.6 * size,
                "top": y < 0.4 * size,
                "bottom": y > 0.6 * size,
                "centre": abs(x - size / 2) < size / 8,
            }[name]
    else:
        assert claim["kind"] == "background"
        assert claim["colour"] == one.scene.background


def assert_fits(drawn, said):
    for name, value in said.items():
        assert getattr(drawn, name) == value


def test_every_claim_is_true_of_its_scene(described):
    kinds = set()
    for one in described:
        for caption in one.captions:
            for claim in caption.claims:
                check_claim(claim, one)
                kinds.add(claim["kind"])
    assert kinds >= {"object", "count", "relation", "position", "background"}


def test_words_relate_the_objects_that_the_claims_relate(described):
    """Reads subject, relation and landmark off the words of a caption."""
    for one in described:
        members = {chain: rows for rows, chain in one.groups.items()}
        members.update({row + 1: (row,) for row in range(len(one.boxes))})
        for caption in one.captions:
            claimed = {
                (claim["relation"], *claim["objects"])
                for claim in caption.claims
                if claim["kind"] == "relation"
            }
            read = set()
            for name, subject, landmark in read_relations(caption):
                (landmark,) = members[landmark]
                read |= {(name, row, landmark) for row in members[subject]}
            assert read == claimed
            kinds = {claim["kind"] for claim in caption.claims}
            assert ("between" in caption.tokens) == ("between" in kinds)


def read_relations(caption):
    """Returns (relation, chain of the subject, chain of the landmark)."""
    pieces = pieces_of(caption.tree)
    shapes = [chain for _, chain in pieces if chain not in (None, 0, 10)]
    relations = []
    for place, (text, _) in enumerate(pieces):
        following = pieces[place + 1][0] if place + 1 < len(pieces) else ""
        side = text in ("the left", "the right", "left", "right")
        if side and following != "of" or not side and text not in WORDS:
            continue
        name = text.removeprefix("the ") if side else WORDS[text]
        landmark = next(
            piece for piece in pieces[place + 1 :] if piece[1] is not None
        )
        subject, other = shapes[0], landmark[1]
        if landmark[0] == "it":
            subject, other = shapes[1], shapes[0]
        if landmark[0] == "each other":
            other = shapes[1]
        relations.append((name, subject, other))
    return relations


def pieces_of(tree):
    """Returns phrases with their chains and other words with None."""
    if tree.chain is not None or not tree.children:
        text = " ".join(leaf.text.lower() for leaf in tree.leaves())
        return [(text, tree.chain)]
    return [piece for child in tree.children for piece in pieces_of(child)]


def test_phrases_name_the_object_they_point_at(described):
    """No two of a caption are alike: "a circle above a circle" says nothing."""
    for one in described:
        for caption in one.captions:
            texts = []
            for phrase in caption.tree.phrases():
                if not 1 <= phrase.chain <= len(one.boxes):
                    continue
                leaves = [
                    (leaf.label, leaf.text.lower()) for leaf in phrase.leaves()
                ]
                texts.append(leaves)
                drawn = one.scene.objects[phrase.chain - 1]
                fitting = {
                    said
                    for name in ("size", "texture", "colour")
                    for said in phrases.WORDS[name][getattr(drawn, name)]
                }
                assert {
                    text for kind, text in leaves if kind == "JJ"
                } <= fitting
            assert all(texts.count(leaves) == 1 for leaves in texts)


def test_captions_are_good_english(described):
    for one in described:
        for caption in one.captions:
            assert caption.raw[0].isupper()
            assert caption.raw.count(".") <= 1
            assert not re.search(r"\b[Aa] [aeiou]", caption.raw)
            assert not re.search(r"\b[Aa]n [^aeiou]", caption.raw)
            many = re.search(r"\b(two|three|four)\b", caption.raw.lower())
            if " are " in caption.raw:
                assert many or " and " in caption.raw.split(" are ")[0]
            if " is " in caption.raw:
                assert " and " not in caption.raw.split(" is ")[0]
                assert not re.match("(Two|Three|Four) ", caption.raw)
            nouns = [
                leaf.text
                for leaf in caption.tree.leaves()
                if leaf.label == "NNS"
            ]
            assert all(noun.endswith("s") for noun in nouns)
            assert bool(nouns) == bool(many)


def test_describe_scene_number_and_variety_of_captions(described):
    lengths = {len(one.captions) for one in described}
    assert lengths == {4, 5, 6}
    rules = set()
    for one in described:
        rules.update(caption.rule for caption in one.captions)
        pairs = [
            caption
            for caption in one.captions
            if sum(claim["kind"] == "object" for claim in caption.claims) > 1
        ]
        assert len(pairs) >= 3
    assert rules == {rule.__name__ for rule in grammar.ALL_RULES}


def describe_ten(monkeypatch, telling, rules):
    """Yields captions and groups of a scene, by these rules alone."""
    monkeypatch.setattr(grammar, "TELLING_RULES", telling)
    monkeypatch.setattr(grammar, "ALL_RULES", rules)
    speaker = three_in_a_row()
    for seed in range(10):
        yield grammar.describe_scene(
            speaker.scene, speaker.boxes, np.random.default_rng(seed)
        )


def test_describe_scene_never_says_the_same_words_twice(monkeypatch):
    """Seven words and up to six captions: chance alone would repeat some."""

    def one_word(speaker):
        text = speaker.choose({letter: 1.0 for letter in "abcdefg"})
        return node("NP", word("NN", text))

    one = {one_word: 1.0}
    for captions, _ in describe_ten(monkeypatch, one, one):
        tokens = [tuple(caption.tokens) for caption in captions]
        assert len(set(tokens)) == len(tokens)


def test_describe_scene_tells_of_a_group_once(monkeypatch):
    """Beside relations, a remark on the same objects does not come twice."""
    telling = grammar.TELLING_RULES
    rules = {grammar.relation_fragment: 1.0, grammar.group_members: 30.0}
    for captions, groups in describe_ten(monkeypatch, telling, rules):
        names = [caption.rule for caption in captions]
        assert names.count("group_members") == 1
        assert groups == {(0, 2): 11}


def test_trees_carry_treebank_labels_only(described):
    labels = set()
    for one in described:
        for caption in one.captions:
            labels |= set(re.findall(r"\(([^ ()]+)", caption.tree.bracketed()))
    phrases = {"S", "NP", "VP", "PP", "SBAR", "WHNP", "ADVP", "ADJP"}
    parts = {"DT", "JJ", "NN", "NNS", "IN", "TO", "CC", "CD", "EX", "RB"}
    parts |= {"VBZ", "VBP", "PRP", "WDT", ",", "."}
    assert labels <= phrases | parts
    assert phrases <= labels


def test_lexicon_covers_what_is_drawn():
    words = {name: {*some} for name, some in phrases.WORDS.items()}
    del words["relation"]
    assert words == {
        "shape": {*SHAPES, ""},
        "colour": {*COLOURS},
        "texture": {*TEXTURES},
        "size": {*SIZES},
        "background": {*BACKGROUNDS},
    }
    plurals = [plural_of(noun) for noun in ("box", "cross", "star")]
    assert plurals == ["boxes", "crosses", "stars"]


def three_in_a_row():
    """A red circle, a blue star and a green circle from left to right."""
    kinds = (("circle", "red"), ("star", "blue"), ("circle", "green"))
    objects = tuple(
        SceneObject(shape, colour, "small", "plain") for shape, colour in kinds
    )
    scene = Scene(96, "grey", 0.0, objects)
    boxes = np.array([[5, 40, 25, 60], [40, 40, 60, 60], [75, 40, 95, 60]])
    return Speaker(scene, boxes, np.random.default_rng(0))


def test_speaker_finds_groups_and_what_is_between():
    speaker = three_in_a_row()
    group = speaker.pick_two("shape")
    assert group == Group((0, 2), {"shape": "circle"})
    with pytest.raises(NothingToSay):
        speaker.pick_two("colour")
    assert speaker.pick_between() == (1, 0, 2)
    assert speaker.find_group((2, 0)) == group
    assert speaker.find_group((0, 1)) is None
    # The circles stand on two sides of the star: nothing to say of both.
    with pytest.raises(NothingToSay):
        speaker.pick_group_relation()


def test_speaker_same_group_keeps_its_chain():
    speaker = three_in_a_row()
    group = speaker.pick_two("shape")
    chains = {speaker.plural(group).chain for _ in range(3)}
    assert chains == {11}
    assert speaker.plural(speaker.everything()).chain == 12


def test_speaker_says_colours_when_the_shape_alone_would_confuse():
    speaker = three_in_a_row()
    for _ in range(30):
        phrases = speaker.noun_phrases((0, 2), colour=0.5, shape=1.0)
        texts = [phrase.bracketed() for phrase in phrases]
        assert all("JJ" in text for text in texts)
