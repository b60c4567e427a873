"""Tests of the fonts: the letters of a text are there."""

import pathlib
import types

import pytest

from tbnets.visualization import letters

TEXTS = ["a dog", "Señor é, ü, ß", "Ελληνικά", "Русский", "Đà Nẵng"]


@pytest.mark.parametrize("text", TEXTS)
def test_what_people_write_is_drawn(text):
    assert letters._has(letters.font(16, text), text)


def test_letters_that_are_drawn_alike_are_none():
    plain = letters.font(16, "a dog")
    assert letters._has(plain, "a dog") and not letters._has(plain, "é")


def test_what_is_installed_is_tried_last(monkeypatch):
    tried = []

    def files(first):
        tried.append(first.name)
        yield first
        tried.append("installed")
        yield "/nowhere/at/all.ttf"

    monkeypatch.setattr(letters, "_files", files)
    found = letters._find.__wrapped__
    assert found("é").name == "DejaVuSans.ttf" and tried == ["DejaVuSans.ttf"]
    # Without a font that has them there are boxes, not an error.
    assert found("\u72ac\u732b").name == "DejaVuSans.ttf"
    assert tried[-1] == "installed"


def test_a_font_that_had_letters_is_tried_before_the_others(monkeypatch):
    tried = []

    def opened(path):
        tried.append(pathlib.Path(path).name)
        return path

    monkeypatch.setattr(letters, "_FOUND", [])
    monkeypatch.setattr(letters, "_installed", lambda: ["a.ttf", "b.ttf"])
    fonts = types.SimpleNamespace(truetype=opened, load_default=lambda: None)
    monkeypatch.setattr(letters, "ImageFont", fonts)
    monkeypatch.setattr(letters, "_has", lambda font, _: font == "b.ttf")
    for text in "\u72ac\u732b":
        assert letters._find.__wrapped__(text) == "b.ttf"
    dejavu = "DejaVuSans.ttf"
    assert tried == [dejavu, "a.ttf", "b.ttf", dejavu, "b.ttf"]


def test_letters_of_chinese_are_as_wide_as_two():
    assert letters.columns("a dog", 20) == 20
    assert letters.columns("\u72ac", 20) == 10
