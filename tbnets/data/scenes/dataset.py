"""A rendered data set: scenes with captions, boxes, chains and gold trees.

The files use formats that are common in image-text matching::

    images/<id>.jpg         pictures
    dataset.json            captions and splits, as Karpathy's json
    Sentences/<id>.txt      captions with linked phrases, Flickr30K Entities
    Annotations/<id>.xml    boxes of the linked phrases, Flickr30K Entities
    trees/<id>.txt          a bracketed constituency tree per caption
    scenes.jsonl            the drawn objects and the captions' claims
    manifest.json           settings, counts and the hash of dataset.json
    README.txt              a longer description

The same settings and Pillow version give identical files. Adding training
scenes does not change existing scenes.
"""

import dataclasses
import hashlib
import json
import math
import pathlib
from typing import NamedTuple
from xml.etree import ElementTree

import numpy as np
from PIL import Image, ImageDraw

from tbnets.data.entities import EDGES
from tbnets.data.scenes import grammar, layout
from tbnets.data.scenes.grammar import BACKGROUND_CHAIN
from tbnets.data.scenes.layout import (
    BACKGROUNDS,
    COLOURS,
    RING_HOLE,
    SCENES_PER_SPLIT,
)
from tbnets.data.store.reader import extraction_differences
from tbnets.errors import ExistingFileError
from tbnets.files import CheckedFile, new_folder

# Flickr30K Entities counts pixels from 1 and includes the last pixel, so the
# half-open box `[x_min, y_min, x_max, y_max]` with origin 0 is written as
# `x_min + 1, y_min + 1, x_max, y_max`.
#
# Coreference chains are unique in the whole data set, as in Flickr30K Entities:
# 100 times the scene's id is added to its chain numbers, except to 0.

CHAINS_PER_SCENE = 100
DATASET = "dataset.json"
RECORDS = "scenes.jsonl"
FOLDERS = ("images", "Sentences", "Annotations", "trees")
README = pathlib.Path(__file__).with_name("README.txt")
"""The file that is copied to each folder of scenes."""


def karpathy_entry(described, image_row, first_sentence):
    """Returns a scene as an `images` entry in Karpathy's JSON format.

    `image_row` ("imgid") is the scene's index over all splits, and
    `first_sentence` is the "sentid" of its first caption.
    """
    numbered = [*enumerate(described.captions, first_sentence)]
    sentences = [
        {"tokens": c.tokens, "raw": c.raw, "imgid": image_row, "sentid": n}
        for n, c in numbered
    ]
    return {
        "sentids": [number for number, _ in numbered],
        "imgid": image_row,
        "sentences": sentences,
        "split": described.split,
        "filename": f"{described.scene_id}.jpg",
    }


def sentences_text(described):
    """Returns the captions, one per line, with tags around their phrases."""
    lines = (
        " ".join(_marked(*piece, described.scene_id) for piece in x.pieces)
        for x in described.captions
    )
    return "\n".join([*lines, ""])


def _marked(chain, text, scene_id):
    if chain is None:
        return text
    if chain == 0:
        return f"[/EN#0/notvisual {text}]"
    kind = "scene" if chain == BACKGROUND_CHAIN else "shapes"
    return f"[/EN#{CHAINS_PER_SCENE * scene_id + chain}/{kind} {text}]"


def annotation_xml(described):
    """Returns an XML document with the boxes of chains in the captions."""
    spoken = {c for x in described.captions for c, _ in x.pieces}
    things = []
    for row, box in enumerate(described.boxes):
        groups = described.groups.items()
        chains = [row + 1, *(chain for rows, chain in groups if row in rows)]
        things.append((chains, [("bndbox", [*zip(EDGES, box + [1, 1, 0, 0])])]))
    things.append(([BACKGROUND_CHAIN], [("scene", 1), ("nobndbox", 0)]))
    file_name, side = f"{described.scene_id}.jpg", described.scene.image_size
    size = [("width", side), ("height", side), ("depth", 3)]
    content = [("filename", file_name), ("size", size)]
    first = CHAINS_PER_SCENE * described.scene_id
    for chains, place in things:
        names = [("name", first + chain) for chain in chains if chain in spoken]
        content += [("object", names + place)] if names else []
    root = _element("annotation", content)
    ElementTree.indent(root, "\t")
    return ElementTree.tostring(root, "unicode") + "\n"


def _element(name, content):
    """Builds an element of a text, or of a list of (name, content)."""
    element = ElementTree.Element(name)
    if isinstance(content, list):
        element.extend(_element(*pair) for pair in content)
    else:
        element.text = str(content)
    return element


def scene_record(described):
    """Returns a dict with the objects and captions of a scene, for JSON."""
    names = "shape", "colour", "size", "texture", "box"
    things = zip(described.scene.objects, described.boxes.tolist())
    return {
        "id": str(described.scene_id),
        "split": described.split,
        "background": described.scene.background,
        "objects": [dict(zip(names, [*item[:4], box])) for item, box in things],
        "captions": [
            {"raw": caption.raw, "rule": caption.rule, "claims": caption.claims}
            for caption in described.captions
        ],
    }


# Increment this number if the same settings no longer give identical files.
VERSION = 1
JPEG_QUALITY = 92
MANIFEST = "manifest.json"


class DescribedScene(NamedTuple):
    """A `layout.Scene` of a split, its picture and its `grammar.SceneCaption`s.

    `scene_id` is unique across all splits. `boxes`, int64 `[num_objects, 4]`,
    are half-open, in pixels. `groups` maps the object rows of a plural phrase
    to its chain.
    """

    scene_id: int
    split: str
    scene: layout.Scene
    image: np.ndarray
    boxes: np.ndarray
    captions: list
    groups: dict


