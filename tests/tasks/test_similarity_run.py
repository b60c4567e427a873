"""The similarity network in a run: trained, resumed, measured, exported."""

import json

import numpy as np
import pytest
import tensorflow as tf
from zoo_making.served import served_scores

from tbnets import tasks
from tbnets.evaluation import ranking, retrieval, score_tiles
from tbnets.serving.served import load_saved_model
from tbnets.tasks import runs
from tbnets.tasks.matching.scores import RetrievalScores
from tbnets.training import loop, summary
from tbnets.training.retrieval_metrics import PairScorer
from tests import fresh, reference, tiny, verbs

# Which graph is traced is no matter here.
pytestmark = pytest.mark.usefixtures("module_eagerly")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tiny.write_precomputed(tmp_path_factory.mktemp("data"))


def settings(folder, run_dir, **changes):
    given = {
        "model": "similarity",
        "head_units": "6,3",
        "dropout": 0.2,
        "head_dropout": 0.1,
        **changes,
    }
    return tiny.settings(folder, run_dir, **given)


def train(found, resume=False):
    session, examples = runs.prepare(found, runs.start(found, resume))
    print(summary.describe_run(session, examples))
    loop.fit(session, examples)
    return session


@pytest.fixture(scope="module")
def session(folder, tmp_path_factory):
    """Trains four epochs; beside it lies the folder as it was after two."""
    run_dir = tmp_path_factory.mktemp("runs") / "run"
    with tiny.copied_after(2, run_dir, run_dir.with_name("stopped")):
        session = train(settings(folder, run_dir, epochs=4))
    runs.finish(session)
    return session


@pytest.fixture(scope="module")
def opened(session):
    """The run's best epoch, opened again, and its scores of the test split."""
    opened = runs.open_run(session.run_dir)
    test = opened.task.data.load("test", opened.state.fitted)
    return opened, opened.task.scores(opened.network, test)


@pytest.fixture(scope="module")
def model(opened):
    return load_saved_model(runs.export(opened[0]))


def test_it_reports_as_all_do(session):
    row = session.state.history[0]
    assert 0 < row["train/total_loss"] < 3
    assert 0 <= row["train/pair_accuracy"] <= 1
    assert "dev/image_to_text/recall_at_1" in row
    assert not any("text_to_text" in key for key in row)
    report = json.loads((session.run_dir / "metrics.json").read_text())
    assert report["test"]["text_to_image/num_queries"] == 12


def test_resumed_run_is_bit_for_bit_the_same(session, folder):
    stopped = session.run_dir.with_name("stopped")
    straight = runs.open_run(session.run_dir, "last").network
    again = train(settings(folder, stopped, epochs=4), resume=True)
    assert again.state.epoch == 4
    for one, other in zip(straight.weights, again.network.weights):
        np.testing.assert_array_equal(one.numpy(), other.numpy())


def whole_matrix(network, scores):
    return network.similarities(
        tf.constant(scores.image_embeddings),
        tf.constant(scores.text_embeddings),
    ).numpy()


@pytest.mark.parametrize("pairs_at_once", [1, 5, 8192])
def test_tiles_are_those_of_the_whole_matrix(
    opened, pairs_at_once, monkeypatch
):
    session, scores = opened
    whole = whole_matrix(session.network, scores)
    scorer = PairScorer(session.network)
    monkeypatch.setattr(scorer, "pairs_at_once", pairs_at_once)
    pairs = scorer.scores(scores.image_embeddings, scores.text_embeddings)
    rows, columns = np.array([5, 0, 2]), np.array([11, 3, 4, 0])
    tile = pairs.tile(rows, columns)
    np.testing.assert_allclose(tile, whole[np.ix_(rows, columns)], 1e-5, 1e-6)
    found = pairs.pairs(rows, columns[:3])
    np.testing.assert_allclose(found, whole[rows, columns[:3]], 1e-5, 1e-6)


def test_metrics_are_those_of_the_whole_matrix(session, opened):
    again, scores = opened
    whole = whole_matrix(again.network, scores)
    wanted = retrieval.evaluate_scores_protocol(
        "full",
        score_tiles.PairScores(
            *whole.shape,
            lambda images, texts: whole[np.ix_(images, texts)],
            lambda images, texts: whole[images, texts],
        ),
        scores.records.caption_to_image,
    )
    assert scores.metrics() == wanted
    report = json.loads((session.run_dir / "metrics.json").read_text())
    assert report["test"] == pytest.approx(wanted)


def test_little_memory_makes_small_tiles(opened):
    network = opened[0].network
    # A pair: 2 * 4 + 6 + 3 numbers of 4 bytes; 68 KiB hold 1024 of them.
    scorer = PairScorer(network, 68 / 1024)
    assert scorer.pairs_at_once == 1024
    assert PairScorer(network, 1e-9).pairs_at_once == 1


def test_what_it_can_not_show_is_left_out(opened):
    _, scores = opened
    assert scores.points() is None and scores.arrays == {}


