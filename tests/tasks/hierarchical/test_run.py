"""HM-LSTM in a run: trained, resumed, measured, exported."""

import dataclasses
import json
import pathlib
import shutil

import numpy as np
import pytest
import tensorflow as tf

from tbnets.checks import per_cent
from tbnets.data.phrase_pairs import CHOICE, CONFIDENCE
from tbnets.evaluation import tables
from tbnets.evaluation.correspondences import Choice
from tbnets.serving.served import load_saved_model
from tbnets.tasks import runs
from tbnets.tasks.hierarchical import scores as matcher
from tbnets.text import parsing
from tbnets.text import trees as tree_files
from tbnets.training import loop, summary
from tests import reference, tiny, tiny_scenes

# A step in a graph is that without: tests/models/test_hm_lstm.py.
pytestmark = pytest.mark.usefixtures("module_eagerly")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tiny_scenes.write_scenes(tmp_path_factory.mktemp("data"))


def settings(folder, run_dir):
    return tiny_scenes.settings(
        folder,
        run_dir,
        epochs=3,
        correspondence_epochs=1,
        equal_texts_match=True,
    )


def train(found, resume=False):
    session, examples = runs.prepare(found, runs.start(found, resume))
    print(summary.describe_run(session, examples))
    loop.fit(session, examples)
    return session, examples


@pytest.fixture(scope="module")
def run(folder, tmp_path_factory):
    run_dir = tmp_path_factory.mktemp("runs") / "run"
    with tiny.copied_after(2, run_dir, run_dir.with_name("stopped")):
        session, examples = train(settings(folder, run_dir))
    held = session.task.data.held
    runs.finish(session)
    return session, examples, held


def test_it_learns_and_reports(run):
    session, _, _ = run
    rows = runs.open_run(session.run_dir, "last").state.history
    for name in ("image_to_text", "text_to_image"):
        first, *_, last = (row[f"train/{name}_loss"] for row in rows)
        assert last < 0.9 * first
    # Pairs weigh nothing before they are known.
    weighs = [row["train/phrase_to_region_loss"] > 0 for row in rows]
    assert weighs == [False, True, True]
    report = json.loads((session.run_dir / "metrics.json").read_text())["test"]
    assert 0 < report["correspondence_chance"] < 1
    assert 0 <= report["correspondence_accuracy"] <= 1
    # Each phrase of a scene is a noun phrase of its gold tree, or all of it.
    assert report["correspondence_exact_spans"] == 1
    assert "image_to_text/recall_at_1" in report
    whole = report["correspondence_pointing_whole_photo"]
    table = tables.format_table(report)
    assert f"{per_cent(whole)} % by the whole photo" in table.split("box: ")[1]


def test_each_phrase_holds_its_most_similar_candidate(run):
    session, examples, _ = run
    network = session.network
    one, choice = matcher.Matcher(network), Choice("expected_overlap", 0.3)
    found, agreed = one.match(examples), one.match(examples, choice)
    assert (found[CHOICE] != agreed[CHOICE]).any()
    assert len(found[CHOICE]) == len(examples.phrases.captions) > 50
    for row in (0, 7, len(found[CHOICE]) - 1):
        caption = examples.phrases.captions[row]
        image = examples.records.caption_to_image[caption]
        tree = examples.texts.batch(np.array([caption]))
        node = examples.phrases.nodes[row : row + 1].astype("int32")
        _, [phrase] = network.embed_nodes(tree, node)
        count = int(examples.regions.counts[image])
        regions = examples.regions.take(np.full(count, image), np.arange(count))
        seen = np.concatenate(
            [
                network.embed_regions(regions),
                network.embed_images(examples.images.batch(np.array([image]))),
            ]
        )
        similarities = seen @ phrase.numpy()
        np.testing.assert_allclose(
            similarities[found[CHOICE][row]], similarities.max(), atol=1e-5
        )
        np.testing.assert_allclose(
            found[CONFIDENCE][row], similarities.max(), atol=1e-5
        )
        boxes = examples.regions.candidates(image)
        overlaps = [
            reference.expected_overlap(similarities, boxes, one, 0.3)
            for one in range(len(boxes))
        ]
        best = agreed[CHOICE][row]
        assert overlaps[best] == pytest.approx(max(overlaps), abs=1e-5)
        np.testing.assert_allclose(
            agreed[CONFIDENCE][row], similarities[best], atol=1e-5
        )


