"""Fine-tuning with hard negatives: recorded once, kept, and resumed."""

import numpy as np
import pytest

from tbnets.data.localization import hard_negatives
from tbnets.tasks import runs
from tbnets.tasks.localization.spec import LocalizationData
from tests import reference
from tests.refusals import refused
from tests.tiny_runs import assert_same_weights, prepared, trained

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


STAGES = {
    "epochs": 4,
    "hard_negative_epochs": 2,
    "pairs_per_batch": 20,  # Three steps an epoch.
}


@pytest.fixture(scope="module", params=MODELS)
def flags(request):
    return {**MODELS[request.param], **STAGES}


def stop_before(monkeypatch, epoch):
    """Lets a run end like one that is killed."""
    start = LocalizationData.start_epoch

    def stop(task, network, examples, now):
        if now == epoch:
            raise KeyboardInterrupt
        start(task, network, examples, now)

    monkeypatch.setattr(LocalizationData, "start_epoch", stop)


@pytest.fixture(scope="module")
def straight(tiny_run, flags):
    return tiny_run("localization", **flags)


def test_a_run_stopped_in_both_stages_is_bit_for_bit_the_same(
    straight, tmp_path
):
    settings = straight.settings.replace(run_dir=str(tmp_path / "run"))
    # Epoch 1 is the first with terms within a view, 2 with hard negatives.
    for resume, epoch in ((False, 1), (True, 3)):
        with pytest.MonkeyPatch.context() as patch:
            stop_before(patch, epoch)
            with pytest.raises(KeyboardInterrupt):
                trained(settings, resume)
    again = trained(settings, resume=True)
    last = runs.open_run(straight.run_dir, "last")
    assert_same_weights(last.network, again.network)
    held = straight.held, again.task.data.held
    np.testing.assert_array_equal(*(one["hard_negatives"] for one in held))


def test_they_are_those_of_the_network_that_was_there(
    tiny_run, tmp_path, monkeypatch
):
    flags = {**MODELS["embedding"], **STAGES}
    settings = tiny_run.settings(tmp_path / "run", "localization", **flags)
    stop_before(monkeypatch, 2)
    with pytest.raises(KeyboardInterrupt):
        trained(settings)
    monkeypatch.undo()
    session, examples = prepared(settings, resume=True)
    task = session.task
    scores = task.scores(session.network, examples).similarities
    expected = reference.hard_negatives(scores, examples.roles.roles, 50)
    task.data.start_epoch(session.network, examples, 2)
    table = task.data.held["hard_negatives"]
    assert [row[row >= 0].tolist() for row in table] == expected
    assert table.dtype == np.int16 and (table >= 0).any()
    assert task.data.sampler.hard_negatives is table
    # They stay as they are, and an epoch before goes without.
    task.data.start_epoch(session.network, examples, 3)
    assert task.data.held["hard_negatives"] is table
    task.data.start_epoch(session.network, examples, 1)
    assert task.data.sampler.hard_negatives is None


def test_a_run_that_gets_more_epochs_looks_again(straight):
    session = runs.open_run(straight.run_dir, "last")
    data = session.task.data
    assert data.held["hard_negatives_recorded"] == 2
    data.settings = data.settings.replace(epochs=STAGES["epochs"] + 1)
    data.batches(straight.examples)
    data.start_epoch(session.network, straight.examples, 3)
    assert data.held["hard_negatives_recorded"] == 3


def test_those_of_other_phrases_are_refused(straight):
    for wrong in (np.zeros((3, 2), np.int16), np.full((60, 2), 99, np.int16)):
        held = {**straight.held, "hard_negatives": wrong}
        with refused("--phrases"):
            hard_negatives.recorded(held, 2, straight.examples, score=None)
