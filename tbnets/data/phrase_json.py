"""Reads phrases with boxes from JSON files.

A file contains a list of images with `regions` (Visual Genome), of references
with `sentences` and `ann_id` (RefCOCO), or of objects with the keys of a
`.jsonl` table.
"""

import os
import urllib.parse

from tbnets.errors import InputError
from tbnets.files import CheckedFile

NEEDED = ("image", "phrase", "box")
PICKLES = (".p", ".pkl", ".pickle")
INSTANCES, IMAGE_DATA = "instances.json", "image_data.json"


def rows_of(file):
    """Yields (place, row) for each phrase in a JSON file.

    `row` is a dict with the keys of a phrase table. For Visual Genome and
    RefCOCO, it contains `bbox` instead of `box`: x, y, width and height of a
    box that may extend beyond its image.
    """
    _refuse_pickle(file)
    content = file.json()
    if content is not None:
        yield from STRUCTURES.get(structure_of(content), _rows)(file, content)


def structure_of(content):
    """Returns the structure of JSON: a key of `STRUCTURES`, or "" for rows."""
    first = content[0] if isinstance(content, list) and content else None
    if not isinstance(first, dict):
        return ""
    if "regions" in first:
        return "regions"
    return "references" * ({"sentences", "ann_id"} <= first.keys())


def _rows(file, entries):
    for place, row in _entries(file, entries):
        if all(name in row for name in NEEDED):
            yield place, row
        else:
            keys = ", ".join(map(repr, NEEDED))
            expected = f"{keys}; 'regions'; or 'sentences' and 'ann_id'"
            file.refuse(expected, sorted(row), place)


def _refuse_pickle(file):
    if file.path.lower().endswith(PICKLES):
        name = os.path.basename(file.path)
        raise InputError(
            "path",
            "be JSON, because a pickle can run any program",
            f"path={file.path}",
            "If you trust its source, convert the file: python -c 'import "
            f'json, pickle; json.dump(pickle.load(open("{name}", "rb")), '
            'open("refs.json", "w"))\'.',
        )


def _regions(file, images):
    """Yields the rows of Visual Genome's `region_descriptions.json`."""
    sizes, path = {}, _beside(file, IMAGE_DATA)
    if os.path.isfile(path):
        data = CheckedFile(path, file.problems)
        for place, entry in _entries(data, data.json()):
            sizes[_key(data, entry, "image_id", place)] = entry
    for place, image in _entries(file, images):
        name = "image_id" if "image_id" in image else "id"
        key = _key(file, image, name, place)
        entry = sizes.get(key, image)
        row = {k: entry[k] for k in ("width", "height") if k in entry}
        row["image"] = _photo_name(key, entry.get("url"))
        for where, region in _entries(
            file, image.get("regions"), f"{place}.regions"
        ):
            box = [region.get(k) for k in ("x", "y", "width", "height")]
            yield where, {**row, "phrase": region.get("phrase"), "bbox": box}


def _photo_name(key, url):
    # The photos are in two folders, which the address names.
    if isinstance(url, str) and url:
        parts = urllib.parse.urlsplit(url).path.split("/")
        return "/".join(parts[-2:])
    return f"{key}.jpg"


def _references(file, references):
    """Yields the rows of RefCOCO, with the boxes of `instances.json`."""
    instances = CheckedFile(_beside(file, INSTANCES), file.problems)
    content, known = instances.json(), {"images": {}, "annotations": {}}
    for kind, by_key in known.items():
        entries = content.get(kind) if isinstance(content, dict) else content
        for place, entry in _entries(instances, entries, kind):
            by_key[_key(instances, entry, "id", place)] = entry
    for place, reference in _entries(file, references):
        found = []
        for kind, name in (("images", "image_id"), ("annotations", "ann_id")):
            key = _key(file, reference, name, place)
            if key is not None and key not in known[kind]:
                expected = f"{name!r} of {instances.path}"
                file.refuse(expected, reference[name], place)
            found.append(known[kind].get(key))
        if None in found:
            continue
        image, annotation = found
        row = {k: image[k] for k in ("width", "height") if k in image}
        row |= {"image": image.get("file_name"), "chain": reference["ann_id"]}
        if "split" in reference:
            row["split"] = reference["split"]
        row["bbox"] = annotation.get("bbox")
        sentences = reference.get("sentences")
        for where, sentence in _entries(file, sentences, f"{place}.sentences"):
            yield where, {**row, "phrase": sentence.get("sent")}


STRUCTURES = {"regions": _regions, "references": _references}


def _beside(file, name):
    return os.path.join(os.path.dirname(file.path), name)


def _entries(file, entries, before=""):
    # Yields (place, entry) for each object of a list.
    if not isinstance(entries, list):
        file.refuse("a list of objects", entries, before or None)
        return
    for number, entry in enumerate(entries):
        place = f"{before}[{number}]"
        if isinstance(entry, dict):
            yield place, entry
        else:
            file.refuse("an object", entry, place)


def _key(file, entry, name, place):
    key = entry.get(name)
    if isinstance(key, int | str) and not isinstance(key, bool):
        return str(key)
    return file.refuse(f"an integer or a string as {name!r}", key, place)
