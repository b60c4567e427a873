"""Tests the event files for TensorBoard."""

import numpy as np
import pytest
import tensorflow as tf
from tensorboard.plugins.hparams import plugin_data_pb2

from tbnets.tasks.settings.settings import ALL
from tbnets.training import board
from tests import tiny

CHOSEN = ("recall_sum",)


@pytest.fixture
def shown(tmp_path):
    """Returns a function that writes histories and reads the charts.

    It returns `{tag: {step: value}}`.
    """

    def read(folder):
        found = {}
        for step, value in tiny.summaries(folder):
            array = tf.make_ndarray(value.tensor)
            found.setdefault(value.tag, {})[step] = array.tolist()
        return found

    def write(*histories):
        with board.Board(tmp_path, *CHOSEN) as writer:
            for history in histories:
                writer.add_epoch(history)
        return read(tmp_path / "tensorboard")

    return write


def histories(**columns):
    """Returns the history of a run after each epoch."""
    rows = [
        {name.replace("__", "/"): value for name, value in zip(columns, row)}
        for row in zip(*columns.values())
    ]
    return [rows[: n + 1] for n in range(len(rows))]


def test_a_chart_starts_with_the_first_change_of_its_scalar(shown):
    found = shown(
        *histories(
            train__learning_rate=[0.5, 0.5, 0.25, 0.25],
            dev__image_to_text__num_queries=[6.0] * 4,
            dev__mean_recall=[1.0, 2.0, 2.0, 1.0],
        )
    )
    # Values of earlier epochs are written with their own epochs.
    assert found == {
        "4_train/learning_rate": {1: 0.5, 2: 0.5, 3: 0.25, 4: 0.25},
        "3_dev/mean_recall": {1: 1.0, 2: 2.0, 3: 2.0, 4: 1.0},
    }


def test_the_overview_is_written_in_the_first_epoch(shown):
    found = shown(
        *histories(
            dev__recall_sum=[3.0, 3.0],
            train__total_loss=[0.5, 0.5],
            health__images__mean_cosine=[0.0, 0.0],
            seconds=[1.0, 1.0],
        )
    )
    assert found == {
        "1_overview/1_dev_recall_sum": {1: 3.0, 2: 3.0},
        "1_overview/2_train_total_loss": {1: 0.5, 2: 0.5},
        "1_overview/3_images_mean_cosine": {1: 0.0, 2: 0.0},
    }


def test_a_resumed_run_writes_each_epoch_once(shown):
    first, second, third = histories(dev__mean_rank=[1.0, 2.0, 3.0])
    shown(first, second)
    assert shown(third) == {"3_dev/mean_rank": {1: 1.0, 2: 2.0, 3: 3.0}}


def test_a_scalar_that_older_epochs_lack_is_shown(shown):
    rows = [{"dev/mean_rank": 1.0}, {"dev/mean_rank": 1.0, "dev/new": 2.0}]
    assert shown(rows[:1], rows) == {"3_dev/new": {2: 2.0}}


def test_runs_are_compared_by_settings_without_places(tmp_path):
    settings = tiny.settings(tmp_path, tmp_path / "run")
    found = settings.comparable()
    assert found["image_units"] == "8,4" and found["learning_rate"] == 0.01
    # Settings of other tasks and models are omitted.
    assert "cca_dim" not in found and "head_units" not in found
    assert not any(ALL[name].is_place for name in found)
    assert all(
        isinstance(one, str | bool | int | float) for one in found.values()
    )


def test_settings_are_written_as_hyperparameters(tmp_path):
    settings = tiny.settings(tmp_path, tmp_path / "run")
    with board.Board(tmp_path, *CHOSEN) as writer:
        writer.add_settings(settings)
        writer.add_best("dev", 300.0, 2)
        pixels = np.zeros((4, 6, 3), np.uint8)
        writer.add_pictures({"1": pixels}, 3, "what is shown")
    assert tiny.events(tmp_path / "tensorboard")["2_answers/1"] == {3}
    found = dict(
        (value.tag, value)
        for _, value in tiny.summaries(tmp_path / "tensorboard" / "best")
    )
    content = found["_hparams_/session_start_info"].metadata.plugin_data.content
    data = plugin_data_pb2.HParamsPluginData.FromString(content)
    values = data.session_start_info.hparams
    assert values["learning_rate"].number_value == 0.01
    assert values["text_encoder"].string_value == "mean"
    assert "6_best/dev_recall_sum" in found
