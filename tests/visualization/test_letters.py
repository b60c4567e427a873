"""Tests of the fonts: the letters of a text are there."""

import pytest

from tbnets.visualization import boxes

TEXTS = ["a dog", "Señor é, ü, ß", "Ελληνικά", "Русский", "Đà Nẵng"]


@pytest.mark.parametrize("text", TEXTS)
def test_what_people_write_is_drawn(text):
    assert boxes._has(boxes.font(16, text), text)


def test_letters_that_are_drawn_alike_are_none():
    plain = boxes.font(16, "a dog")
    assert boxes._has(plain, "a dog") and not boxes._has(plain, "é")


def test_what_is_installed_is_tried_last(monkeypatch):
    installed = ["/nowhere/at/all.ttf"]
    monkeypatch.setattr(boxes, "_installed", lambda: installed)
    found = boxes._find.__wrapped__
    assert found("é").name == "DejaVuSans.ttf"
    # Without a font that has them there are boxes, not an error.
    assert found("\u72ac\u732b").name == "DejaVuSans.ttf"
    # Only the mono font has this sign. It is the first for the next text.
    mono = str(found("é").with_name("DejaVuSansMono.ttf"))
    installed.append(mono)
    assert found("\u2312") == installed[0] == mono


def test_letters_of_chinese_are_as_wide_as_two():
    assert boxes.columns("a dog", 20) == 20
    assert boxes.columns("\u72ac", 20) == 10
