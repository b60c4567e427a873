"""Tests of the fonts: the letters of a text are there."""

import pytest

from tbnets.visualization import montage

TEXTS = ["a dog", "Señor é, ü, ß", "Ελληνικά", "Русский", "Đà Nẵng"]


@pytest.mark.parametrize("text", TEXTS)
def test_fonts_cover_several_scripts(text):
    assert montage._has(montage.font(16, text), text)


def test_installed_fonts_are_tried_last(monkeypatch):
    installed = ["/nowhere/at/all.ttf"]
    monkeypatch.setattr(montage, "_installed", lambda: installed)
    found = montage._find.__wrapped__
    assert found("é").name == "DejaVuSans.ttf"
    # Without a font that has them there are boxes, not an error.
    assert found("\u72ac\u732b").name == "DejaVuSans.ttf"
    # Only the mono font has this sign. It is the first for the next text.
    mono = str(found("é").with_name("DejaVuSansMono.ttf"))
    installed.append(mono)
    assert found("\u2312") == installed[0] == mono
