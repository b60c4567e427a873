"""Samples the layout of a scene: its objects, their positions and relations.

Captions claim only relations that `find_relation` returns. Boxes are `[x_min,
y_min, x_max, y_max]` in pixels, origin 0, half-open.
"""

import dataclasses
import hashlib
import itertools
import math
from typing import NamedTuple

import numpy as np

from tbnets.checks import checked_number
from tbnets.errors import InputError

# Scene ids are numbers, as in Flickr. The first digit is the split.
SCENES_PER_SPLIT = 1_000_000
_RANGES = {
    "num_train": (0, SCENES_PER_SPLIT),
    "num_dev": (0, SCENES_PER_SPLIT),
    "num_test": (0, SCENES_PER_SPLIT),
    "image_size": (48, 1024),
    "seed": (0, 2**63 - 1),
    "clutter": (0, 1),
}


@dataclasses.dataclass(frozen=True)
class SceneSettings:
    """Settings of rendered scenes.

    Args:
        num_train, num_dev, num_test: number of scenes in the splits "train",
            "val" and "test" of Karpathy's json.
        image_size: width and height of the images in pixels, 48 to 1024.
        seed: integer >= 0.
        clutter: from 0 (only the objects) to 1 (many lines and strong noise).
    """

    num_train: int = 2000
    num_dev: int = 250
    num_test: int = 250
    image_size: int = 96
    seed: int = 0
    clutter: float = 0.3

    def __post_init__(self):
        for name, (low, high) in _RANGES.items():
            value, whole = getattr(self, name), name != "clutter"
            value = checked_number(name, value, low, whole, most=high)
            object.__setattr__(self, name, value)
        if not self.num_scenes:
            expected = "be >= 1 if num_dev and num_test are 0"
            raise InputError("num_train", expected, "num_train=0")

    @property
    def num_scenes(self):
        """The number of scenes in all splits."""
        return sum(self.counts().values())

    def counts(self):
        """Returns a dict with the number of scenes in each split."""
        counts = self.num_train, self.num_dev, self.num_test
        return dict(zip(("train", "val", "test"), counts))


SHAPES = (*"circle square triangle star cross ring diamond heart".split(),)
COLOURS = {
    "red": (206, 32, 38),
    "green": (32, 140, 58),
    "blue": (36, 72, 205),
    "yellow": (250, 224, 38),
    "orange": (244, 128, 16),
    "purple": (132, 42, 160),
    "white": (248, 248, 248),
    "black": (22, 22, 24),
}
BACKGROUNDS = {
    "grey": (140, 144, 148),
    "beige": (204, 190, 158),
    "pink": (218, 176, 184),
    "turquoise": (126, 184, 182),
    "brown": (124, 98, 76),
}
TEXTURES = {"plain": 0.61, "striped": 0.13, "dotted": 0.13, "checked": 0.13}
SIZES = ("small", "large")
SPLITS = ("train", "val", "test")

# Half the width of an object, as a fraction of the image width.
RADIUS = {"small": 0.1, "large": 0.185}
# A ring around another object is drawn larger, so that the object fits.
HOLDING_RING_RADIUS = 0.235
# Radius of a ring's hole, as a fraction of the ring's radius.
RING_HOLE = 0.68
# "left of" requires that the horizontal distance of the centres is this many
# times the vertical distance, so that the relation is unambiguous.
DOMINANCE = 1.25
# Minimum distance of two objects, as a fraction of the image width.
GAP = 0.03


class SceneObject(NamedTuple):
    """One object of a scene.

    `x` and `y` are the centre, and `radius` is half the width, in pixels.
    `angle` is -8 to 8 degrees. `stripes` is the direction of stripes: 0 for
    horizontal, 1 for vertical, 2 and 3 for diagonal.
    """

    shape: str
    colour: str
    size: str
    texture: str
    x: float = 0.0
    y: float = 0.0
    radius: float = 0.0
    angle: float = 0.0
    stripes: int = 0


class Scene(NamedTuple):
    """A background with 2 to 4 `SceneObject`s.

    `image_size` is the width and height in pixels, and `light` is the direction
    of the light source in degrees.
    """

    image_size: int
    background: str
    light: float
    objects: tuple


def pick(rng, options):
    """Samples an element of `options` uniformly at random."""
    return options[int(rng.integers(len(options)))]


def pick_weighted(rng, weights):
    """Samples a key of `weights`, which maps keys to unnormalised weights."""
    point = rng.random() * sum(weights.values())
    for option, weight in weights.items():
        point -= weight
        if point < 0:
            return option
    return option


def objects_key(objects):
    """Returns a string that identifies objects, but not their positions."""
    return ";".join(sorted(",".join(item[:4]) for item in objects))


def scene_split(objects):
    """Returns the split of a collection of objects, based on a hash.

    A collection never occurs in two splits. On average, 1/8 of the collections
    are in "val", and 1/8 are in "test".
    """
    digest = hashlib.sha256(objects_key(objects).encode()).digest()
    return {0: "test", 1: "val"}.get(digest[0] % 8, "train")


