"""Draws queries and their search results side by side."""

import contextlib
import functools
import math
import pathlib
import textwrap
import unicodedata
from typing import NamedTuple

import numpy as np
from PIL import Image, ImageDraw, ImageFont, ImageOps

from tbnets.data.photos import find_photo
from tbnets.data.pictures import BrokenImageError, open_upright
from tbnets.files import readable

MARGIN, QUERY_WIDTH, PHOTO_SIZE, LABEL_HEIGHT = 16, 230, 190, 46
MOST_SIDE = 400
"""Longer side in pixels of the largest picture of a photo, on an HTML page."""
LEGEND_HEIGHT, SHEET_WIDTH = 24, 2000
MOST_COLUMNS = 10
FRAME = 4
COLD = 0.5
"""Brightness of a photo where it does not match a sentence."""
HIT, MISS = "#1a9850", "#d73027"
CARD_PHOTO, CARD_GAP, CARD_LABEL = 96, 12, 28
CARD_LINE, CARD_LETTERS = 32, 46
CARD_WIDTH = 6 * (CARD_PHOTO + CARD_GAP) + 2 * CARD_GAP


class Tile(NamedTuple):
    """An image on a card, with a label below it.

    `is_hit` is True for a green frame, False for a red frame, None for no
    frame. If `apart` is true, the gap before the image is wider.
    """

    image_id: str
    label: str
    is_hit: bool | None = None
    apart: bool = False


def spread_evenly(count, most):
    """Returns at most `most` evenly spread row numbers in [0, count)."""
    picks = min(count, most)
    return (np.arange(picks) * count) // max(picks, 1)


def open_photo(folder, image_id):
    """Opens a photo; returns None if the photo is missing or broken."""
    path = find_photo(folder, image_id)
    if path is None:
        return None
    with contextlib.suppress(BrokenImageError):
        return open_upright(path, MOST_SIDE)
    return None


def draw_photo(folder, image_id, size=PHOTO_SIZE):
    """Draws a photo in a square, or a grey square if the photo is missing."""
    photo = open_photo(folder, image_id)
    if photo is None:
        return Image.new("RGB", (size, size), "#eeeeee")
    return ImageOps.pad(photo, (size, size), color="#eeeeee")