def test_exported_model_compares_as_the_run(opened, model, folder):
    session, scores = opened
    whole = whole_matrix(session.network, scores)
    captions = session.task.data.split("test").records.captions
    features = np.load(folder / "test_ims.npy")
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
        assert [row for row, _ in answered] == order.tolist()


def test_served_scores_give_the_same_metrics(opened, model):
    session, scores = opened
    served = served_scores(session.task, model, "test")
    assert served.metrics() == scores.metrics()


CLIENT = """
import sys
import numpy as np
import tensorflow as tf
import tensorflow_text

model = tf.saved_model.load(sys.argv[1])
features = tf.constant(np.load(sys.argv[2]))
captions = tf.constant(["dog red", "cat"])
embeddings = model.embed_image(features), model.embed_text(captions)
np.savez(
    sys.argv[3],
    score=model.score(features, captions)["similarities"],
    compare=model.compare(*[e["embeddings"] for e in embeddings])[
        "similarities"
    ],
)
assert "tbnets" not in sys.modules
"""


def test_exported_model_in_a_fresh_process(model, folder, tmp_path):
    features = folder / "test_ims.npy"
    out = tmp_path / "out.npz"
    fresh.run(
        *("-c", CLIENT, model.path.resolve(), features, out),
        check=True,
        cwd=tmp_path,
        with_tbnets=False,
    )
    wanted = model.similarity(np.load(features), ["dog red", "cat"])
    with np.load(out) as found:
        for name in ("score", "compare"):
            np.testing.assert_allclose(found[name], wanted, 1e-5, 1e-6)


def test_query_tool_ranks_by_the_head(session, model, folder):
    text = verbs.run(
        "query",
        f"--model={session.run_dir}",
        f"--image_features={folder / 'test_ims.npy'}",
        "--top=6",
        "dog red",
    ).stdout
    scores = model.similarity(np.load(folder / "test_ims.npy"), ["dog red"])
    order = np.argsort(-scores[:, 0], kind="stable")
    found = [line.split()[-1] for line in text.splitlines()[2:]]
    assert found == [f"test{i}.jpg" for i in order]


@pytest.fixture(scope="module")
def embedding(folder, tmp_path_factory):
    """An embedding network on the same data."""
    run_dir = tmp_path_factory.mktemp("runs") / "embedding"
    return train(tiny.settings(folder, run_dir, epochs=1))


def scores_of(session):
    test = session.task.data.load("test", session.state.fitted)
    return session.task.scores(session.network, test)


def test_two_models_are_taken_together(opened, embedding):
    session, scores = opened
    others = scores_of(embedding)
    both = {one: scores.combine(others, one) for one in (0.0, 0.3, 1.0)}
    # Dividing by a spread changes no rank.
    assert both[0.0].metrics() == scores.metrics()
    alone = others.metrics(text_to_text=False)
    assert both[1.0].metrics() == pytest.approx(alone)
    images, texts = np.arange(6), np.arange(12)
    logits = whole_matrix(session.network, scores)
    inner = others.image_embeddings @ others.text_embeddings.T
    distances = np.sqrt(np.maximum(2 - 2 * inner, 0))
    wanted = 0.7 * logits / logits.std() - 0.3 * distances / distances.std()
    found = both[0.3].pairs.tile(images, texts)
    # 65536 random pairs of the 72 give the spread.
    np.testing.assert_allclose(found, wanted, rtol=0.03, atol=0.03)


def test_two_distances_are_added_as_they_are(embedding):
    scores = scores_of(embedding)
    same, _ = scores.pair_scores(scores.records)
    both = scores.combine(scores, 0.3)
    rows = np.arange(6)
    one = same.tile(rows, rows)
    found = both.pairs.tile(rows, rows)
    np.testing.assert_allclose(found, one, 1e-5, 1e-6)


