"""Renders scenes: textured shapes on a background with clutter and noise.

Shapes are drawn at four times their size and then reduced for smooth edges.
Noise and gradients use integers and plain sums, so that one version of Pillow
renders identical images on all machines.
"""

import math

import numpy as np
from PIL import Image, ImageDraw

from tbnets.data.scenes.layout import BACKGROUNDS, COLOURS, RING_HOLE

SUPERSAMPLING = 4
# A pixel belongs to an object that covers at least this fraction of the pixel.
OWNED = 0.25


def render_scene(scene, rng, clutter=0.3):
    """Renders a scene, with clutter and noise sampled from `rng`.

    Returns the image, uint8 `[image_size, image_size, 3]`, and the boxes, int64
    `[num_objects, 4]`, half-open. A box tightly encloses the pixels of which
    its object covers at least the fraction `OWNED`.
    """
    pixels = draw_background(scene)
    if clutter > 0:
        pixels = _add_clutter(pixels, rng, clutter)
    boxes = []
    for item in scene.objects:
        left, top, coverage = draw_coverage(item)
        height, width = coverage.shape
        colour = _textured(item, left, top, coverage.shape)
        patch = pixels[top : top + height, left : left + width]
        patch += coverage[:, :, None] * (colour - patch)
        owned = np.argwhere(coverage >= OWNED)[:, ::-1] + (left, top)
        boxes.append([*owned.min(axis=0), *owned.max(axis=0) + 1])
    if clutter > 0:
        pixels = pixels + _noise(rng, pixels.shape, clutter)
    return _rounded(pixels), np.array(boxes, dtype=np.int64)


def _rounded(pixels):
    return np.clip(np.rint(pixels), 0, 255).astype(np.uint8)


def draw_background(scene):
    """Returns the empty background, float64 `[size, size, 3]`.

    It is 10 % brighter towards the light and 10 % darker away from it.
    """
    size = scene.image_size
    steps = (np.arange(size) + 0.5) / size - 0.5
    angle = math.radians(scene.light)
    slope = steps[None, :] * math.cos(angle) + steps[:, None] * math.sin(angle)
    colour = np.array(BACKGROUNDS[scene.background], np.float64)
    return colour * (1 + 0.2 * slope[:, :, None])


def draw_coverage(item):
    """Draws the shape of one object at its position.

    Returns:
        (left, top, coverage): the top left corner of a patch, in pixels, and
        the covered fraction of each of its pixels, float64 `[height, width]`.
    """
    reach = 1.12 * item.radius + 1
    left, top = math.floor(item.x - reach), math.floor(item.y - reach)
    width = math.ceil(item.x + reach) - left
    height = math.ceil(item.y + reach) - top
    fine = Image.new("L", (width * SUPERSAMPLING, height * SUPERSAMPLING))
    draw = ImageDraw.Draw(fine)
    x = (item.x - left) * SUPERSAMPLING
    y = (item.y - top) * SUPERSAMPLING
    radius = item.radius * SUPERSAMPLING
    if item.shape in ("circle", "ring"):
        draw.ellipse((x - radius, y - radius, x + radius, y + radius), fill=255)
    if item.shape == "ring":
        hole = radius * RING_HOLE
        draw.ellipse((x - hole, y - hole, x + hole, y + hole), fill=0)
    if item.shape in OUTLINES:
        draw.polygon(_turned(item, x, y, radius), fill=255)
    cells = np.asarray(fine, np.float64).reshape(
        height, SUPERSAMPLING, width, SUPERSAMPLING
    )
    return left, top, cells.mean(axis=(1, 3)) / 255


def _turned(item, x, y, radius):
    angle = math.radians(item.angle)
    cos, sin = math.cos(angle) * radius, math.sin(angle) * radius
    return [
        (round(x + u * cos - v * sin, 3), round(y + u * sin + v * cos, 3))
        for u, v in OUTLINES[item.shape]
    ]


