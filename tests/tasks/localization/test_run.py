"""Phrase localization in a run: trained, resumed, measured, exported."""

import contextlib
import dataclasses
import json
import types

import numpy as np
import pytest
import tensorflow as tf
from zoo_making.served import served_scores

from tbnets.data.store import opening
from tbnets.evaluation import boxes, tables
from tbnets.serving.served import load_saved_model
from tbnets.tasks import runs
from tbnets.tasks.localization import scores as sentence_scores
from tbnets.tasks.localization.scores import LocalizationScores
from tbnets.tasks.matching.scores import RetrievalScores
from tbnets.training import loop, summary
from tests import tiny, tiny_phrases
from tests.eager import without_tracing

EPOCHS = 6
MODELS = {
    "embedding": {
        "loss": "wang2018_phrases",
        "num_negatives": 5,
        "regions_per_phrase": 2,
        "phrases_per_region": 2,
        "phrases_per_image": 3,
        "dropout": 0.1,
        "images": "images",
        "pairs_per_batch": 20,
        "learning_rate": 0.02,
    },
    "similarity": {
        "model": "similarity",
        "head_units": "16",
        "dropout": 0,
        "pairs_per_batch": 6,
        "learning_rate": 0.02,
        "regions_per_phrase": 0,
        "candidates_per_image": 8,
        "num_candidates": 2,
    },
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tiny_phrases.write_phrases(tmp_path_factory.mktemp("data"))


def way_of(model):
    """Runs the steps of one model without tracing, those of the other traced.

    Its gradients in a graph have a test of their own: it takes seconds less.
    """
    is_traced = model == "similarity"
    return contextlib.nullcontext() if is_traced else without_tracing()


def train(found, resume=False):
    session, examples = runs.prepare(found, runs.start(found, resume))
    print(summary.describe_run(session, examples))
    loop.fit(session, examples)
    return session


@pytest.fixture(scope="module", params=MODELS)
def model(request):
    return request.param


@pytest.fixture(scope="module")
def session(model, folder, tmp_path_factory):
    """Trains `EPOCHS`; beside it lies the folder as it was after one."""
    run_dir = tmp_path_factory.mktemp("runs") / model
    found = tiny_phrases.settings(
        folder, run_dir, **MODELS[model], epochs=EPOCHS
    )
    session, examples = runs.prepare(found, runs.start(found, False))
    session.described = summary.describe_run(session, examples)
    stopped = run_dir.with_name(f"{model}_stopped")
    with way_of(model), tiny.copied_after(1, run_dir, stopped):
        loop.fit(session, examples)
    runs.finish(session)
    return session


def test_it_learns_and_reports(session):
    history = session.state.history
    key = "dev/phrase_to_region/recall_at_1"
    # 9 of 15 regions lie at one of three things: by chance 20 %.
    assert max(row[key] for row in history) > 0.6
    assert history[-1]["train/total_loss"] < history[0]["train/total_loss"]
    report = json.loads((session.run_dir / "metrics.json").read_text())
    assert report["test"]["phrase_to_region/num_queries"] == 24
    assert report["test"]["phrase_to_region/upper_bound"] == 1
    assert report["test"]["phrase_to_region/animals/num_queries"] > 0
    assert report["test_split"]["phrases"] == 24
    assert "R@1" in tables.format_table(report["test"], "test")


def test_resumed_run_is_bit_for_bit_the_same(session, model, folder):
    at = session.run_dir.with_name(f"{model}_stopped")
    found = tiny_phrases.settings(folder, at, **MODELS[model], epochs=EPOCHS)
    with way_of(model):
        again = train(found, resume=True)
    straight = runs.open_run(session.run_dir, "last").network
    assert again.state.epoch == EPOCHS
    for one, other in zip(straight.weights, again.network.weights):
        np.testing.assert_array_equal(one.numpy(), other.numpy())


def test_gradients_in_a_graph_are_those_without(folder, tmp_path):
    # Terms within a view are traced where losses are tested.
    off = ("image_to_image_weight", "text_to_text_weight", "dropout")
    changes = {**MODELS["embedding"], **dict.fromkeys(off, 0)}
    found = tiny_phrases.settings(folder, tmp_path / "run", **changes)
    session, examples = runs.prepare(found, runs.start(found, False))
    network, batches = session.network, session.task.data.batches(examples)
    [batch] = batches.dataset.take(1)

    def step(batch):
        with tf.GradientTape() as tape:
            loss = network.batch_loss(batch, training=True).total
        gradients = tape.gradient(loss, network.trainable_variables)
        return [loss, *map(tf.convert_to_tensor, gradients)]

    spec = [batches.dataset.element_spec]
    # As Keras does.
    traced = tf.function(step, input_signature=spec, autograph=False)
    for one, other in zip(step(batch), traced(batch), strict=True):
        assert np.any(one)
        np.testing.assert_allclose(one, other, 1e-4, 1e-6)


def test_pictures_are_drawn_where_photos_are(session, model):
    tags = tiny.events(session.run_dir / "tensorboard")
    pictures = {tag: steps for tag, steps in tags.items() if "answers" in tag}
    has_photos = "images" in MODELS[model]
    names = [f"2_answers/{number}" for number in range(1, 5)]
    assert sorted(pictures) == (names if has_photos else [])
    assert ("pictures  none" in session.described) != has_photos


def test_opened_run_measures_the_same_and_exports_it(session):
    opened = runs.open_run(session.run_dir)
    test = opened.task.data.load("test", opened.state.fitted)
    scores = opened.task.scores(opened.network, test)
    report = json.loads((session.run_dir / "metrics.json").read_text())
    assert scores.metrics() == report["test"]

    served = load_saved_model(runs.export(opened))
    [rows] = np.nonzero(test.phrases.phrase_to_image == 2)
    phrases = [test.phrases.phrases[row] for row in rows]
    features, _ = test.features.regions(test.image_rows[2])
    found = served.similarity(phrases, features)
    expected = scores.similarities[rows, : len(features)]
    np.testing.assert_allclose(found, expected, 1e-5, 1e-5)
    by_embeddings = served.compare(
        served.embed_phrases(phrases), served.embed_regions(features)
    )
    np.testing.assert_allclose(by_embeddings, expected, 1e-5, 1e-5)
    again = served_scores(opened.task, served, "test")
    np.testing.assert_allclose(
        again.similarities, scores.similarities, 1e-5, 1e-5
    )
    assert again.metrics().keys() == report["test"].keys()


def scores_of_true_regions(network, test):
    """Scores [things, distinct phrases] and which belong together."""
    phrases = test.phrases
    chains, texts = phrases.phrase_to_chain, phrases.phrase_to_text
    regions, is_said = [], np.zeros((12, max(texts) + 1), bool)
    for chain in range(12):
        row = list(chains).index(chain)
        image = test.image_rows[phrases.phrase_to_image[row]]
        features, proposals = test.features.regions(image)[:2]
        overlaps = boxes.iou(phrases.boxes[row : row + 1], proposals)[0]
        regions.append(features[overlaps.argmax()])
        is_said[chain, texts[chains == chain]] = True
    rows = [list(texts).index(text) for text in range(is_said.shape[1])]
    said = test.texts.batch(np.array(rows))
    found = network.similarities(
        network.embed_images(np.array(regions, "float32")),
        network.embed_text(said),
    )
    return found.numpy(), is_said


def test_true_regions_that_nothing_was_proposed_for_are_no_queries(session):
    opened = runs.open_run(session.run_dir)
    test = opened.task.data.load("test", opened.state.fitted)
    corner = np.tile([0.0, 0, 1, 1], (test.phrases.num_phrases, 1))
    phrases = dataclasses.replace(test.phrases, boxes=corner)
    test = dataclasses.replace(test, phrases=phrases)
    scores = opened.task.scores(opened.network, test)
    metrics = scores.metrics(region_phrase_ranking=True)
    assert metrics["true_region_to_phrase/num_queries"] == 0
    assert metrics["phrase_to_region/upper_bound"] == 0


def test_true_regions_rank_all_phrases_and_back(session):
    opened = runs.open_run(session.run_dir)
    test = opened.task.data.load("test", opened.state.fitted)
    scores = opened.task.scores(opened.network, test)
    metrics = scores.metrics(region_phrase_ranking=True)
    found, is_said = scores_of_true_regions(opened.network, test)
    for direction, values, right in (
        ("true_region_to_phrase", found, is_said),
        ("phrase_to_true_region", found.T, is_said.T),
    ):
        ranks = [
            1 + sum(row[~mask] >= max(row[mask]))
            for row, mask in zip(values, right)
        ]
        median = np.floor(np.median(ranks))
        assert metrics[f"{direction}/median_rank"] == median
        first = np.mean(np.array(ranks) == 1)
        assert metrics[f"{direction}/recall_at_1"] == pytest.approx(first)
        assert metrics[f"{direction}/num_queries"] == len(ranks)
        title = direction.replace("_", " ")
        assert f"{title}: R@1/R@5/R@10" in tables.format_table(metrics)
    both = scores.combine(scores, 0.5)
    with pytest.raises(ValueError, match="`--region_phrase_ranking` must"):
        both.metrics(region_phrase_ranking=True)


def test_photos_are_compared_with_sentences_by_their_phrases(session):
    test = session.task.data.load("test", session.state.fitted)
    scores = session.task.scores(session.network, test)
    nearest = scores.nearest(scores.sides["phrases"])
    owners = scores.phrases.phrase_to_image
    own = nearest[owners, np.arange(len(owners))]
    # Each photo has as many regions, so no row of the table is padded.
    wanted = scores.similarities.max(axis=1)
    np.testing.assert_allclose(own, wanted, 1e-5, 1e-5)
    records = session.task.data.split("test").records
    if session.network.learned_similarity:
        with pytest.raises(ValueError, match="similarity network of phrases"):
            scores.pair_scores(records)
        return
    found, learned = scores.pair_scores(records)
    # Here a caption is its one phrase.
    rows = np.arange(records.num_images), np.arange(records.num_captions)
    distances = np.sqrt(np.maximum(2 - 2 * nearest, 0))
    place = sentence_scores.captions_of_phrases(
        session.task.data.split("test").phrases, records
    )
    np.testing.assert_allclose(
        found.tile(*rows)[:, place], -distances, 1e-5, 1e-5
    )
    assert not learned


def made_up_scores(similarities, learned=False, shift=0):
    """One photo with two proposals and one with three, a phrase each."""
    boxes = [[0, 0, 1, 1], [0, 0, 2, 2], [0, 0, 3, 3]]
    return LocalizationScores(
        np.array(similarities, "float32"),
        types.SimpleNamespace(
            boxes=np.array(boxes[:2]) + shift, phrase_to_image=np.array([0, 1])
        ),
        [np.array(boxes[:2]), np.array(boxes)],
        learned,
    )


def test_two_networks_are_combined_by_distances():
    first = made_up_scores([[1.0, 0.5, 0], [0.5, 1.0, -1.0]])
    second = made_up_scores([[-1.0, 1.0, 0], [1.0, 1.0, 1.0]])
    found = first.combine(second, 0.25).similarities
    # Distances sqrt(2 - 2 s): 0, 1, 2 for 1, 0.5, -1.
    np.testing.assert_allclose(found[0, :2], [-0.5, -0.75], atol=1e-6)
    np.testing.assert_allclose(found[1], [-0.75, 0, -1.5], atol=1e-6)


def test_learned_scores_are_combined_by_their_spread():
    first = made_up_scores([[1.0, 0.5, 0], [0.5, 1.0, -1.0]])
    logits = [[4.0, -4.0, 99], [4.0, -4.0, 0.0]]
    second = made_up_scores(logits, learned=True)
    found = first.combine(second, 1.0).similarities
    # Of 4, -4, 4, -4, 0: the variance is 64 / 5.
    expected = np.array(logits) / np.sqrt(64 / 5)
    np.testing.assert_allclose(found[1], expected[1], atol=1e-6)
    np.testing.assert_allclose(found[0, :2], expected[0, :2], atol=1e-6)


def test_other_phrases_are_not_combined():
    first = made_up_scores([[1.0, 0.5, 0], [0.5, 1.0, -1.0]])
    second = made_up_scores(first.similarities, shift=1)
    with pytest.raises(ValueError, match="`--combine_with` must be a run on"):
        first.combine(second, 0.5)
    with pytest.raises(ValueError, match="scores of phrases and regions"):
        first.combine(RetrievalScores(None, None, None), 0.5)


@pytest.mark.parametrize("background", [0, 2])
def test_cca_finds_regions_by_text_features(folder, tmp_path, background):
    found = tiny_phrases.settings(
        folder,
        tmp_path / "run",
        model="cca",
        cca_dim=5,
        text_encoder="features",
        text_features="{split}_txt.npy",
        candidates_per_image=4,
        cca_background=background,
    )
    session = train(found)
    report = runs.finish(session)
    assert session.state.epoch == 1
    assert report["test"]["phrase_to_region/recall_at_1"] > 0.6
    assert session.network.background == background
    served = tf.saved_model.load(str(runs.export(session)))
    texts, regions = tf.ones([2, 6]), tf.ones([3, 9])
    assert served.score(texts, regions)["similarities"].shape == (2, 3)


def test_statistics_of_features_are_those_of_the_training_regions(
    folder, tmp_path
):
    found = tiny_phrases.settings(
        folder, tmp_path / "run", image_transform="standardize"
    )
    session, train_examples = runs.prepare(found, runs.start(found, False))
    rows = train_examples.image_rows
    regions = [train_examples.features.regions(row)[0] for row in rows]
    expected = np.concatenate(regions).astype("float64").mean(axis=0)
    mean = session.network.image_encoder.mean.numpy()
    np.testing.assert_allclose(mean, expected, 1e-4, 1e-5)


def test_a_store_is_opened_once_a_run(folder, tmp_path, monkeypatch):
    opened, open_store = [], opening.open_store

    def counting(path):
        opened.append(path)
        return open_store(path)

    monkeypatch.setattr(opening, "open_store", counting)
    found = tiny_phrases.settings(folder, tmp_path / "run")
    session, _ = runs.prepare(found, runs.start(found, False))
    session.task.data.load("test", session.state.fitted)
    assert opened == [str(folder / "regions")]


def test_flags_of_matching_are_refused():
    with pytest.raises(ValueError, match="read with --task=matching"):
        tiny.unread("--task=localization", "--images_per_batch=5")


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"phrases": ""}, "`--phrases` must name phrases"),
        ({"regions": ""}, "`--regions` must name features"),
        ({"phrases": "nothing.jsonl"}, "`--phrases` must name what is there"),
        ({"regions": "nothing"}, "`--regions` must name what is there"),
        ({"dev_split": "x"}, "`--dev_split` must be a split that .*split=x"),
        ({"cnn_weights": "random", "export": True}, "`--cnn_weights` must"),
        ({"images": "none"}, "`--images` must name what is there"),
        ({"images": "."}, "`--images` must hold every image of split train"),
    ],
)
def test_what_is_not_there_is_named_before_anything(
    folder, tmp_path, changes, message
):
    found = tiny_phrases.settings(folder, tmp_path / "run", **changes)
    with pytest.raises((ValueError, FileNotFoundError), match=message):
        runs.prepare(found, runs.start(found, False))
    assert not (tmp_path / "run").exists()