def test_correspondences_are_measured_by_another_choice(run):
    session, _, _ = run
    examples = session.task.data.load("test", session.state.fitted)
    scores = session.task.scores(session.network, examples).parts[1]
    usual = scores.metrics()
    assert scores.metrics(choice_temperature=0.3) == usual
    other = scores.metrics(choice="expected_overlap", choice_temperature=0.3)
    same = {name for name in usual if usual[name] == other[name]}
    assert usual.keys() - same <= {
        "correspondence_accuracy",
        "correspondence_pointing_accuracy",
    }
    with pytest.raises(ValueError, match="must be most_similar or exp"):
        scores.metrics(choice="mean_box")
    unknown = dataclasses.replace(scores, links=None)
    assert unknown.metrics() == {}
    with pytest.raises(ValueError, match="`--choice` must come with a run"):
        unknown.metrics(choice="expected_overlap")


def test_resumed_run_is_the_same_bit_for_bit_and_learns_of_no_link(
    run, folder, monkeypatch
):
    session, _, held = run
    at = session.run_dir.with_name("stopped")
    no_links = property(lambda task: False)
    monkeypatch.setattr(type(session.task.data), "knows_links", no_links)
    again, _ = train(settings(folder, at), resume=True)
    assert "dev/correspondence_accuracy" not in again.state.history[-1]
    straight = runs.open_run(session.run_dir, "last")
    for name in held:
        np.testing.assert_array_equal(held[name], again.task.data.held[name])
        np.testing.assert_array_equal(held[name], straight.task.data.held[name])
    for one, other in zip(straight.network.weights, again.network.weights):
        np.testing.assert_array_equal(one.numpy(), other.numpy())


def test_opened_run_measures_the_same(run):
    session, _, _ = run
    opened = runs.open_run(session.run_dir)
    test = opened.task.data.load("test", opened.state.fitted)
    scores = opened.task.scores(opened.network, test)
    report = json.loads((session.run_dir / "metrics.json").read_text())
    assert scores.metrics() == report["test"]

    ranked = scores.metrics(region_phrase_ranking=True)
    assert ranked["phrase_to_true_region/num_queries"] > 9
    assert ranked["true_region_to_phrase/recall_at_10"] > 0
    table = tables.format_table(ranked, "test")
    assert "% by chance" in table and "phrase to true region: R@1" in table
    with pytest.MonkeyPatch.context() as patch:  # None overlaps by so much.
        patch.setattr(matcher, "SAME_THING", 1.1)
        ranked = scores.metrics(region_phrase_ranking=True)
    assert ranked["phrase_to_true_region/num_queries"] == 0
    assert (session.run_dir / runs.EXAMPLES).is_file()
    pictures = scores.pictures()
    assert sorted(pictures)[-5:] == [f"phrases_{i}" for i in range(1, 6)]

    assert list(scores.arrays) == [
        *("image_embeddings", "text_embeddings", "caption_to_image")
    ]


def test_exported_run_embeds_the_same(run, folder):
    session, _, _ = run
    opened = runs.open_run(session.run_dir)
    test = opened.task.data.load("test", opened.state.fitted)
    scores = opened.task.scores(opened.network, test).parts[0]
    path = runs.export(opened)
    said = test.records.captions[:9]
    gold = tree_files.trees_of(folder / "scenes" / "trees", said)
    model = load_saved_model(path)
    np.testing.assert_allclose(
        model.embed_text(gold), scores.text_embeddings[:9], 1e-4, 1e-5
    )
    with pytest.raises(ValueError, match="`texts` must be a list"):
        model.embed_text("a dog")

    served = tf.saved_model.load(str(path))
    captions = np.arange(9)
    trees = tf.constant(test.texts.batch(captions))
    found = served.embed_text(trees)["embeddings"]
    np.testing.assert_allclose(
        found, scores.text_embeddings[captions], 1e-4, 1e-5
    )
    photos = tf.constant(test.images.batch(np.arange(3)))
    found = served.embed_image(photos)["embeddings"]
    np.testing.assert_allclose(found, scores.image_embeddings[:3], 1e-4, 1e-5)
    phrases = served.embed_noun_phrases(trees)
    assert (np.diff(phrases["captions"]) >= 0).all()
    rows, _, nodes = test.phrases.in_batch(
        captions, test.texts.lengths[captions]
    )
    _, wanted = opened.network.embed_nodes(trees, nodes.astype("int32"))
    spans = {
        (int(caption), *map(int, span)): row
        for row, (caption, span) in enumerate(
            zip(phrases["captions"], phrases["spans"])
        )
    }
    for row, embedding in zip(rows, wanted):
        key = int(test.phrases.captions[row]), *test.phrases.spans[row].tolist()
        np.testing.assert_allclose(
            phrases["embeddings"][spans[key]], embedding, 1e-4, 1e-5
        )
    regions = test.regions.take(np.zeros(2, int), np.arange(2))
    np.testing.assert_allclose(
        served.embed_regions(tf.constant(regions))["embeddings"],
        opened.network.embed_regions(regions),
        1e-4,
        1e-5,
    )


