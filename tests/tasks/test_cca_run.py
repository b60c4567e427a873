"""CCA in a run: trained, resumed, evaluated and exported as all are."""

import numpy as np
import pytest

from tbnets.serving.served import load_saved_model
from tbnets.tasks import runs
from tbnets.training import loop, summary
from tests import tiny

# Which graph is traced is no matter here.
pytestmark = pytest.mark.usefixtures("module_eagerly")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Images as everywhere, and the words of each caption counted."""
    folder = tiny.write_precomputed(tmp_path_factory.mktemp("data"))
    for split in tiny.SPLITS:
        lines = (folder / f"{split}_caps.txt").read_text().splitlines()
        counts = [
            [line.split().count(word) for word in tiny.WORDS] for line in lines
        ]
        np.save(folder / f"{split}_txt.npy", np.array(counts, "float32"))
    return folder


def settings(folder, run_dir, **changes):
    given = {
        "model": "cca",
        "text_encoder": "features",
        "text_features": "{split}_txt.npy",
        "cca_dim": 4,
        **changes,
    }
    return tiny.settings(folder, run_dir, **given)


def train(found, resume=False):
    session, examples = runs.prepare(found, runs.start(found, resume))
    loop.fit(session, examples)
    return session


@pytest.fixture(scope="module")
def session(folder, tmp_path_factory):
    # `tiny` asks for four epochs: there is one.
    session = train(settings(folder, tmp_path_factory.mktemp("runs") / "run"))
    runs.finish(session)
    return session


def test_one_epoch_is_all(session):
    assert session.state.epoch == 1
    row = session.state.history[0]
    assert 0 < row["train/total_loss"] < 1
    # Chance is R@1 of 1/6 both ways.
    assert row["dev/image_to_text/recall_at_1"] > 0.4
    # One epoch is no curve, and arrays are no photos.
    assert not [*session.run_dir.glob("*.png")]


def test_it_opens_with_the_same_results(session):
    opened = runs.open_run(session.run_dir)
    test = opened.task.data.load("test", opened.state.fitted)
    wanted = session.task.scores(session.network, test)
    found = opened.task.scores(opened.network, test)
    for name, array in wanted.arrays.items():
        np.testing.assert_array_equal(found.arrays[name], array)


def test_finished_run_has_nothing_to_go_on_with(session):
    again = settings(session.settings.captions.data_root, session.run_dir)
    said = summary.finished(again, runs.start(again, True))
    assert "--model=cca has nothing to train longer" in said


def test_resumed_run_is_the_same(session, folder):
    network = train(settings(folder, session.run_dir), resume=True).network
    for one, other in zip(network.weights, session.network.weights):
        np.testing.assert_array_equal(one.numpy(), other.numpy())


def test_it_exports(session):
    model = load_saved_model(runs.export(session))
    texts = np.eye(6, dtype="float32")
    np.testing.assert_allclose(
        model.embed_text(texts), session.network.embed_text(texts), atol=1e-6
    )


@pytest.mark.parametrize("flag", ["epochs=3", "learning_rate=0.1", "margin=1"])
def test_flags_of_gradients_are_refused(flag):
    name, _, value = flag.partition("=")
    with pytest.raises(ValueError, match=f"`--{name}` .*--model=embedding"):
        tiny.unread("--model=cca", f"--{flag}")


def test_seed_is_read_as_it_draws_captions(folder, tmp_path):
    for split, count in tiny.SPLITS.items():
        texts = np.random.default_rng(0).normal(size=(2 * count, 6))
        np.save(folder / f"{split}_drawn.npy", texts.astype("float32"))
    line = {"text_features": "{split}_drawn.npy", "captions_per_image": 1}
    weights = []
    for seed in (1, 2):
        found = settings(folder, tmp_path / str(seed), seed=seed, **line)
        # Of its two captions, an image brings the one that is drawn.
        tiny.unread("--model=cca", f"--seed={seed}")
        weights.append(train(found).network.text_branch.get_weights()[-1])
    assert not np.allclose(*weights)


def test_flags_of_cca_are_its_own():
    with pytest.raises(ValueError, match="`--cca_dim` .*--model=cca"):
        tiny.unread("--cca_dim=3")


def test_background_is_of_photos_with_regions():
    for more, message in (
        ((), "--regions and"),
        (
            ("--task=localization", "--negative_regions=batch"),
            "--negative_regions=photo",
        ),
    ):
        with pytest.raises(ValueError, match=f"read with .*{message}"):
            tiny.unread("--model=cca", "--cca_background=2", *more)


def test_encoder_that_wants_training_is_refused(folder, tmp_path):
    with pytest.raises(
        ValueError, match="must be features .*--text_features=features/tfidf"
    ):
        train(settings(folder, tmp_path / "run", text_encoder="mean"))
    assert not (tmp_path / "run").exists()


def test_means_of_words_that_stay_have_nothing_to_train(folder, tmp_path):
    rows = np.random.default_rng(0).normal(size=(len(tiny.WORDS), 5))
    lines = (
        f"{word} {' '.join(map(str, row))}\n"
        for word, row in zip(tiny.WORDS, rows)
    )
    (folder / "vectors.txt").write_text("".join(lines))
    words = {"text_encoder": "mean", "word_vectors": "vectors.txt"}
    words |= {"word_vectors_training": "frozen", "cca_dim": 0}
    session = train(settings(folder, tmp_path / "run", **words))
    # Of 8 image and 5 text features, 5 directions are most.
    assert session.network.text_branch.projection.shape == (5, 5)


def test_more_dimensions_than_features_are_refused(folder, tmp_path):
    with pytest.raises(
        ValueError, match="8 image and 6 text.*Lower `output_dim`"
    ):
        train(settings(folder, tmp_path / "run", cca_dim=7))