def draw_words(text, size):
    """Draws the beginning of a sentence in a small white square."""
    square = Image.new("RGB", (size, size), "white")
    draw = ImageDraw.Draw(square)
    draw.rectangle((0, 0, size - 1, size - 1), outline="#bbbbbb")
    lines = textwrap.wrap(text, max(columns(text, size // 6), 1))[: size // 12]
    draw.text((3, 1), "\n".join(lines), "black", font(10, text), spacing=1)
    return square


def _paste_photo(sheet, folder, image_id, place, is_hit):
    left, top, side = place
    photo, frame = draw_photo(folder, image_id, side), 0
    if is_hit is not None:
        frame = FRAME
        photo = ImageOps.expand(photo, frame, HIT if is_hit else MISS)
    sheet.paste(photo, (left - frame, top - frame))


def draw_montage(queries, ids, ranked, folder, hits=None, legend=""):
    """Draws queries and their best images, ten images in a row.

    Args:
        queries: list of q sentences (strings) or photos (`pathlib.Path`).
        ids: image ids.
        ranked: `search.Ranked` of the queries: int `[q, k]`, indices of the
            best images in `ids`; float `[q, k]`, similarities; and bool `[q,
            k]`, which results are marked as doubtful.
        folder: folder of the photos.
        hits: list with the indices of a query's matching images, or None if
            they are unknown. Pass None if all are unknown.
        legend: text that explains the frames; drawn if there are frames.
    """
    order, similarities, doubtful = ranked
    hits = hits or [None] * len(queries)
    is_marked = any(rows is not None for rows in hits)
    line, column = PHOTO_SIZE + LABEL_HEIGHT + MARGIN, PHOTO_SIZE + MARGIN
    row_height = line * math.ceil(order.shape[1] / MOST_COLUMNS)
    size = (
        2 * MARGIN + QUERY_WIDTH + column * min(order.shape[1], MOST_COLUMNS),
        MARGIN + row_height * len(queries) + LEGEND_HEIGHT * is_marked,
    )
    sheet = Image.new("RGB", size, "white")
    draw = ImageDraw.Draw(sheet)
    for row, query in enumerate(queries):
        first = MARGIN + row * row_height
        _draw_query(sheet, query, (MARGIN, first))
        for place, index in enumerate(order[row]):
            left = 2 * MARGIN + QUERY_WIDTH + place % MOST_COLUMNS * column
            top = first + place // MOST_COLUMNS * line
            is_hit = None if hits[row] is None else index in hits[row]
            corner = (left, top, PHOTO_SIZE)
            _paste_photo(sheet, folder, ids[index], corner, is_hit)
            label = f"{place + 1}    {similarities[row, place]:.3f}"
            label += "?" * bool(doubtful[row, place])
            below = top + PHOTO_SIZE + 6
            draw.text((left, below), label, "black", font(16, label))
            name = shorten(readable(ids[index]))
            draw.text((left, below + 22), name, "#777777", font(13, name))
    if is_marked:
        corner_of_legend = (MARGIN, size[1] - LEGEND_HEIGHT)
        draw.text(corner_of_legend, legend, "#555555", font(15, legend))
    return sheet


def shorten(name, width=PHOTO_SIZE):
    """Returns a name, or "..." and its longest end that fits into `width`."""
    whole, name = name, name[-width:]
    while len(name) < len(whole) or font(13, name).getlength(name) > width:
        short = f"...{name}"
        if font(13, short).getlength(short) <= width:
            return short
        name = name[1:]
    return name


def _draw_query(sheet, query, place):
    if isinstance(query, pathlib.Path):
        sheet.paste(draw_photo(query.parent, query.name), place)
        return
    letters = columns(query, 20)
    text = textwrap.fill(query, letters, max_lines=9, placeholder=" ...")
    draw = ImageDraw.Draw(sheet)
    draw.text(place, text, "black", font(20, text), spacing=6)


def shade(photo, heat):
    """Darkens a photo, and fades its colours, where a heat map is low.

    `photo` is a `PIL.Image.Image` in RGB, and `heat` is float32 `[rows,
    columns]`; values below the mean are darkest. Returns uint8 `[h, w, 3]`.
    """
    heat = np.maximum(heat - heat.mean(), 0)
    heat = Image.fromarray((heat / max(heat.max(), 1e-12)).astype(np.float32))
    heat = np.asarray(heat.resize(photo.size, Image.Resampling.BICUBIC))
    heat = np.sqrt(heat.clip(0, 1))[:, :, None]
    grey = np.asarray(photo.convert("L").convert("RGB"))
    faded = heat * np.asarray(photo) + (1 - heat) * grey
    return (faded * (COLD + (1 - COLD) * heat)).astype(np.uint8)


def explanation(photo, heat, title, name):
    """Draws a shaded photo below a title and the name of the photo.

    `photo` and `heat` are as in `shade`. Returns uint8 `[h, w, 3]`.
    """
    side = 2 * PHOTO_SIZE
    picture = Image.fromarray(shade(photo, heat))
    picture = ImageOps.contain(picture, (side, side))
    letters = columns(title, 46)
    title = textwrap.fill(title, letters, max_lines=3, placeholder=" ...")
    below = 22 * (1 + title.count("\n"))
    sheet = Image.new("RGB", (side, picture.height + below + 22), "white")
    draw = ImageDraw.Draw(sheet)
    draw.text((0, 0), title, "black", font(16, title), spacing=4)
    draw.text((0, below), name, "#777777", font(13, name))
    sheet.paste(picture, (0, below + 22))
    return np.asarray(sheet)


def rows_of(pictures):
    """Groups pictures whose names differ only in a final number into rows."""
    rows = {}
    for name, picture in pictures.items():
        rows.setdefault(name.rstrip("0123456789"), []).append(picture)
    return rows.values()


def draw_sheet(rows, legend=""):
    """Arranges rows of pictures, with a legend below them.

    Each row is a list of uint8 `[height, width, 3]`, which is continued below
    if it is too wide.
    """
    placed, below, right = [], MARGIN, 0
    for row in rows:
        left, top = MARGIN, below
        for picture in row:
            height, width = picture.shape[:2]
            if left + width > SHEET_WIDTH:
                left, top = MARGIN, below
            placed.append((Image.fromarray(picture), (left, top)))
            left += width + MARGIN
            below, right = max(below, top + height + MARGIN), max(right, left)
    legend = textwrap.fill(legend, right // 8)
    size = (right, below + LEGEND_HEIGHT * (1 + legend.count("\n")))
    sheet = Image.new("RGB", size, "white")
    for picture_and_corner in placed:
        sheet.paste(*picture_and_corner)
    draw = ImageDraw.Draw(sheet)
    draw.text((MARGIN, below), legend, "#555555", font(15, legend), spacing=6)
    return sheet


def draw_card(title, tiles, folder):
    """Draws a sentence above a row of `Tile`s, for a card in TensorBoard."""
    title = title.replace(" .", ".")
    letters = columns(title, CARD_LETTERS)
    text = textwrap.fill(title, letters, max_lines=2, placeholder=" ...")
    top = CARD_GAP + 2 * CARD_LINE  # Two lines, so that all cards align.
    step = CARD_PHOTO + CARD_GAP
    width = CARD_GAP + sum(step + CARD_GAP * tile.apart for tile in tiles)
    size = (max(width, CARD_WIDTH), top + CARD_PHOTO + CARD_LABEL + CARD_GAP)
    sheet = Image.new("RGB", size, "white")
    draw = ImageDraw.Draw(sheet)
    above = (CARD_GAP, CARD_GAP // 2)
    draw.text(above, text, "black", font(25, title), spacing=4)
    left = CARD_GAP
    for tile in tiles:
        left += CARD_GAP * tile.apart
        corner = (left, top, CARD_PHOTO)
        _paste_photo(sheet, folder, tile.image_id, corner, tile.is_hit)
        text_width = max(font(20, tile.label).getlength(tile.label), CARD_PHOTO)
        label_font = font(int(20 * CARD_PHOTO / text_width), tile.label)
        below = (left, top + CARD_PHOTO + FRAME)
        draw.text(below, tile.label, "#555555", label_font)
        left += step
    return sheet


# Text that Pillow's default font does not cover is drawn in the first font that
# covers it: DejaVu, which matplotlib contains, then the installed fonts.
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