def draw_scenes(split, settings):
    """Yields the `DescribedScene`s of a split.

    No two scenes have identical objects, even in different splits.
    """
    split_row = layout.SPLITS.index(split)
    seen = set()
    for number in range(settings.counts()[split]):
        rng = np.random.default_rng([settings.seed, split_row, number])
        scene = None
        while scene is None:
            objects = layout.draw_objects(rng)
            key = layout.objects_key(objects)
            if layout.scene_split(objects) == split and key not in seen:
                scene = layout.draw_scene(rng, settings.image_size, objects)
        seen.add(key)
        image, boxes = render_scene(scene, rng, settings.clutter)
        description = grammar.describe_scene(scene, boxes, rng)
        scene_id = SCENES_PER_SPLIT * (split_row + 1) + number
        yield DescribedScene(scene_id, split, scene, image, boxes, *description)


def ensure_scenes(folder, settings, progress=lambda count: None):
    """Writes scenes to a new folder, unless the scenes already exist.

    The folder appears only when it is complete. If several processes write the
    scenes at once, all use the files of the first to finish. Raises
    FileExistsError if the folder has other content. After each new scene,
    `progress(1)` is called. Returns the manifest with two additional keys:
    "folder" (str) and "reused" (whether the scenes already existed).
    """
    folder = pathlib.Path(folder)
    reused = (folder / MANIFEST).exists()
    if not reused:
        if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
            expected = "have scenes, be empty or not exist"
            raise ExistingFileError("folder", expected, f"folder={folder}")
        folder.parent.mkdir(parents=True, exist_ok=True)
        try:
            with new_folder(folder) as partial:
                _write_all(partial, settings, progress)
        except OSError:
            # Another process may have written the scenes meanwhile.
            if not (folder / MANIFEST).exists():
                raise
            reused = True
    manifest = _checked_manifest(folder, settings)
    return {**manifest, "folder": str(folder), "reused": reused}


def _checked_manifest(folder, settings):
    manifest = CheckedFile(folder / MANIFEST).json()
    requested = {"version": VERSION, **dataclasses.asdict(settings)}
    stored = dict.fromkeys(requested)
    if isinstance(manifest, dict):
        stored = {name: manifest.get(name) for name in requested}
    names = "the folder", "the command"
    if lines := extraction_differences(stored, requested, *names):
        expected = "have scenes with the requested settings"
        received = f"folder={folder}, which differs: {'; '.join(lines)}"
        raise ExistingFileError("folder", expected, received)
    return manifest


def _write_all(folder, settings, progress):
    for name in FOLDERS:
        (folder / name).mkdir()
    entries, records, num_captions = [], [], 0
    for split in layout.SPLITS:
        for described in draw_scenes(split, settings):
            _write_scene(folder, described)
            row = len(entries)
            entries.append(karpathy_entry(described, row, num_captions))
            records.append(json.dumps(scene_record(described)) + "\n")
            num_captions += len(described.captions)
            progress(1)
    dataset = json.dumps({"images": entries, "dataset": "tbnets_scenes"})
    manifest = {
        "version": VERSION,
        **dataclasses.asdict(settings),
        "num_captions": num_captions,
        "dataset_sha256": hashlib.sha256(dataset.encode()).hexdigest(),
    }
    (folder / "README.txt").write_bytes(README.read_bytes())
    for name, text in {
        DATASET: dataset,
        RECORDS: "".join(records),
        MANIFEST: json.dumps(manifest, indent=2) + "\n",
    }.items():
        (folder / name).write_bytes(text.encode())


def _write_scene(folder, described):
    name, picture = described.scene_id, Image.fromarray(described.image)
    path = folder / "images" / f"{name}.jpg"
    picture.save(path, quality=JPEG_QUALITY, subsampling=0)
    trees = [f"{caption.tree}\n" for caption in described.captions]
    for path, text in {
        f"trees/{name}.txt": "".join(trees),
        f"Sentences/{name}.txt": sentences_text(described),
        f"Annotations/{name}.xml": annotation_xml(described),
    }.items():
        (folder / path).write_bytes(text.encode())


# Rendering. Shapes are drawn at four times their size and then reduced for
# smooth edges. Noise and gradients use integers and plain sums, so that one
# version of Pillow renders identical images on all machines.

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
    if item.texture == "plain":
        return colour
    x = left + np.arange(shape[1])[None, :] - math.floor(item.x)
    y = top + np.arange(shape[0])[:, None] - math.floor(item.y)
    luminance = colour @ np.array([0.3, 0.59, 0.11])
    # Light objects get a darker second colour, and dark objects a lighter one.
    second = 0.45 * colour if luminance > 120 else 0.5 * colour + 0.5 * 255
    return np.where(_pattern(item, x, y)[:, :, None], second, colour)


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
        tone = _shifted(pixels[int(y), int(x)], 40 * rng.random() - 20)
        draw.polygon([*_blob(rng, x, y, 0.04 * size)], fill=tone)
    for _ in range(round(3 + 12 * clutter * rng.random())):
        x, y = size * rng.random(), size * rng.random()
        angle = math.tau * rng.random()
        length = size * (0.05 + 0.25 * rng.random())
        end = (x + length * math.cos(angle), y + length * math.sin(angle))
        tone = _shifted(pixels[int(y), int(x)], 90 * rng.random() - 45)
        draw.line((x, y, *end), fill=tone, width=1)
    return np.asarray(image, np.float64)


def _blob(rng, x, y, radius):
    for number in range(9):
        angle = math.tau * number / 9
        reach = radius * (0.4 + 1.4 * rng.random())
        yield x + reach * math.cos(angle), y + reach * math.sin(angle)


def _shifted(pixel, change):
    return tuple(np.clip(pixel + change, 0, 255).astype(int).tolist())


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
