"""Captions read along trees: trained, resumed, measured, refused early."""

import json

import numpy as np
import pytest

from tbnets.data.sources import Sources
from tbnets.tasks import parts, runs
from tbnets.text import packed_trees
from tbnets.training import loop
from tests import tiny, verbs

# Which graph is traced is no matter here.
pytestmark = pytest.mark.usefixtures("module_eagerly")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """The tiny data set with a tree for every caption: (S word (NP ...))."""
    folder = tiny.write_precomputed(tmp_path_factory.mktemp("data"))
    rows, known = [], set()
    for split in tiny.SPLITS:
        for caption in (folder / f"{split}_caps.txt").read_text().splitlines():
            if caption not in known:
                first, *rest = caption.split()
                tree = f"(S (VB {first}) (NP {' '.join(rest)}))"
                name = str(len(known))
                rows.append({"id": name, "caption": caption, "tree": tree})
                known.add(caption)
    text = "".join(json.dumps(row) + "\n" for row in rows)
    (folder / "trees.jsonl").write_text(text)
    return folder


def settings(folder, run_dir, **changes):
    given = {
        "text_encoder": "h_lstm",
        "trees": "trees.jsonl",
        "rnn_units": 5,
        "epochs": 8,
        **changes,
    }
    return tiny.settings(folder, run_dir, **given)


def train(found, resume=False):
    session, examples = runs.prepare(found, runs.start(found, resume))
    loop.fit(session, examples)
    return session


@pytest.fixture(scope="module")
def session(folder, tmp_path_factory):
    run_dir = tmp_path_factory.mktemp("runs") / "run"
    return train(settings(folder, run_dir))


def test_it_learns_and_opens_again(session, folder):
    losses = [row["train/total_loss"] for row in session.state.history]
    assert losses[-1] < losses[0]
    opened = runs.open_run(session.run_dir)
    test = opened.task.data.load("test", opened.state.fitted)
    scores = opened.task.scores(opened.network, test)
    found = scores.text_embeddings
    assert found.shape == (12, 4) and np.isfinite(found).all()
    rows = test.texts.batch(np.arange(12))
    wanted = opened.network.embed_text(rows)
    np.testing.assert_allclose(found, wanted, atol=1e-5)


def test_straight_equals_resumed(session, folder, tmp_path):
    train(settings(folder, tmp_path / "run", epochs=1))
    again = train(settings(folder, tmp_path / "run"), resume=True)
    for one, other in zip(again.network.weights, session.network.weights):
        np.testing.assert_array_equal(one.numpy(), other.numpy())


def test_trees_that_a_recipe_names_are_made_as_by_the_tool(folder, tmp_path):
    recipe = folder / "chains.flags"
    recipe.write_text("--parser=right_branching\n--processes=1\n")
    found = settings(folder, tmp_path / "run", trees=recipe.name)
    session, _ = runs.prepare(found, runs.start(found, False))
    said = session.state.fitted["recipes"]["trees"][recipe.name]
    assert said == {"parser": "right_branching", "parts": []}
    [made] = (folder / "made").glob("chains-*")
    told = verbs.ask(
        *("parse_captions", f"--captions={folder}", f"--flagfile={recipe}"),
        *("--captions_format=precomputed", f"--output={tmp_path / 'trees'}"),
    )
    assert "right_branching" in told[0]
    # What was parsed is kept by the tool alone: a recipe's file is whole.
    assert [path.name for path in made.iterdir()] == ["trees.jsonl"]
    assert (made / "trees.jsonl").read_bytes() == (
        tmp_path / "trees"
    ).read_bytes()


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"trees": ""}, "--trees` must name a file"),
        ({"trees": "none.jsonl"}, "none.jsonl"),
        ({"trees": "few.jsonl"}, "`--trees` must hold a tree for every"),
        ({"jit_compile": True}, "which XLA does not compile"),
    ],
)
def test_what_can_not_be_done_is_told_first(folder, tmp_path, changes, message):
    lines = (folder / "trees.jsonl").read_text().splitlines()
    (folder / "few.jsonl").write_text(lines[0] + "\n")
    found = settings(folder, tmp_path / "run", **changes)
    with pytest.raises((ValueError, FileNotFoundError), match=message):
        runs.prepare(found, runs.start(found, False))


def test_flags_make_the_encoder(folder, tmp_path):
    found = settings(folder, tmp_path, word_dim=3)
    fitted = {"words": ["", "[UNK]", "a"], "image_dim": 8, "text_dim": None}
    network = parts.build_embedding_network(found, fitted)
    encoder = network.text_encoder
    assert (encoder.units, encoder.embedding_dim) == (5, 3)
    fields = len(packed_trees.FIELDS)
    assert network.input_shapes["captions"] == (None, None, fields)


def test_scenes_come_with_gold_trees(tmp_path):
    found = Sources(scenes=str(tmp_path), num_scenes=(1, 0, 0)).rendered()
    assert found.file("trees") == tmp_path / "trees"
    assert found.file("phrases") == tmp_path == found.photo_folder.parent
