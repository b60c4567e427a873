"""Tests the event files for TensorBoard."""

import numpy as np
from tensorboard.plugins.hparams import plugin_data_pb2

from tbnets.training import loop
from tests import tiny


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
