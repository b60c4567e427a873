"""The similarity network in a run: scored by tiles, combined, served."""

import json

import numpy as np
import pytest
import tensorflow as tf

from tbnets.evaluation import retrieval, score_tiles
from tbnets.tasks import registry
from tbnets.tasks.retrieval_scores import RetrievalScores
from tbnets.training.retrieval_metrics import PairScorer
from tests import lifecycle, reference, tiny, verbs
from tests.refusals import refused

# Which graph is traced is no matter here.
pytestmark = pytest.mark.usefixtures("module_eagerly")


@pytest.fixture(scope="module")
def run(tiny_run):
    return tiny_run("matching", "similarity")


@pytest.fixture(scope="module")
def embedding(tiny_run):
    """An embedding network on the same data."""
    return tiny_run("matching", "embedding")


test_it_resumes = lifecycle.resumes_bit_for_bit
test_it_exports = lifecycle.exports_the_same_results


def whole_matrix(run):
    return run.opened.network.similarities(
        tf.constant(run.scores.image_embeddings),
        tf.constant(run.scores.text_embeddings),
    ).numpy()


def test_tiles_equal_the_whole_score_matrix(run, monkeypatch):
    whole, scores = whole_matrix(run), run.scores
    scorer = PairScorer(run.opened.network)
    monkeypatch.setattr(scorer, "pairs_at_once", 5)
    pairs = scorer.scores(scores.image_embeddings, scores.text_embeddings)
    rows, columns = np.array([5, 0, 2]), np.array([11, 3, 4, 0])
    tile = pairs.tile(rows, columns)
    np.testing.assert_allclose(tile, whole[np.ix_(rows, columns)], 1e-5, 1e-6)
    found = pairs.pairs(rows, columns[:3])
    np.testing.assert_allclose(found, whole[rows, columns[:3]], 1e-5, 1e-6)


def test_metrics_equal_those_of_the_whole_score_matrix(run):
    whole = whole_matrix(run)
    wanted = retrieval.evaluate_scores_protocol(
        "full",
        score_tiles.PairScores(
            *whole.shape,
            lambda images, texts: whole[np.ix_(images, texts)],
            lambda images, texts: whole[images, texts],
        ),
        run.scores.records.caption_to_image,
    )
    assert run.scores.metrics() == wanted
    assert run.scores.points() is None and run.scores.arrays == {}


def test_little_memory_makes_small_tiles(run):
    network = run.opened.network
    # A pair: 2 * 4 + 6 + 3 numbers of 4 bytes; 68 KiB hold 1024 of them.
    scorer = PairScorer(network, 68 / 1024)
    assert scorer.pairs_at_once == 1024
    assert PairScorer(network, 1e-9).pairs_at_once == 1


@pytest.fixture(scope="module")
def features(tiny_run):
    return np.load(tiny_run.captioned / "test_ims.npy")


def test_exported_model_scores_pairs_like_the_network(run, features):
    whole, scores, model = whole_matrix(run), run.scores, run.model
    captions = scores.records.captions
    found = model.similarity(features, captions)
    np.testing.assert_allclose(found, whole, 1e-4, 1e-5)
    images, texts = model.embed_images(features), model.embed_text(captions)
    np.testing.assert_allclose(images, scores.image_embeddings, 1e-4, 1e-5)
    np.testing.assert_allclose(model.compare(images, texts), whole, 1e-4, 1e-5)
    assert model.compare(images, texts[:0]).shape == (6, 0)
    assert model.has("compare")
    answers = model.search(captions[:2], features, top=3)
    for query, answered in enumerate(answers):
        order = np.argsort(-whole[:, query], kind="stable")[:3]
        assert [answer.image for answer in answered] == order.tolist()


def test_query_ranks_by_the_similarity_head(run, tiny_run, features):
    text = verbs.run(
        "query",
        f"--model={run.run_dir}",
        f"--image_features={tiny_run.captioned / 'test_ims.npy'}",
        "--top=6",
        "dog red",
    ).stdout
    scores = run.model.similarity(features, ["dog red"])
    order = np.argsort(-scores[:, 0], kind="stable")
    found = [line.split()[-1] for line in text.splitlines()[2:]]
    assert found == [f"test{i}.jpg" for i in order]


def test_combined_scores_are_weighted_sums(run, embedding):
    scores, others = run.scores, embedding.scores
    both = {one: scores.combine(others, one) for one in (0.0, 0.3, 1.0)}
    # Dividing by a spread changes no rank.
    assert both[0.0].metrics() == scores.metrics()
    alone = others.metrics(text_to_text=False)
    assert both[1.0].metrics() == pytest.approx(alone)
    images, texts = np.arange(6), np.arange(12)
    logits = whole_matrix(run)
    inner = others.image_embeddings @ others.text_embeddings.T
    distances = np.sqrt(np.maximum(2 - 2 * inner, 0))
    wanted = 0.7 * logits / logits.std() - 0.3 * distances / distances.std()
    found = both[0.3].pairs.tile(images, texts)
    # 65536 random pairs of the 72 give the spread.
    np.testing.assert_allclose(found, wanted, rtol=0.03, atol=0.03)


def test_query_bank_normalises_combined_runs(run, embedding, tmp_path):
    parts = []
    for one in run, embedding:
        task, network = one.opened.task, one.opened.network
        train = task.load("train", one.opened.state.fitted)
        bank = task.scores(network, train)
        parts.append(one.scores.with_bank(bank, 9.0))
    told = verbs.run(
        "evaluate",
        f"--run_dir={run.run_dir}",
        f"--combine_with={embedding.run_dir}",
        "--query_bank=train",
        "--bank_temperature=9",
        f"--json={tmp_path / 'metrics.json'}",
    )
    assert "test, query bank: train" in told.stdout, told.stderr
    wanted = parts[0].combine(parts[1], 0.3).metrics()
    assert json.loads((tmp_path / "metrics.json").read_text()) == wanted
    # Rows behind the split's are those of the bank.
    learned = parts[0].pairs
    whole = score_tiles.normalize(learned, 6, 12, 0.3)
    levels = [
        reference.bank_level(row, 0.3 * score_tiles.spread(run.scores.pairs))
        for row in learned.tile(np.arange(6), np.arange(12, learned.num_texts))
    ]
    np.testing.assert_allclose(whole.image_levels, levels, rtol=1e-4)


def test_runs_on_different_captions_are_not_combined(run, tmp_path):
    data = tiny.write_precomputed(tmp_path / "data", seed=1)
    other = registry.open_task(tiny.settings(data, tmp_path / "run"))
    records = other.split("test").records
    with refused("--combine_with"):
        run.scores.combine(RetrievalScores(None, None, records), 0.3)


def test_evaluate_measures_one_run_and_combined_runs(run, embedding):
    line = ("evaluate", f"--run_dir={run.run_dir}")
    with refused("--save_embeddings"):
        verbs.call(*line, "--save_embeddings=never")
    alone = verbs.run(*line).stdout
    assert "recall sum" in alone and "text to text" not in alone
    # The last is the first one.
    others = f"--combine_with={embedding.run_dir},{run.run_dir}"
    three = verbs.run(*line, others, "--combine_weight=0.4,1").stdout
    assert three.splitlines()[1:] == alone.splitlines()[1:]
