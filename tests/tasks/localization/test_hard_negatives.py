"""Fine-tuning with hard negatives: recorded once, kept, and resumed."""

import numpy as np
import pytest

from tbnets.data.localization import hard_negatives
from tbnets.tasks import runs
from tbnets.tasks.localization.spec import LocalizationData
from tbnets.training import loop
from tests import reference, tiny_phrases

# Which graph is traced is no matter here.
pytestmark = pytest.mark.usefixtures("module_eagerly")
MODELS = {
    "embedding": {
        "loss": "wang2018_phrases",
        "num_negatives": 5,
        "regions_per_phrase": 2,
        "structure_epochs": 1,
        "dropout": 0.1,
    },
    "similarity": {
        "model": "similarity",
        "head_units": "16",
        "dropout": 0,
        "pair_loss": "softmax",
    },
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tiny_phrases.write_phrases(tmp_path_factory.mktemp("data"))


STAGES = {
    "epochs": 4,
    "hard_negative_epochs": 2,
    "pairs_per_batch": 20,  # Three steps an epoch.
}


@pytest.fixture(scope="module", params=MODELS)
def flags(request):
    return {**MODELS[request.param], **STAGES}


def train(found, resume=False):
    session, examples = runs.prepare(found, runs.start(found, resume))
    loop.fit(session, examples)
    return session, examples


def stop_before(monkeypatch, epoch):
    """Lets a run end like one that is killed."""
    start = LocalizationData.start_epoch

    def stop(task, network, examples, now):
        if now == epoch:
            raise KeyboardInterrupt
        start(task, network, examples, now)

    monkeypatch.setattr(LocalizationData, "start_epoch", stop)


@pytest.fixture(scope="module")
def straight(folder, flags, tmp_path_factory):
    at = tmp_path_factory.mktemp("runs") / "run"
    return train(tiny_phrases.settings(folder, at, **flags))


def test_a_run_stopped_in_both_stages_is_bit_for_bit_the_same(
    straight, folder, flags, tmp_path
):
    found = tiny_phrases.settings(folder, tmp_path / "run", **flags)
    # Epoch 1 is the first with terms within a view, 2 with hard negatives.
    for resume, epoch in ((False, 1), (True, 3)):
        with pytest.MonkeyPatch.context() as patch:
            stop_before(patch, epoch)
            with pytest.raises(KeyboardInterrupt):
                train(found, resume)
    again, _ = train(found, resume=True)
    for one, other in zip(straight[0].network.weights, again.network.weights):
        np.testing.assert_array_equal(one.numpy(), other.numpy())
    held = (session.task.data.held for session in (straight[0], again))
    np.testing.assert_array_equal(*(one["hard_negatives"] for one in held))


def test_they_are_those_of_the_network_that_was_there(
    folder, tmp_path, monkeypatch, capsys
):
    flags = {**MODELS["embedding"], **STAGES}
    found = tiny_phrases.settings(folder, tmp_path / "run", **flags)
    stop_before(monkeypatch, 2)
    with pytest.raises(KeyboardInterrupt):
        train(found)
    monkeypatch.undo()
    assert "hard negatives" not in capsys.readouterr().out
    session, examples = runs.prepare(found, runs.start(found, resume=True))
    task = session.task
    scores = task.scores(session.network, examples).similarities
    expected = reference.hard_negatives(scores, examples.roles.roles, 50)
    task.data.start_epoch(session.network, examples, 2)
    table = task.data.held["hard_negatives"]
    assert [row[row >= 0].tolist() for row in table] == expected
    assert table.dtype == np.int16 and (table >= 0).any()
    assert task.data.sampler.hard_negatives is table
    told = capsys.readouterr().out
    assert f"{sum(map(len, expected)) / 60:.1f} regions a phrase" in told
    assert f"{expected.count([])} of 60 phrases have none" in told
    # They stay as they are, and an epoch before goes without.
    task.data.start_epoch(session.network, examples, 3)
    assert task.data.held["hard_negatives"] is table
    task.data.start_epoch(session.network, examples, 1)
    assert task.data.sampler.hard_negatives is None


def test_a_run_that_gets_more_epochs_looks_again(straight):
    session, examples = straight
    data = session.task.data
    before, settings = dict(data.held), data.settings
    data.settings = settings.replace(epochs=settings.epochs + 1)
    try:
        data.start_epoch(session.network, examples, 3)
        now = data.held
    finally:
        data.held, data.settings = before, settings
    assert before["hard_negatives_recorded"] == 2
    assert now["hard_negatives_recorded"] == 3


def test_those_of_other_phrases_are_refused(straight):
    session, examples = straight
    for wrong in (np.zeros((3, 2), np.int16), np.full((60, 2), 99, np.int16)):
        held = {**session.task.data.held, "hard_negatives": wrong}
        with pytest.raises(ValueError, match="`--phrases` must be those"):
            hard_negatives.recorded(held, 2, examples, score=None)


@pytest.mark.parametrize("epochs", [1, 2])
def test_a_network_that_learned_nothing_finds_none(folder, tmp_path, epochs):
    found = tiny_phrases.settings(
        folder, tmp_path / "run", epochs=epochs, hard_negative_epochs=2
    )
    with pytest.raises(ValueError, match="`--hard_negative_epochs` must be b"):
        runs.prepare(found, runs.start(found, False))
    assert not (tmp_path / "run").exists()
