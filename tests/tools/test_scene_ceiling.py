"""Tests of what captions are true of, and of the best recall they allow."""

import json

import pytest
import scene_ceiling
from scene_ceiling import is_true

from tbnets.data.scenes.dataset import draw_scenes, scene_record
from tbnets.data.scenes.layout import SceneSettings
from tests import verbs

SIZE = 100


def thing(shape, colour, box, size="large"):
    about = {"shape": shape, "colour": colour, "size": size}
    return {**about, "texture": "plain", "box": box}


# A red circle at the left of a red star, and a small red circle far below.
SCENE = {
    "background": "grey",
    "objects": [
        thing("circle", "red", [10, 10, 30, 30]),
        thing("star", "red", [40, 12, 60, 32]),
        thing("circle", "red", [10, 80, 20, 90], "small"),
    ],
}
CIRCLE = {"kind": "object", "objects": [0], "shape": "circle"}
LARGE = CIRCLE | {"size": "large"}
STAR = {"kind": "object", "objects": [1], "shape": "star", "colour": "red"}


def said(kind, *objects, **more):
    return {"kind": kind, "objects": list(objects), **more}


@pytest.mark.parametrize(
    "claims, expected",
    [
        ([CIRCLE], True),
        ([CIRCLE, {**CIRCLE, "objects": [1]}], True),  # There are two.
        ([said("object", 0, colour="blue")], False),
        ([CIRCLE, STAR, said("relation", 0, 1, relation="left")], True),
        ([CIRCLE, STAR, said("relation", 0, 1, relation="right")], False),
        # The small one is below another circle, not the large one.
        ([CIRCLE, said("relation", 0, 1, relation="below")], True),
        ([LARGE, said("relation", 0, 1, relation="below")], False),
        ([said("count", 0, 1, shape="circle")], True),
        ([said("count", 0, 1, colour="red")], False),  # There are three.
        ([STAR, said("position", 1, position="top")], True),
        ([STAR, said("position", 1, position="left")], False),
        ([CIRCLE, said("background", colour="pink")], False),
        ([said("between", 0, 1, 2)], False),
    ],
)
def test_caption_is_true_of_matching_scenes(claims, expected):
    assert is_true(claims, SCENE, SIZE) == expected


def test_each_caption_is_true_of_its_own_scene():
    scenes = draw_scenes("test", SceneSettings(1, 1, 40, image_size=64))
    records = [scene_record(scene) for scene in scenes]
    found = scene_ceiling.truths(records, 64)
    assert len(found) == sum(len(record["captions"]) for record in records)
    assert all(own in rows for own, rows in found)
    assert any(len(rows) > 1 for _, rows in found)


def test_ceiling_literal():
    # Scene 0: a caption of its own, one that is true of both; scene 1: that.
    captions = [(0, {0}), (0, {0, 1}), (1, {0, 1})]
    best = scene_ceiling.ceiling(captions, 2)
    # (1 + 1/2 + 1/2) / 3 captions.
    assert best["text_to_image/recall_at_1"] == pytest.approx(2 / 3)
    assert best["text_to_image/recall_at_5"] == 1
    # Scene 0 by its own caption; scene 1 has two that fit, one its own.
    assert best["image_to_text/recall_at_1"] == pytest.approx(0.75)


def test_tool_prints_the_ceiling(tmp_path):
    scenes = draw_scenes("test", SceneSettings(1, 1, 3, image_size=64))
    lines = [json.dumps(scene_record(scene)) + "\n" for scene in scenes]
    (tmp_path / "scenes.jsonl").write_text("".join(lines))
    (tmp_path / "manifest.json").write_text('{"image_size": 64}')
    call = ("scene_ceiling", f"--scenes={tmp_path}")
    said = verbs.run(*call).stdout
    assert said.startswith("3 scenes, ") and "recall sum" in said
