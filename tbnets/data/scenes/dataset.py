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
import pathlib
from xml.etree import ElementTree

import numpy as np
from PIL import Image

from tbnets.data.scenes import grammar, layout, rendering
from tbnets.data.scenes.grammar import BACKGROUND_CHAIN
from tbnets.data.scenes.layout import SCENES_PER_SPLIT
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
FOLDERS = {
    "images": ".jpg",
    "Sentences": ".txt",
    "Annotations": ".xml",
    "trees": ".txt",
}
README = pathlib.Path(__file__).with_name("README.txt")
"""The file that is copied to each folder of scenes."""


def karpathy_entry(described, image_row, first_sentence):
    """Returns a scene as an `images` entry in Karpathy's JSON format.

    `image_row` ("imgid") is the scene's index over all splits, and
    `first_sentence` is the "sentid" of its first caption.
    """
    sentences = [
        {"tokens": c.tokens, "raw": c.raw, "imgid": image_row, "sentid": n}
        for n, c in enumerate(described.captions, first_sentence)
    ]
    return {
        "sentids": [sentence["sentid"] for sentence in sentences],
        "imgid": image_row,
        "sentences": sentences,
        "split": described.split,
        "filename": f"{described.scene_id}.jpg",
    }


def sentences_text(described):
    """Returns the captions, one per line, with tags around their phrases."""
    lines = []
    for caption in described.captions:
        pieces = [_marked(*p, described.scene_id) for p in caption.pieces]
        lines.append(" ".join(pieces) + "\n")
    return "".join(lines)


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
    groups = described.groups.items()
    things = [
        ([row + 1, *(chain for rows, chain in groups if row in rows)], box)
        for row, box in enumerate(described.boxes)
    ]
    root = ElementTree.Element("annotation")
    file_name, side = f"{described.scene_id}.jpg", described.scene.image_size
    ElementTree.SubElement(root, "filename").text = file_name
    _add(root, "size", [("width", side), ("height", side), ("depth", 3)])
    first = CHAINS_PER_SCENE * described.scene_id
    for chains, box in [*things, ([BACKGROUND_CHAIN], None)]:
        names = [("name", first + chain) for chain in chains if chain in spoken]
        if names and box is None:
            _add(root, "object", [*names, ("scene", 1), ("nobndbox", 0)])
        elif names:
            edges = zip(("xmin", "ymin", "xmax", "ymax"), box + [1, 1, 0, 0])
            _add(_add(root, "object", names), "bndbox", edges)
    ElementTree.indent(root, "\t")
    return ElementTree.tostring(root, "unicode") + "\n"


def _add(parent, name, texts):
    added = ElementTree.SubElement(parent, name)
    for inner, text in texts:
        ElementTree.SubElement(added, inner).text = str(text)
    return added


def scene_record(described):
    """Returns a dict with the objects and captions of a scene, for JSON."""
    names = "shape", "colour", "size", "texture"
    objects = [
        {name: getattr(item, name) for name in names} | {"box": box.tolist()}
        for item, box in zip(described.scene.objects, described.boxes)
    ]
    captions = [
        {"raw": caption.raw, "rule": caption.rule, "claims": caption.claims}
        for caption in described.captions
    ]
    return {
        "id": str(described.scene_id),
        "split": described.split,
        "background": described.scene.background,
        "objects": objects,
        "captions": captions,
    }


# Increment this number if the same settings no longer give identical files.
VERSION = 1
JPEG_QUALITY = 92
MANIFEST = "manifest.json"


@dataclasses.dataclass(frozen=True)
class DescribedScene:
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
        image, boxes = rendering.render_scene(scene, rng, settings.clutter)
        description = grammar.describe_scene(scene, boxes, rng)
        scene_id = SCENES_PER_SPLIT * (split_row + 1) + number
        yield DescribedScene(scene_id, split, scene, image, boxes, *description)


def ensure_scenes(folder, settings, progress=None):
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
            raise ExistingFileError(
                "folder",
                "have scenes, be empty or not exist",
                f"folder={str(folder)!r}",
                "Choose another folder or delete it.",
            )
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
    if not isinstance(manifest, dict):
        manifest = {}
    requested = {"version": VERSION, **dataclasses.asdict(settings)}
    differences = [
        f"{name} is {manifest.get(name)!r} instead of {value!r}"
        for name, value in requested.items()
        if manifest.get(name) != value
    ]
    if differences:
        raise ExistingFileError(
            "folder",
            "have scenes with the requested settings",
            f"folder={str(folder)!r}, where {'; '.join(differences)}",
            "Choose another folder, delete this folder, or request its "
            "settings.",
        )
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
            if progress is not None:
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
    paths = {
        name: folder / name / f"{described.scene_id}{ending}"
        for name, ending in FOLDERS.items()
    }
    Image.fromarray(described.image).save(
        paths["images"], "JPEG", quality=JPEG_QUALITY, subsampling=0
    )
    trees = [f"{caption.tree}\n" for caption in described.captions]
    paths["trees"].write_bytes("".join(trees).encode())
    paths["Sentences"].write_bytes(sentences_text(described).encode())
    paths["Annotations"].write_bytes(annotation_xml(described).encode())
