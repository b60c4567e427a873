"""Captions read along trees: what makes the trees, and what they make."""

import shutil

import numpy as np
import pytest
import tensorflow as tf

from tbnets.data.sources import Sources
from tbnets.tasks import builders
from tbnets.text import packed_trees
from tests import lifecycle, tiny, verbs
from tests.tiny_runs import TREES, prepared

# Which graph is traced is no matter here.
pytestmark = pytest.mark.usefixtures("module_eagerly")


@pytest.fixture(scope="module")
def run(tiny_run):
    return tiny_run(**TREES)


test_it_learns = lifecycle.learns


def test_the_network_embeds_the_trees_of_captions(run):
    found = run.scores.text_embeddings
    assert found.shape == (12, 4) and np.isfinite(found).all()
    rows = tf.constant(run.test.texts.batch(np.arange(12)))
    embedded = run.opened.network.embed_text(rows)
    np.testing.assert_allclose(found, embedded, atol=1e-5)


def test_trees_that_a_recipe_names_are_made_as_by_the_tool(tiny_run, tmp_path):
    folder = shutil.copytree(tiny_run.captioned, tmp_path / "data")
    recipe = folder / "chains.flags"
    recipe.write_text("--parser=right_branching\n--processes=1\n")
    changes = TREES | {"trees": recipe.name}
    session, _ = prepared(tiny.settings(folder, tmp_path / "run", **changes))
    recorded = session.state.fitted["recipes"]["trees"][recipe.name]
    assert recorded == {"parser": "right_branching", "parts": []}
    [made] = (folder / "made").glob("chains-*")
    verbs.call(
        *("parse_captions", f"--captions={folder}", f"--flagfile={recipe}"),
        *("--captions_format=precomputed", f"--output={tmp_path / 'trees'}"),
    )
    # What was parsed is kept by the tool alone: a recipe's file is whole.
    [path] = made.iterdir()
    assert path.read_bytes() == (tmp_path / "trees").read_bytes()


def test_flags_make_the_encoder(tiny_run, tmp_path):
    changes = TREES | {"word_dim": 3}
    found = tiny_run.settings(tmp_path, **changes)
    inputs = builders.NetworkInputs(8, words=["", "[UNK]", "a"])
    network = builders.build_network(found, inputs)
    encoder = network.text_encoder
    assert (encoder.units, encoder.embedding_dim) == (5, 3)
    fields = len(packed_trees.FIELDS)
    assert network.input_shapes["captions"] == (None, None, fields)


def test_scenes_come_with_gold_trees(tmp_path):
    found = Sources(scenes=str(tmp_path), num_scenes=(1, 0, 0)).rendered()
    assert found.file("trees") == tmp_path / "trees"
    assert found.file("phrases") == tmp_path == found.photo_folder.parent
