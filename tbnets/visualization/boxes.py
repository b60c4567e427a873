"""Draws a photo with boxes and their phrases.

People with a colour vision deficiency can also distinguish the colours. Correct
boxes have solid lines and a tick; wrong boxes have dashed lines and a cross.
"""

from typing import NamedTuple

import numpy as np
from PIL import Image, ImageDraw

from tbnets.checks import SAME_THING, rows_by
from tbnets.evaluation.boxes import clip_boxes, iou
from tbnets.files import readable
from tbnets.visualization import montage
from tbnets.visualization.montage import font

COLOURS = (
    "#e69f00",
    "#56b4e9",
    "#009e73",
    "#f0e442",
    "#0072b2",
    "#d55e00",
    "#cc79a7",
)
"""Okabe & Ito 2008, "Color universal design", without black."""
DARK = {"#0072b2"}
"""Colours on which white is more readable than black (WCAG 2.1)."""
SIDE = 480
"""Longer side of a drawn photo in pixels."""
LEAST_WIDTH, LEAST_HEIGHT = 200, 60
LINE, CASING, DASH = 3, 7, 8
FONT_SIZE, PADDING, HEADING = 15, 4, 26
GAP = 12
MOST_LETTERS = 200
NUM_PHOTOS, NUM_PHRASES = 5, 3
ABOUT_PHRASES = (
    "A photo with the true boxes of phrases, and with the boxes ranked first "
    "for them. Tick and solid line: right (IoU with the true box at least "
    "0.5). Cross and dashed line: wrong."
)


class PhraseBox(NamedTuple):
    """A box in pixels of the photo, with its phrase.

    `colour` is the index of the colour; colours repeat after 7. `is_right` is
    True for a tick, False for a cross, or None for neither.
    """

    box: np.ndarray
    phrase: str
    colour: int = 0
    is_right: bool | None = None


def draw_boxes(photo, boxes, side=SIDE, heading="") -> np.ndarray:
    """Draws a photo, uint8 RGB, with its boxes and their phrases.

    The first `PhraseBox` is drawn on top. Phrases do not overlap if there is
    enough space. `side` is the longer side in pixels after resizing. If the
    photo is very narrow or very low, a grey margin is added.
    """
    photo = Image.fromarray(np.asarray(photo))
    scale = side / max(photo.size)
    drawn = [max(1, round(scale * length)) for length in photo.size]
    size = (max(drawn[0], LEAST_WIDTH), max(drawn[1], LEAST_HEIGHT))
    corners = np.reshape([box.box for box in boxes], (-1, 4))
    corners = clip_boxes(corners, *photo.size)
    corners *= np.divide([*drawn, *drawn], [*photo.size, *photo.size])
    sheet = Image.new("RGB", size, "#dddddd")
    sheet.paste(photo.resize(drawn, Image.Resampling.BICUBIC))
    draw = ImageDraw.Draw(sheet)
    for box, edges in [*zip(boxes, _in_each_other(corners))][::-1]:
        _draw_box(draw, edges, box)
    covered = []
    # Small boxes are first, because they have the fewest places for a phrase.
    areas = np.prod(corners[:, 2:] - corners[:, :2], axis=1)
    for row in np.argsort(areas, kind="stable"):
        label = _label(boxes[row], size[0])
        places = _places(corners[row], label.size, size)
        place, _ = freest(places, label.size, covered)
        covered.append((*place, *np.add(place, label.size)))
        sheet.paste(label, place)
    return np.asarray(_below_heading(sheet, heading))


def draw_side_by_side(photo, truth, predicted, side=SIDE) -> np.ndarray:
    """Draws a photo twice: with ground-truth boxes and with predicted boxes."""
    true_picture = draw_boxes(photo, truth, side, "true")
    predicted_picture = draw_boxes(photo, predicted, side, "found")
    between = np.full((len(true_picture), GAP, 3), 255, np.uint8)
    return np.concatenate([true_picture, between, predicted_picture], axis=1)


def draw_phrases(table, folder, names, sizes) -> dict[str, np.ndarray]:
    """Draws a few photos twice: with true boxes, and with the chosen boxes.

    The photos are evenly spread, and the phrases of a photo name different
    objects. Photos that are missing in `folder` are left out.

    Args:
        table: `evaluation.grounding.PhraseTable`.
        folder: folder of the photos.
        names: num_images names of photo files.
        sizes: `[num_images, 2]`, width and height of the photos in the pixels
            of the boxes.

    Returns:
        dict from "phrases_1", "phrases_2" and so on to pictures, uint8 arrays
        `[height, width, 3]`.
    """
    pictures, drawn = {}, _drawn_phrases(table)
    for number, (image, rows) in enumerate(drawn.items(), start=1):
        photo = montage.open_photo(folder, names[image])
        if photo is None:
            continue
        # The photo file may have a different size than the boxes assume.
        scale = np.tile(np.divide(photo.size, sizes[image]), 2)
        true_boxes, chosen = table.boxes[rows], []
        truth = [
            PhraseBox(box * scale, table.phrases[row], colour)
            for colour, (row, box) in enumerate(zip(rows, true_boxes))
        ]
        if candidates := len(table.candidates[image]):
            best = table.similarities[rows, :candidates].argmax(axis=1)
            best_boxes = np.asarray(table.candidates[image], np.float64)[best]
            is_right = np.diag(iou(true_boxes, best_boxes)) >= SAME_THING
            chosen = [
                item._replace(box=box * scale, is_right=bool(right))
                for item, box, right in zip(truth, best_boxes, is_right)
            ]
        picture = draw_side_by_side(photo, truth, chosen)
        pictures[f"phrases_{number}"] = picture
    return pictures


