"""Fonts with the letters that people write.

The font that Pillow brings has those of English. What is written in others is
drawn by the first font that has all of it: DejaVu, which comes with
matplotlib (Latin, Greek, Cyrillic and more), then those that are installed.
"""

import contextlib
import functools
import pathlib
import unicodedata

from PIL import ImageFont

_NOWHERE = "\U0010ffff"
"""What no font has: it is drawn as all letters are that a font lacks."""
_FOUND: list = []
"""Installed fonts that had letters: likely they have those of the next text."""


def font(size, text):
    """Returns a font for a text.

    Args:
        size: in pixels.
        text: what will be drawn; of letters that no font has, boxes.
    """
    path = None if text.isascii() else _find("".join(sorted({*text})))
    if path is None:
        return ImageFont.load_default(size)
    return ImageFont.truetype(path, size)


def columns(text, most):
    """Returns how many letters of a text are as wide as `most` Latin ones."""
    wide = any(unicodedata.east_asian_width(one) in "WF" for one in text)
    return most // 2 if wide else most


@functools.lru_cache(256)
def _find(letters):
    """Returns the file of the first font with some letters; None: Pillow's."""
    if _has(ImageFont.load_default(), letters):
        return None
    import matplotlib  # Who writes English does without.

    data = pathlib.Path(matplotlib.get_data_path())
    dejavu = data / "fonts" / "ttf" / "DejaVuSans.ttf"
    for path in _files(dejavu):
        with contextlib.suppress(OSError):  # Of a kind that is not read.
            if _has(ImageFont.truetype(path), letters):
                if path not in (dejavu, *_FOUND):
                    _FOUND.append(path)
                return path
    return dejavu


def _files(first):
    """Yields the files of fonts in the order in which they are tried."""
    yield first
    yield from _FOUND
    yield from _installed()


@functools.cache
def _installed():
    from matplotlib.font_manager import findSystemFonts  # It looks around.

    return sorted(findSystemFonts())


def _has(opened, letters):
    """Tells whether a font has letters."""
    absent = bytes(opened.getmask(_NOWHERE))
    return all(
        one.isspace() or bytes(opened.getmask(one)) != absent for one in letters
    )
