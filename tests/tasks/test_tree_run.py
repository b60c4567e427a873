"""Captions read along trees: what makes the trees, and what they make."""

import shutil

import numpy as np
import pytest

from tbnets.data.sources import Sources
from tests import tiny, verbs
from tests.tiny_runs import TREES, prepared

# Which graph is traced is no matter here.
pytestmark = pytest.mark.usefixtures("module_eagerly")


def test_recipe_parses_trees_like_the_command(tiny_run, tmp_path):
    folder = shutil.copytree(tiny_run.captioned, tmp_path / "data")
    recipe = folder / "chains.flags"
    recipe.write_text("--parser=right_branching\n--processes=1\n")
    changes = TREES | {"trees": recipe.name}
    settings = tiny.settings(folder, tmp_path / "run", **changes)
    session, train = prepared(settings)
    scores = session.task.scores(session.network, train)
    assert scores.text_embeddings.shape == (24, 4)
    assert np.ptp(scores.text_embeddings, axis=0).all()
    recorded = session.state.fitted["recipes"]["trees"][recipe.name]
    assert recorded == {"parser": "right_branching", "parts": []}
    [made] = (folder / "made").glob("chains-*")
    verbs.call(
        *("parse_captions", f"--captions={folder}", f"--flagfile={recipe}"),
        f"--output={tmp_path / 'trees'}",
    )
    # What was parsed is kept by the tool alone: a recipe's file is whole.
    [path] = made.iterdir()
    assert path.read_bytes() == (tmp_path / "trees").read_bytes()


def test_scenes_are_found_from_another_folder_with_gold_trees(tmp_path):
    found = Sources(
        scenes="scenes", started_in=str(tmp_path), num_scenes=(1, 0, 0)
    ).rendered()
    scenes = tmp_path / "scenes"
    assert found.file("trees") == scenes / "trees"
    assert found.file("phrases") == scenes == found.photo_folder.parent