def _drawn_phrases(table):
    """Returns a dict from the rows of photos to the rows of their phrases."""
    owned = rows_by(table.images, len(table.candidates))
    images = np.flatnonzero([len(rows) > 0 for rows in owned])
    chosen = {}
    for image in images[montage.spread_evenly(len(images), NUM_PHOTOS)]:
        rows = owned[image]
        _, firsts = np.unique(table.things[rows], return_index=True)
        spread = montage.spread_evenly(len(firsts), NUM_PHRASES)
        chosen[int(image)] = rows[np.sort(firsts)[spread]]
    return chosen


def colour_of(number):
    """Returns the colour with an index, as #rrggbb; colours repeat after 7."""
    return COLOURS[number % len(COLOURS)]


def _in_each_other(corners):
    """Insets each box once for every earlier box with nearly equal edges."""
    near = np.abs(corners[:, None] - corners).max(axis=2) < LINE
    insets = CASING * np.tril(near, -1).sum(axis=1, keepdims=True)
    insets = np.minimum(insets, (corners[:, 2:] - corners[:, :2]) / 2)
    return corners + np.concatenate([insets, -insets], axis=1)


def _below_heading(sheet, heading):
    if not heading:
        return sheet
    picture = Image.new("RGB", (sheet.width, sheet.height + HEADING), "white")
    picture.paste(sheet, (0, HEADING))
    heading_font = font(FONT_SIZE + 3, heading)
    text = readable(heading).replace(" .", ".")
    text = _shortened(text, heading_font, sheet.width)
    ImageDraw.Draw(picture).text((0, 2), text, "black", heading_font)
    return picture


def _draw_box(draw, edges, box):
    x_min, y_min, x_max, y_max = np.round(edges).astype(int).tolist()
    x_max, y_max = max(x_max - 1, x_min), max(y_max - 1, y_min)
    for width, colour in ((CASING, "black"), (LINE, colour_of(box.colour))):
        dashed = box.is_right is False and colour != "black"
        lines = [
            (left, y, right, y)
            for left, right in _dashes(x_min, x_max, dashed)
            for y in (y_min, y_max)
        ]
        lines += [
            (x, top, x, bottom)
            for top, bottom in _dashes(y_min, y_max, dashed)
            for x in (x_min, x_max)
        ]
        for line in lines + np.multiply([-1, -1, 1, 1], width // 2):
            draw.rectangle(line.tolist(), colour)


def _dashes(start, end, dashed):
    if not dashed:
        return [(start, end)]
    starts = range(start, end + 1, 2 * DASH)
    return [(first, min(first + DASH - 1, end)) for first in starts]


def _label(box, most_width):
    height, colour = FONT_SIZE + 2 * PADDING, colour_of(box.colour)
    ink = "white" if colour in DARK else "black"
    letters = font(FONT_SIZE, box.phrase)
    left = PADDING if box.is_right is None else height
    most_width -= left + PADDING
    text = _shortened(readable(box.phrase), letters, most_width)
    width = left + PADDING + round(letters.getlength(text))
    label = Image.new("RGB", (width, height))
    draw = ImageDraw.Draw(label)
    draw.rectangle((0, 0, width - 1, height - 1), colour, "black")
    draw.text((left, height // 2), text, ink, letters, anchor="lm")
    near, far, down = 7, height - 5, height - 7
    if box.is_right:
        third = near + (far - near) // 3
        points = [(near, height // 2), (third, down), (far, near)]
        draw.line(points, ink, 3, joint="curve")
    elif box.is_right is False:
        draw.line([(near, near), (far, down)], ink, 3)
        draw.line([(near, down), (far, near)], ink, 3)
    return label


def _shortened(text, font, width):
    if len(text) <= MOST_LETTERS and font.getlength(text) <= width:
        return text
    text = text[:MOST_LETTERS]
    while text and font.getlength(f"{text} ...") > width:
        text = text[:-1].rstrip()
    return f"{text} ..."


def _places(edges, label, size):
    """Returns possible (x, y) of a label's corner, nearest to its box first."""
    x_min, y_min, x_max, y_max = np.round(edges).astype(int).tolist()
    (width, height), last = label, max(size[0] - label[0], 0)
    near = [
        (left, top)
        for top in (y_min - height, y_max, y_min, y_max - height)
        for left in (x_min, x_max - width)
        # Rows must fit. Columns are clipped below.
        if 0 <= top <= size[1] - height
    ]
    far = [
        (left, top)
        for top in range(0, size[1] - height + 1, height // 2)
        for left in range(0, size[0] - width + 1, height)
    ]
    far.sort(key=lambda corner: abs(corner[0] - x_min) + abs(corner[1] - y_min))
    return [(min(max(x, 0), last), y) for x, y in [*near, *far, (0, 0)]]


def freest(places, size, occupied):
    """Returns the place where a text covers the fewest occupied pixels.

    Also returns their number. `size` is the width and height of the text, and
    `occupied`, `[n, 4]`, contains the edges of areas to keep free.
    """
    starts, occupied = np.array(places)[:, None], np.reshape(occupied, (-1, 4))
    ends = np.minimum(starts + size, occupied[:, 2:])
    shared = np.maximum(ends - np.maximum(starts, occupied[:, :2]), 0)
    covered = shared.prod(axis=-1).sum(axis=1)
    best = np.argmin(covered)
    return places[best], covered[best]
