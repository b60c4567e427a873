"""Phrase localization in a run: regions ranked, pictures, its export."""

import dataclasses

import numpy as np
import pytest
from zoo_making.served import served_scores

from tbnets.data.phrase_examples import record_hard_negatives
from tbnets.evaluation import boxes
from tbnets.tasks import runs
from tbnets.tasks.retrieval_scores import RetrievalScores
from tests import lifecycle, reference, tiny
from tests.refusals import refused
from tests.tiny_runs import prepared

# A step in a graph is tested with the models.
pytestmark = pytest.mark.usefixtures("module_eagerly")


@pytest.fixture(scope="module", params=["embedding", "similarity"])
def run(request, tiny_run):
    return tiny_run("localization", request.param)


test_it_learns = lifecycle.learns
test_it_resumes = lifecycle.resumes_bit_for_bit
test_it_opens = lifecycle.opens_with_the_same_results


def test_hard_negatives_are_found_by_the_current_network(run):
    session = runs.open_run(run.stopped, "last")
    scores = session.task.scores(session.network, run.examples)
    scores = scores.table.similarities
    wanted = reference.hard_negatives(scores, run.examples.roles, 50)
    data = session.task
    recorded = data.held["hard_negatives"]
    assert recorded.dtype == np.int16 and (recorded >= 0).any()
    data.batches(run.examples)
    # Epochs before the last two go without; these use the recorded table.
    last = run.settings.epochs - 1
    data.start_epoch(session.network, run.examples, last - 2)
    assert data.drawn.hard_negatives is None
    data.start_epoch(session.network, run.examples, last)
    assert data.drawn.hard_negatives is recorded
    assert data.held["hard_negatives_recorded"] == last - 1
    # A run that is given more epochs records them anew.
    data.settings = data.settings.replace(epochs=run.settings.epochs + 1)
    data.batches(run.examples)
    data.start_epoch(session.network, run.examples, last)
    assert data.held["hard_negatives_recorded"] == last
    table = data.held["hard_negatives"]
    assert [row[row >= 0].tolist() for row in table] == wanted
    for wrong in (np.zeros((3, 2), np.int16), np.full((60, 2), 99, np.int16)):
        with refused("--phrases"):
            held = {**run.held, "hard_negatives": wrong}
            record_hard_negatives(held, last - 1, run.examples, None)


def test_report_has_types_of_phrases_and_the_upper_bound(run):
    report = run.report["test"]
    assert report["phrase_to_region/num_queries"] == 24
    assert report["phrase_to_region/upper_bound"] == 1
    assert report["phrase_to_region/animals/num_queries"] > 0
    assert run.report["test_split"]["phrases"] == 24


def test_pictures_are_drawn_if_there_are_photos(run):
    tags = tiny.events(run.run_dir / "tensorboard")
    pictures = {tag: steps for tag, steps in tags.items() if "answers" in tag}
    has_photos = run.settings.run.model == "embedding"
    names = [f"2_answers/phrases_{number}" for number in range(1, 5)]
    assert sorted(pictures) == (names if has_photos else [])
    assert ("pictures  none" in run.described) != has_photos


def test_exported_model_compares_like_the_network(run):
    test, served = run.test, run.model
    wanted = run.scores.table.similarities
    again = served_scores(run.opened.task, served, "test")
    np.testing.assert_allclose(again.table.similarities, wanted, 1e-5, 1e-5)
    [rows] = np.nonzero(test.phrases.phrase_to_image == 2)
    phrases = [test.phrases.phrases[row] for row in rows]
    numbers = np.arange(test.regions.counts[2])
    features = test.regions.take(np.full_like(numbers, 2), numbers)
    found = served.compare(
        served.embed_phrases(phrases), served.embed_regions(features)
    )
    wanted = wanted[rows, : len(features)]
    np.testing.assert_allclose(found, wanted, 1e-5, 1e-5)


def scores_of_true_regions(network, test):
    """Scores [things, distinct phrases] and which belong together."""
    phrases = test.phrases
    chains, texts = phrases.phrase_to_chain, phrases.phrase_to_text
    regions, is_said = [], np.zeros((12, max(texts) + 1), bool)
    for chain in range(12):
        row = list(chains).index(chain)
        image = phrases.phrase_to_image[row : row + 1]
        proposals = test.regions.boxes[image[0]]
        overlaps = boxes.iou(phrases.boxes[row : row + 1], proposals)[0]
        regions += [*test.regions.take(image, overlaps.argmax())]
        is_said[chain, texts[chains == chain]] = True
    rows = [list(texts).index(text) for text in range(is_said.shape[1])]
    said = test.texts.batch(np.array(rows))
    found = network.similarities(
        network.embed_images(np.array(regions, "float32")),
        network.embed_text(said),
    )
    return found.numpy(), is_said


def test_true_regions_without_proposals_are_not_queries(run):
    opened, test = run.opened, run.test
    corner = np.tile([0.0, 0, 1, 1], (test.phrases.num_phrases, 1))
    phrases = dataclasses.replace(test.phrases, boxes=corner)
    test = dataclasses.replace(test, phrases=phrases)
    scores = opened.task.scores(opened.network, test)
    metrics = scores.metrics(region_phrase_ranking=True)
    assert metrics["true_region_to_phrase/num_queries"] == 0
    assert metrics["phrase_to_region/upper_bound"] == 0


def test_true_regions_and_phrases_rank_each_other(run):
    opened, test, scores = run.opened, run.test, run.scores
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
    both = scores.combine(scores, 0.5)
    assert "region_phrase_ranking" not in both.options


def test_photos_are_compared_with_sentences_by_their_phrases(run):
    scores = run.scores
    nearest = scores.scorer.nearest(run.test, scores.sides["phrases"])
    owners = scores.table.images
    own = nearest[owners, np.arange(len(owners))]
    # Each photo has as many regions, so no row of the table is padded.
    wanted = scores.table.similarities.max(axis=1)
    np.testing.assert_allclose(own, wanted, 1e-5, 1e-5)
    records = run.opened.task.split("test").records
    if run.opened.network.learned_similarity:
        with refused("--combine_with"):
            scores.pair_scores(records)
        return
    # Here a caption is its one phrase.
    found, _ = scores.pair_scores(records)
    rows = np.arange(records.num_images), np.arange(records.num_captions)
    np.testing.assert_allclose(
        np.sort(found.tile(*rows)),
        np.sort(-np.sqrt(np.maximum(2 - 2 * nearest, 0))),
        *(1e-5, 1e-5),
    )


def test_runs_on_different_phrases_are_not_combined(run):
    boxes = run.scores.table.boxes + 1
    table = dataclasses.replace(run.scores.table, boxes=boxes)
    others = dataclasses.replace(run.scores, table=table)
    for other in (others, RetrievalScores(None, None, None)):
        with refused("--combine_with"):
            run.scores.combine(other, 0.5)


def test_feature_statistics_come_from_training_regions(tiny_run, tmp_path):
    settings = tiny_run.settings(
        tmp_path / "run", "localization", image_transform="standardize"
    )
    session, train_examples = prepared(settings)
    regions = np.concatenate([*train_examples.regions.samples()])
    expected = regions.astype("float64").mean(axis=0)
    mean = session.network.image_encoder.mean.numpy()
    np.testing.assert_allclose(mean, expected, 1e-4, 1e-5)
