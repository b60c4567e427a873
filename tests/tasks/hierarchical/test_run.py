"""HM-LSTM in a run: correspondences, what it ranks, and its export."""

import dataclasses

import numpy as np
import pytest

from tbnets.data.phrase_pairs import CHOICE, CONFIDENCE
from tbnets.tasks import hierarchical as matcher
from tbnets.tasks import runs
from tbnets.text import trees as tree_files
from tests import lifecycle
from tests.refusals import refused

# A step in a graph is that without: tests/models/test_hm_lstm.py.
pytestmark = pytest.mark.usefixtures("module_eagerly")


@pytest.fixture(scope="module")
def run(tiny_run):
    return tiny_run("matching", "hm_lstm")


test_it_opens = lifecycle.opens_with_the_same_results


def test_training_lowers_the_loss_and_reports_correspondences(run):
    rows = run.history
    for name in ("image_to_text", "text_to_image"):
        first, last = (row[f"train/{name}_loss"] for row in rows)
        assert last < 0.95 * first
    # Pairs weigh nothing before they are known.
    weighs = [row["train/phrase_to_region_loss"] > 0 for row in rows]
    assert weighs == [False, True]
    report = run.report["test"]
    assert 0 < report["correspondence_chance"] < 1
    assert 0 <= report["correspondence_accuracy"] <= 1
    # Each phrase of a scene is a noun phrase of its gold tree, or all of it.
    assert report["correspondence_exact_spans"] == 1


def test_each_phrase_holds_its_most_similar_candidate(run):
    examples, network = run.examples, run.session.network
    found = matcher.Matcher(network).match(examples)
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


def test_another_choice_changes_only_the_metrics_of_correspondences(run):
    scores = run.scores.phrases
    usual = scores.metrics()
    assert scores.metrics(choice_temperature=0.3) == usual
    other = scores.metrics(choice="expected_overlap", choice_temperature=0.3)
    same = {name for name in usual if usual[name] == other[name]}
    assert usual.keys() - same <= {
        "correspondence_accuracy",
        "correspondence_pointing_accuracy",
    }
    with refused("choice"):
        scores.metrics(choice="mean_box")
    unknown = dataclasses.replace(scores, table=None)
    assert unknown.metrics() == {} and unknown.options == ()


def test_resumed_run_is_bit_identical_and_uses_no_links(run, monkeypatch):
    no_links = property(lambda task: False)
    monkeypatch.setattr(type(run.session.task), "knows_links", no_links)
    lifecycle.resumes_bit_for_bit(run)
    history = runs.open_run(run.stopped, "last").state.history
    measured = ["dev/correspondence_accuracy" in row for row in history]
    assert measured == [True, False]


def test_regions_and_phrases_rank_each_other(run):
    ranked = run.scores.metrics(region_phrase_ranking=True)
    assert ranked["phrase_to_true_region/num_queries"] > 9
    assert ranked["true_region_to_phrase/recall_at_10"] > 0
    assert [*run.scores.arrays] == [
        *("image_embeddings", "text_embeddings", "caption_to_image")
    ]


def test_pictures_are_drawn_for_phrases_with_boxes(run):
    assert (run.run_dir / runs.EXAMPLES).is_file()
    names = [f"phrases_{number}" for number in range(1, 6)]
    assert sorted(run.scores.pictures())[-5:] == names


def test_exported_model_embeds_like_the_network(run, tiny_run):
    opened, test, scores = run.opened, run.test, run.scores
    said = test.records.captions[:9]
    gold = tree_files.trees_of(tiny_run.scenes / "scenes" / "trees", said)
    model = run.model
    np.testing.assert_allclose(
        model.embed_text(gold), scores.text_embeddings[:9], 1e-4, 1e-5
    )
    with refused("texts"):
        model.embed_text("a dog")

    captions = np.arange(9)
    found = model.embed_images(test.images.batch(np.arange(3)))
    np.testing.assert_allclose(found, scores.image_embeddings[:3], 1e-4, 1e-5)
    trees = test.texts.batch(captions)
    phrases = model.call("embed_noun_phrases", trees=trees)
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
        model.call("embed_regions", region_features=regions)["embeddings"],
        opened.network.embed_regions(regions),
        1e-4,
        1e-5,
    )


def test_points_are_images_captions_and_noun_phrases(run):
    points = run.scores.points((2, 2))
    texts, kinds, images = map(np.array, points.columns.values())
    assert kinds[:6].tolist() == 2 * ["image"] + 4 * ["caption"]
    assert set(kinds[6:]) == {"noun phrase"}
    # At most one for each caption, and each wording once.
    assert 0 < len(texts[6:]) == len(set(texts[6:])) <= 4
    assert points.thumbnails.shape[0] == len(points.vectors) == len(texts)
    for row in range(6, len(texts)):
        said = texts[(images == images[row]) & (kinds == "caption")]
        assert any(texts[row] in caption.lower() for caption in said)
