"""Tests of the verb that lists the models of the zoo and exports one."""

import tbnets
from tbnets.cli import export
from tests.verbs import ask, call


def test_without_flags_the_table_is_printed():
    assert ask("zoo") == (f"{tbnets.zoo.describe()}\n", "", "")


def test_a_model_is_exported_for_a_server(tmp_path, monkeypatch):
    exports = []
    monkeypatch.setattr(export, "main", exports.append)
    call("zoo", "--export=scenes_hm_lstm", tmp_path)
    folder = str(tmp_path / "scenes_hm_lstm")
    options = {"model": "scenes_hm_lstm", "output": folder, "serving": True}
    assert exports == [export.Options(**options)]
