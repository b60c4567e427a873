"""Tests the event files for TensorBoard."""

import numpy as np
import tensorflow as tf
from tensorboard.plugins.hparams import plugin_data_pb2

from tbnets.training import loop
from tests import tiny


def test_each_scalar_is_in_the_group_of_its_name(tmp_path):
    rows = [
        {"dev/recall_sum": 3.0, "dev/mean_rank": 2.0, "seconds": 1.0},
        {"dev/recall_sum": 4.0},
    ]
    with loop.Board(tmp_path, "recall_sum") as writer:
        for epoch, row in enumerate(rows, start=1):
            writer.add_epoch(row, epoch)
    found = {
        (value.tag, step): tf.make_ndarray(value.tensor).item()
        for step, value in tiny.summaries(tmp_path / "tensorboard")
    }
    assert found == {
        ("1_overview/1_dev_recall_sum", 1): 3.0,
        ("1_overview/1_dev_recall_sum", 2): 4.0,
        ("3_dev/mean_rank", 1): 2.0,
        ("5_time/seconds", 1): 1.0,
    }


def test_settings_are_written_as_hyperparameters(tmp_path):
    settings = tiny.settings(tmp_path, tmp_path / "run")
    with loop.Board(tmp_path, "recall_sum") as writer:
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
