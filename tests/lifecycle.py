"""Tests of every kind of run, of a module's `run`: a `tiny_runs.Run`.

A module names those that it wants: `test_it_resumes = lifecycle.resumes`.
"""

import numpy as np
import pytest
from zoo_making.served import served_scores

from tbnets.tasks import runs
from tests.eager import without_tracing
from tests.tiny_runs import assert_same_weights, trained

# By chance, one of 6 images and 3 of 15 regions are right. After the first
# epoch, up to 0.46 of the regions are right.
CHANCE = {
    "dev/image_to_text/recall_at_1": 1 / 6,
    "dev/phrase_to_region/recall_at_1": 0.5,
}


def learns(run):
    losses = [row["train/total_loss"] for row in run.history]
    assert len(losses) == run.settings.epochs
    assert len(losses) == 1 or losses[-1] < losses[0], (
        f"The loss did not fall: {losses}. Set `dropout` to 0 in "
        "tiny_runs.FLAGS. If it still rises, change the loss, the rate or the "
        "epochs."
    )
    [(key, chance)] = [
        (key, chance) for key, chance in CHANCE.items() if key in run.history[0]
    ]
    values = [row[key] for row in run.history]
    assert max(values) > chance, (
        f"{key} is {values}, not above {chance:.2f}. Check that matching pairs "
        "get closer, or raise the rate or the epochs in tiny_runs.FLAGS."
    )


def resumes_bit_for_bit(run):
    where = run.stopped if run.stopped.is_dir() else run.run_dir
    with without_tracing():
        again = trained(run.settings.replace(run_dir=str(where)), resume=True)
    straight = runs.open_run(run.run_dir, "last")
    assert again.state.epoch == straight.state.epoch == run.settings.epochs
    assert_same_weights(again.network, straight.network)
    for session in (again, straight):
        for name, value in run.held.items():
            np.testing.assert_array_equal(session.task.held[name], value)


def opens_with_the_same_results(run):
    assert run.scores.metrics() == pytest.approx(run.report["test"])
    assert run.opened.state.epoch == run.report["best_epoch"]
    assert run.report["epochs"] == len(run.history)


def exports_the_same_results(run):
    found = served_scores(run.opened.task, run.model, "test").metrics()
    assert found.keys() == run.report["test"].keys()
    for key, value in run.report["test"].items():
        assert found[key] == pytest.approx(value, abs=1e-6), key
