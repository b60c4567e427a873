"""Draws the answers of a search side by side."""

import pathlib
import textwrap

from PIL import Image
from PIL import ImageDraw
from PIL import ImageFont
from PIL import ImageOps

from tbnets.images import PHOTO_SUFFIXES

MARGIN, QUERY_WIDTH, PHOTO_SIZE, LABEL_HEIGHT = 16, 230, 190, 46


def find_photo(folder, image_id):
    """Returns the path of an image's photo inside a folder, or None."""
    root = pathlib.Path(folder).resolve()
    for suffix in ("", *PHOTO_SUFFIXES):
        path = (root / f"{image_id}{suffix}").resolve()
        if path.is_relative_to(root) and path.is_file():
            return path
    return None


def draw_photo(folder, image_id):
    """Draws one photo into a square; a grey square if there is none."""
    square = Image.new("RGB", (PHOTO_SIZE, PHOTO_SIZE), "#eeeeee")
    path = find_photo(folder, image_id)
    if path is None:
        return square
    try:
        with Image.open(path, formats=("JPEG", "PNG")) as photo:
            size = (PHOTO_SIZE, PHOTO_SIZE)
            return ImageOps.pad(photo.convert("RGB"), size, color="#eeeeee")
    except (OSError, SyntaxError, Image.DecompressionBombError):
        return square


def draw_montage(queries, ids, order, similarities, folder):
    """Draws one row per query: the words, then the best images.

    Args:
        queries: list of q strings.
        ids: image ids.
        order: int `[q, k]`, rows of the best images.
        similarities: float `[q, k]`.
        folder: folder of the photos.

    Returns:
        A `PIL.Image.Image`.
    """
    row_height = PHOTO_SIZE + LABEL_HEIGHT + MARGIN
    column = PHOTO_SIZE + MARGIN
    size = (
        2 * MARGIN + QUERY_WIDTH + column * order.shape[1],
        MARGIN + row_height * len(queries),
    )
    sheet = Image.new("RGB", size, "white")
    draw = ImageDraw.Draw(sheet)
    large, small = ImageFont.load_default(20), ImageFont.load_default(13)
    for row, query in enumerate(queries):
        top = MARGIN + row * row_height
        text = textwrap.fill(query, 20, max_lines=8, placeholder=" ...")
        draw.text((MARGIN, top), text, "black", large, spacing=6)
        for place, index in enumerate(order[row]):
            left = 2 * MARGIN + QUERY_WIDTH + place * column
            sheet.paste(draw_photo(folder, ids[index]), (left, top))
            label = f"{place + 1}    {similarities[row, place]:.3f}"
            below = top + PHOTO_SIZE + 4
            draw.text((left, below), label, "black", ImageFont.load_default(16))
            name = textwrap.shorten(ids[index][-28:], 28)
            draw.text((left, below + 22), name, "#777777", small)
    return sheet