def _textured(item, left, top, shape):
    colour = np.array(COLOURS[item.colour], np.float64)
    pattern = np.zeros(shape, bool)
    if item.texture != "plain":
        x = left + np.arange(shape[1])[None, :] - math.floor(item.x)
        y = top + np.arange(shape[0])[:, None] - math.floor(item.y)
        pattern = _pattern(item, x, y)
    luminance = colour @ np.array([0.3, 0.59, 0.11])
    # Light objects get a darker second colour, and dark objects a lighter one.
    second = 0.45 * colour if luminance > 120 else 0.5 * colour + 0.5 * 255
    return np.where(pattern[:, :, None], second, colour)


def _pattern(item, x, y):
    # Patterns grow with the object: a step of 3 pixels looks like noise on a
    # large object, and a step of 6 pixels hides a small object.
    step = max(2, round(item.radius / 4.5))
    if item.texture == "striped":
        along = (y + 0 * x, x + 0 * y, x + y, x - y)[item.stripes]
        step = step if item.stripes < 2 else round(1.4 * step)
        return along // step % 2 == 0
    if item.texture == "checked":
        return (x // (step + 1) + y // (step + 1)) % 2 == 0
    pitch = 2 * step + 1
    u, v = x % pitch - step, y % pitch - step
    return u * u + v * v <= (0.62 * step) ** 2


def _add_clutter(pixels, rng, clutter):
    size = len(pixels)
    image = Image.fromarray(_rounded(pixels))
    draw = ImageDraw.Draw(image)
    for _ in range(round(6 * clutter * rng.random())):
        x, y = size * rng.random(), size * rng.random()
        tone = _shifted(pixels, x, y, 40 * rng.random() - 20)
        draw.polygon([*_blob(rng, x, y, 0.04 * size)], fill=tone)
    for _ in range(round(3 + 12 * clutter * rng.random())):
        x, y = size * rng.random(), size * rng.random()
        angle = math.tau * rng.random()
        length = size * (0.05 + 0.25 * rng.random())
        end = (x + length * math.cos(angle), y + length * math.sin(angle))
        tone = _shifted(pixels, x, y, 90 * rng.random() - 45)
        draw.line((x, y, *end), fill=tone, width=1)
    return np.asarray(image, np.float64)


def _blob(rng, x, y, radius):
    for number in range(9):
        angle = math.tau * number / 9
        reach = radius * (0.4 + 1.4 * rng.random())
        yield x + reach * math.cos(angle), y + reach * math.sin(angle)


def _shifted(pixels, x, y, change):
    base = pixels[int(y), int(x)]
    return tuple(int(min(255, max(0, value + change))) for value in base)


def _noise(rng, shape, clutter):
    # The sum of two uniform integer draws is identical on all machines.
    reach = round(4 + 20 * clutter)
    draws = rng.integers(-reach, reach, (2, *shape), np.int16, endpoint=True)
    return draws.sum(axis=0, dtype=np.int16)


def _star():
    for number in range(10):
        radius, angle = (1.08, 0.46)[number % 2], math.pi * number / 5
        yield radius * math.sin(angle), -radius * math.cos(angle)


def _heart():
    for number in range(40):
        t = math.tau * number / 40
        x = 16 * math.sin(t) ** 3
        y = 13 * math.cos(t) - 5 * math.cos(2 * t)
        y += -2 * math.cos(3 * t) - math.cos(4 * t)
        yield x / 16, -(y + 2.5) / 16


def _cross():
    quarter = [(0.32, -1), (0.32, -0.32), (1, -0.32)]
    for _ in range(4):
        yield from quarter
        quarter = [(-y, x) for x, y in quarter]


# Corners in units of the object's radius, y downwards.
OUTLINES = {
    "square": [(-0.88, -0.88), (0.88, -0.88), (0.88, 0.88), (-0.88, 0.88)],
    "triangle": [(0, -0.95), (1, 0.85), (-1, 0.85)],
    "star": [*_star()],
    "cross": [*_cross()],
    "diamond": [(0, -1.08), (0.8, 0), (0, 1.08), (-0.8, 0)],
    "heart": [*_heart()],
}
