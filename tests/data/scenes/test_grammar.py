"""Captions of scenes: their words, trees, phrases and claims."""

import re

import pytest
from scene_ceiling import is_true

from tbnets.data.scenes import grammar
from tbnets.data.scenes.dataset import draw_scenes, scene_record
from tbnets.data.scenes.layout import SceneSettings

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


def test_every_claim_is_true_of_its_scene(described):
    kinds = set()
    for one in described:
        record = scene_record(one)
        assert len({c.raw for c in one.captions}) == len(one.captions)
        for caption in one.captions:
            assert is_true(caption.claims, record, 64)
            kinds.update(claim["kind"] for claim in caption.claims)
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
    pieces = [(chain, text.lower()) for chain, text in caption.pieces]
    shapes = [chain for chain, _ in pieces if chain not in (None, 0, 10)]
    relations = []
    for place, (_, text) in enumerate(pieces):
        following = pieces[place + 1][1] if place + 1 < len(pieces) else ""
        side = text in ("the left", "the right", "left", "right")
        if side and following != "of" or not side and text not in WORDS:
            continue
        name = text.removeprefix("the ") if side else WORDS[text]
        landmark = next(
            piece for piece in pieces[place + 1 :] if piece[0] is not None
        )
        subject, other = shapes[0], landmark[0]
        if landmark[1] == "it":
            subject, other = shapes[1], shapes[0]
        if landmark[1] == "each other":
            other = shapes[1]
        relations.append((name, subject, other))
    return relations


def test_phrases_describe_the_object_of_their_chain(described):
    """No two of a caption are alike: "a circle above a circle" says nothing."""
    for one in described:
        for caption in one.captions:
            marked = re.findall(r"NP#(\d+) ([^#]+?\))\)", caption.marked)
            texts = [
                (one.scene.objects[int(chain) - 1], text.lower())
                for chain, text in marked
                if 1 <= int(chain) <= len(one.boxes)
            ]
            assert len({text for _, text in texts}) == len(texts)
            for drawn, text in texts:
                fitting = {"shape", "object"}
                for name in ("size", "texture", "colour", "shape"):
                    value = getattr(drawn, name)
                    synonyms = grammar.WORDS[name].get(value, [value])
                    fitting.update(" ".join(synonyms).split())
                words = re.findall(r"\((?:jj|nn) (\w+)\)", text)
                assert {*words} <= fitting