def draw_objects(rng):
    """Samples 2 to 4 objects. No two have the same shape and colour."""
    num_objects = pick_weighted(rng, {2: 0.5, 3: 0.4, 4: 0.1})
    objects = []
    while len(objects) < num_objects:
        shape, colour = pick(rng, SHAPES), pick(rng, tuple(COLOURS))
        # A shape or a colour is often repeated, so that networks must learn
        # which object has which colour.
        if objects and rng.random() < 0.35:
            if rng.random() < 0.6:
                shape = objects[-1].shape
            else:
                colour = objects[-1].colour
        num_large = sum(earlier.size == "large" for earlier in objects)
        size = "small" if num_large == 2 else pick(rng, SIZES)
        texture = pick_weighted(rng, TEXTURES)
        if all((x.shape, x.colour) != (shape, colour) for x in objects):
            objects.append(SceneObject(shape, colour, size, texture))
    return tuple(objects)


def draw_scene(rng, image_size, objects):
    """Samples a background, and the positions, radii and angles of objects.

    A small object may be inside a large ring. Otherwise, objects do not touch.
    Returns None if the objects do not fit, or if too few of their relations
    have a name.
    """
    outer, inner = _pick_nested(rng, objects)
    radii = [image_size * RADIUS[item.size] for item in objects]
    radii = [radius * (0.95 + 0.1 * rng.random()) for radius in radii]
    if outer is not None:
        radii[outer] = image_size * HOLDING_RING_RADIUS
        radii[inner] = image_size * RADIUS["small"]
    for _ in range(40):
        places = _draw_places(rng, radii, outer, inner, image_size)
        if places and _num_named(places) >= len(places) - 1:
            break
    else:
        return None
    placed = []
    for item, place, radius in zip(objects, places, radii):
        turned = 16 * rng.random() - 8, int(rng.integers(4))
        placed.append(SceneObject(*item[:4], *place, radius, *turned))
    background = pick(rng, tuple(BACKGROUNDS))
    return Scene(image_size, background, 360 * rng.random(), tuple(placed))


def find_relation(box, other_box):
    """Returns the relation of a box to another box.

    Returns "left", "right", "above", "below", "inside" or "around", or None if
    the direction is too diagonal.
    """
    distances = [
        abs(other_box[i] + other_box[i + 2] - box[i] - box[i + 2])
        for i in (0, 1)
    ]
    across = distances[0] >= DOMINANCE * distances[1]
    down = distances[1] >= DOMINANCE * distances[0]
    relations = {
        "inside": _holds(other_box, box),
        "around": _holds(box, other_box),
        "left": across and box[2] <= other_box[0],
        "right": across and other_box[2] <= box[0],
        "above": down and box[3] <= other_box[1],
        "below": down and other_box[3] <= box[1],
    }
    return next((name for name, is_true in relations.items() if is_true), None)


def find_gap(box, other_box):
    """Returns the distance between two boxes in pixels, or 0 if they touch."""
    gaps = (
        max(other_box[i] - box[i + 2], box[i] - other_box[i + 2], 0)
        for i in (0, 1)
    )
    return math.hypot(*gaps)


def find_position(box, image_size):
    """Returns the name of a box's position in a square image.

    The name is a corner, such as "top left", or one of "top", "bottom", "left",
    "right" and "centre". Returns None for any other position.
    """
    names = []
    for i, low, high in ((1, "top", "bottom"), (0, "left", "right")):
        value = (box[i] + box[i + 2]) / 2 / image_size
        if value <= 0.34 or value >= 0.66:
            names.append(low if value <= 0.34 else high)
        elif not 0.42 <= value <= 0.58:
            return None
    return " ".join(names) or "centre"


def _holds(outer, inner):
    return all(
        outer[i] < inner[i] and inner[i + 2] < outer[i + 2] for i in (0, 1)
    )


def _pick_nested(rng, objects):
    # Returns the rows of a ring and of its inner object.
    large_ring, sizes = ("ring", "large"), [item.size for item in objects]
    kinds = [(item.shape, item.size) for item in objects]
    if large_ring in kinds and "small" in sizes and rng.random() >= 0.3:
        return kinds.index(large_ring), sizes.index("small")
    return None, None


def _draw_places(rng, radii, outer, inner, image_size):
    # Returns (x, y) per object, or None if one does not fit.
    places = {}
    for row in sorted(range(len(radii)), key=lambda row: -radii[row]):
        if row == inner:
            continue
        reach = 1.12 * radii[row] + 2
        for _ in range(25):
            place = reach + (image_size - 2 * reach) * rng.random(2)
            if all(
                np.abs(place - places[near]).max()
                >= 1.1 * (radii[row] + radii[near]) + GAP * image_size
                for near in places
            ):
                places[row] = place.tolist()
                break
        else:
            return None
    if inner is not None:
        places[inner] = places[outer]
    return [places[row] for row in range(len(radii))]


def _num_named(places):
    # Counts the pairs of objects whose relation has a name.
    count = 0
    for (x, y), (other_x, other_y) in itertools.combinations(places, 2):
        least, most = sorted((abs(x - other_x), abs(y - other_y)))
        count += most == 0 or most / max(least, 1e-6) >= 1.05 * DOMINANCE
    return count