def test_trees_of_other_captions_are_named(folder, tmp_path):
    data = tmp_path / "data"
    shutil.copytree(folder, data)
    path = sorted((data / "scenes" / "trees").glob("1*.txt"))[0]
    good = path.read_text()
    found = tiny_scenes.settings(data, tmp_path / "run")
    lines = good.splitlines()
    for bad, message in (
        ("(NP (DT A) (NN dog))", f"without {len(lines)} of .*, first '"),
        (good.replace("\n", ")\n", 1), "expected a tree.*follows the end"),
    ):
        path.write_text(bad)
        with pytest.raises(ValueError, match=message):
            runs.prepare(found, runs.start(found, False))
    assert not pathlib.Path(tmp_path / "run").exists()


def test_points_are_images_captions_and_noun_phrases(run):
    session, _, _ = run
    task, test = (
        session.task,
        session.task.data.load("test", session.state.fitted),
    )
    scores = task.scores(session.network, test)
    points = scores.points((2, 2))
    texts, kinds, images = map(np.array, points.columns.values())
    assert kinds[:6].tolist() == 2 * ["image"] + 4 * ["caption"]
    assert set(kinds[6:]) == {"noun phrase"}
    # At most one for each caption, and each wording once.
    assert 0 < len(texts[6:]) == len(set(texts[6:])) <= 4
    assert points.thumbnails.shape[0] == len(points.vectors) == len(texts)
    for row in range(6, len(texts)):
        said = texts[(images == images[row]) & (kinds == "caption")]
        assert any(texts[row] in caption.lower() for caption in said)
    np.testing.assert_allclose(
        np.linalg.norm(points.vectors, axis=1), 1, atol=1e-5
    )


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"regions": ""}, "`--regions` must name features of regions"),
        ({"jit_compile": True}, "`--jit_compile` must be false"),
        ({"region_mean_weight": 0}, "`--region_mean_weight` must be above 0"),
        ({"region_branch": "shared"}, "32 numbers a photo, 33 a region"),
        ({"task": "localization"}, "`--task` must be matching with --model="),
    ],
)
def test_flags_that_contradict_are_refused(changes, message, folder, tmp_path):
    with pytest.raises(ValueError, match=message):
        found = tiny_scenes.settings(folder, tmp_path / "run", **changes)
        runs.prepare(found, runs.start(found, False))


def test_trees_are_a_text_encoder_of_other_models_too(folder, tmp_path):
    parses = tmp_path / "trees.jsonl"
    captions = [
        (f"{split}{row}", text)
        for split in ("train", "dev", "test")
        for row, text in enumerate(
            tiny.split_of(
                tiny_scenes.settings(folder, "unused"), split
            ).records.captions
        )
    ]
    trees = {text: f"(NP (NN {text.split()[0]}) (. .))" for _, text in captions}
    parsing.write_parses(parses, captions, parsing.Parses(trees, {}, 0))
    changes = {"model": "embedding", "text_encoder": "h_lstm", "trees": parses}
    found = tiny_scenes.settings(folder, tmp_path / "run", **changes)
    session, _ = runs.prepare(found, runs.start(found, False))
    assert session.dev.texts.lengths.max() == 2
    served = tf.saved_model.load(str(runs.export(session)))
    rows = session.dev.texts.batch(np.arange(2))
    np.testing.assert_allclose(
        served.embed_text(tf.constant(rows))["embeddings"],
        session.network.embed_text(rows),
        1e-4,
        1e-5,
    )
    parsing.write_parses(parses, captions[3:], parsing.Parses(trees, {}, 0))
    with pytest.raises(ValueError, match="`--trees` must hold a tree for eve"):
        runs.prepare(found, runs.start(found, False))
