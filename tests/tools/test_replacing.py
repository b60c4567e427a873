"""Tests of folders that take the place of others."""

import os
import sys

import pytest
from zoo_making import replacing
from zoo_making.replacing import replaced_folder


def make(model, text):
    with replaced_folder(model) as folder:
        (folder / "card").write_text(text)


@pytest.mark.skipif(sys.platform != "linux", reason="asks for its system call")
def test_a_folder_is_replaced_in_one_step(tmp_path, monkeypatch):
    model, rename = tmp_path / "model", os.rename
    make(model, "old")

    def checked(source, target):
        assert source != model  # Or there would be no model for a while.
        rename(source, target)

    monkeypatch.setattr(os, "rename", checked)
    make(model, "new")
    assert (model / "card").read_text() == "new"
    assert os.listdir(model) == ["card"] and os.listdir(tmp_path) == ["model"]


@pytest.mark.parametrize("exchanges", [True, False])
def test_a_folder_is_replaced_when_the_new_one_is_whole(
    tmp_path, monkeypatch, exchanges
):
    if not exchanges:
        monkeypatch.setattr(replacing, "_exchange", lambda *_: False)
    model = tmp_path / "model"
    for text in ("old", "new"):
        with replaced_folder(model) as folder:
            (folder / "card").write_text(text)
            assert text == "old" or (model / "card").read_text() == "old"
    assert (model / "card").read_text() == "new"
    assert os.listdir(tmp_path) == ["model"]
    with pytest.raises(KeyError), replaced_folder(model):
        raise KeyError
    assert (model / "card").read_text() == "new"
    assert os.listdir(tmp_path) == ["model"]


@pytest.mark.parametrize("renames", [2, 3])
def test_a_folder_is_never_lost_between_two_renames(
    tmp_path, monkeypatch, renames
):
    monkeypatch.setattr(replacing, "_exchange", lambda *_: False)
    model, rename, calls = tmp_path / "model", os.rename, []
    make(model, "old")

    def killed(*places):
        if len(calls) == renames:
            raise KeyboardInterrupt
        calls.append(places)
        rename(*places)

    monkeypatch.setattr(os, "rename", killed)
    monkeypatch.setattr(replacing, "_remove", lambda path: None)
    if renames == 2:  # The new one was made, the old one set aside.
        with pytest.raises(KeyboardInterrupt):
            make(model, "new")
        assert not model.exists()
    else:
        make(model, "new")
    monkeypatch.undo()
    with pytest.raises(KeyError), replaced_folder(model):
        raise KeyError
    assert (model / "card").read_text() == ["old", "new"][renames - 2]
    assert os.listdir(tmp_path) == ["model"]
