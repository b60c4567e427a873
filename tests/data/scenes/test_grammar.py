"""Captions of scenes: their words, trees, phrases and claims."""

import pytest
from scene_ceiling import is_true

from tbnets.data.scenes.dataset import draw_scenes, scene_record
from tbnets.data.scenes.layout import SceneSettings


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