def test_a_bank_levels_runs_taken_together(session, embedding, tmp_path):
    parts = []
    for one in session, embedding:
        fitted = one.state.fitted
        parts.append(
            [
                one.task.scores(one.network, one.task.data.load(split, fitted))
                for split in ("test", "train")
            ]
        )

    def together(temperature):
        one, two = (own.with_bank(bank, temperature) for own, bank in parts)
        return one.combine(two, 0.3).metrics()

    # Whose default is 0.4: of so few photos not every other one differs.
    others = [(one, together(one)) for one in (0.02, 0.1, 1.0, 2.0, 9.0)]
    usual = together(0.4)
    temperature, wanted = next(pair for pair in others if pair[1] != usual)
    told = verbs.run(
        "evaluate",
        f"--run_dir={session.run_dir}",
        f"--combine_with={embedding.run_dir}",
        "--query_bank=train",
        f"--bank_temperature={temperature}",
        f"--json={tmp_path / 'metrics.json'}",
    )
    assert "test, query bank: train" in told.stdout, told.stderr
    assert json.loads((tmp_path / "metrics.json").read_text()) == wanted
    learned, distances = (one.with_bank(two, 0.3) for one, two in parts)
    # All pairs at once: rows behind the split's are those of the bank.
    images, texts = (np.arange(count) for count in learned.pairs[:2])
    assert len(images) > 6 and len(texts) > 12
    rows = images[:6], texts[:12]
    plain = parts[0][0].combine(parts[1][0], 0.3)
    found = learned.combine(distances, 0.3).pairs.tile(*rows)
    np.testing.assert_allclose(found, plain.pairs.tile(*rows), 1e-5, 1e-5)
    found = distances.combine(distances, 0.3).pairs.tile(*rows)
    np.testing.assert_allclose(found, distances.pairs.tile(*rows), 1e-5, 1e-5)
    whole = ranking.level(learned.pairs, 6, 12, 0.3)
    levels = [
        reference.bank_level(row, 0.3 * score_tiles.spread(parts[0][0].pairs))
        for row in learned.pairs.tile(images[:6], texts[12:])
    ]
    np.testing.assert_allclose(whole.image_levels, levels, rtol=1e-4)


def test_a_bank_that_can_not_be_is_refused(embedding):
    line = ("evaluate", f"--run_dir={embedding.run_dir}")
    for words, message in {
        ("--query_bank=test",): "must be another split than --split",
        ("--bank_temperature=1",): "must come with --query_bank",
        ("--split=val", "--query_bank=dev"): "must be another split than",
        ("--query_bank=none",): "Received: --query_bank=none",
    }.items():
        refused = verbs.run(*line, *words)
        assert refused.returncode and message in refused.stderr


def test_other_captions_are_not_combined(opened, tmp_path):
    _, scores = opened
    data = tiny.write_precomputed(tmp_path / "data", seed=1)
    other = tasks.open_task(tiny.settings(data, tmp_path / "run"))
    records = other.data.split("test").records
    others = RetrievalScores(None, None, records)
    with pytest.raises(
        ValueError, match="`--combine_with` .*other captions, '.* in row"
    ):
        scores.combine(others, 0.3)


def test_tool_evaluates_alone_and_together(session, embedding, tmp_path):
    line = ("evaluate", f"--run_dir={session.run_dir}")
    alone = verbs.run(*line).stdout
    assert "recall sum" in alone and "text to text" not in alone
    other = (f"--combine_with={embedding.run_dir}", "--combine_weight=0")
    both = verbs.run(*line, *other).stdout
    assert both.splitlines()[1:] == alone.splitlines()[1:]
    two_others = f"{other[0]},{session.run_dir}"  # The last is the first one.
    for weights in ("0.4,1", "1"):
        line_of_three = (*line, two_others, f"--combine_weight={weights}")
        three = verbs.run(*line_of_three).stdout
        assert three.splitlines()[1:] == alone.splitlines()[1:]
    refused = verbs.run(*line, two_others, "--combine_weight=0,0,1")
    assert "one for each run of --combine_with" in refused.stderr
    refused = verbs.run(*line, f"{two_others},{tmp_path}")
    assert f"{str(tmp_path)!r}, without settings.json" in refused.stderr
    refused = verbs.run(*line, f"--save_embeddings={tmp_path / 'embeddings'}")
    assert refused.returncode
    assert "`--save_embeddings` must come with a run that" in refused.stderr
    assert not (tmp_path / "embeddings").exists()
    refused = verbs.run(*line, "--combine_weight=0.5")
    assert "must come with --combine_with" in refused.stderr


@pytest.mark.parametrize(
    "flag, reader",
    [
        ("--margin=1", "--model=embedding"),
        ("--loss=wang2018", "--model=embedding"),
        ("--cca_dim=3", "--model=cca"),
    ],
)
def test_flags_of_other_models_are_refused(flag, reader):
    name = flag.partition("=")[0]
    with pytest.raises(ValueError, match=f"`{name}` .*read with {reader}"):
        tiny.unread("--model=similarity", flag)


def test_its_flags_are_its_own():
    with pytest.raises(ValueError, match="_candidates` .*--model=similarity"):
        tiny.unread("--num_candidates=3")


def test_draws_are_of_the_loss_that_draws():
    flags = ["--model=similarity", "--pair_loss=softmax", "--num_candidates=3"]
    with pytest.raises(ValueError, match="_candidates` .*--pair_loss=logistic"):
        tiny.unread(*flags)


@pytest.mark.parametrize(
    "head_units, sizes", [("", [1]), ("5", [5, 1]), ("5,3", [5, 3, 1])]
)
def test_one_two_or_three_layers(folder, tmp_path, head_units, sizes):
    found = settings(folder, tmp_path / "run", head_units=head_units)
    session, _ = runs.prepare(found, runs.start(found, False))
    kernels = [v for v in session.network.head.weights if len(v.shape) == 2]
    assert [kernel.shape[1] for kernel in kernels] == sizes
