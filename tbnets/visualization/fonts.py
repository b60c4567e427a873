"""Finds a font for a text.

Text that Pillow's default font does not cover is drawn in the first font that
covers it: DejaVu, which matplotlib contains, then the installed fonts.
"""

import contextlib
import functools
import pathlib
import unicodedata

from PIL import ImageFont

_NOWHERE = "\U0010ffff"
"""A letter that no font contains, to draw a font's missing-letter glyph."""


def font(size, text):
    """Returns a font of `size` pixels that contains all letters of a text."""
    path = None if text.isascii() else _find("".join(sorted({*text})))
    if path is None:
        return ImageFont.load_default(size)
    return ImageFont.truetype(path, size)


def columns(text, most):
    """Returns the letters per line: `most`, or half if a text has wide ones."""
    wide = any(unicodedata.east_asian_width(letter) in "WF" for letter in text)
    return most // 2 if wide else most


@functools.lru_cache(256)
def _find(letters):
    if _has(ImageFont.load_default(), letters):
        return None
    import matplotlib  # Not imported for English text.

    data = pathlib.Path(matplotlib.get_data_path())
    dejavu = data / "fonts" / "ttf" / "DejaVuSans.ttf"
    if _has(ImageFont.truetype(dejavu), letters):
        return dejavu
    fonts = _installed()
    for path in fonts:
        with contextlib.suppress(OSError):  # Unreadable font.
            if _has(ImageFont.truetype(path), letters):
                # Other texts in this script find this font first.
                fonts.insert(0, fonts.pop(fonts.index(path)))
                return path
    return dejavu


@functools.cache
def _installed():
    from matplotlib.font_manager import findSystemFonts  # Slow: it scans.

    return sorted(findSystemFonts())


def _has(opened, letters):
    absent = bytes(opened.getmask(_NOWHERE))
    return all(
        x.isspace() or bytes(opened.getmask(x)) != absent for x in letters
    )
