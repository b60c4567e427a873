"""Reads phrases with boxes from tables.

    {"image": "a.jpg", "phrase": "a red ball", "box": [10, 20, 110, 120]}

A box is x_min, y_min, x_max, y_max in pixels of the upright photo or, if the
row contains `width` and `height`, of an image of this size. Instead of a table,
the file can be JSON: a list of images with `regions` (Visual Genome), of
references with `sentences` and `ann_id` (RefCOCO), or of objects with the keys
of a table.
"""

import collections
import os
import posixpath
import re
import urllib.parse
from typing import NamedTuple

from tbnets.checks import letters
from tbnets.data.caption_files import CaptionFile
from tbnets.files import CheckedFile, is_kind, shown


class MarkedPhrase(NamedTuple):
    """A phrase of a caption.

    `text` has single spaces between words. `span` is the half-open range of the
    caption's words that are the phrase. `chain` is the coreference chain, or
    "0" if the object is not visible. `types` contains names such as "people".
    """

    text: str
    span: tuple[int, int]
    chain: str
    types: tuple[str, ...]


class MarkedCaption(NamedTuple):
    """A caption with its tags removed, and its phrases.

    `number` is the caption's index in its file.
    """

    number: int
    text: str
    phrases: list[MarkedPhrase]


class ImagePhrases(NamedTuple):
    """An image, its captions with phrases, and the boxes of its chains.

    Args:
        image_id: id of the image.
        file_name: file name of the photo, relative to an images folder.
        size: (width, height) of the annotated image; (0, 0) if unknown.
        captions: list of `MarkedCaption`.
        boxes: maps a chain to a list of boxes.
        left_out: maps a reason for missing boxes to the number of phrases
            without a box for this reason.
    """

    image_id: str
    file_name: str
    size: tuple
    captions: list
    boxes: dict
    left_out: collections.Counter


MOST_PIXELS = 10**9
"""Upper bound for the sides of photos and the edges of boxes."""
_TYPE = re.compile(r"[^\s/\[\]]+")


def read_phrase_table(path, images, problems) -> list[ImagePhrases]:
    """Reads a file whose rows have the keys `image`, `phrase` and `box`.

    The file is JSON Lines, or a JSON file that `rows_of` reads. Optional keys
    are `caption` (the sentence; by default the phrase), `type` (a name or a
    list of names), `chain` (an id of the object that the phrase names), `width`
    and `height`. A chain has the boxes of all its rows. Phrases without `chain`
    and with equal boxes are assumed to name one object.
    """
    file, images_by_path = CaptionFile(path, problems), {}
    for place, row in rows_of(file):
        _read_row(file, place, row, images_by_path)
    if not images_by_path and not problems:
        file.report(f"expected rows of {', '.join(NEEDED)}; found none.")
    if images is None:
        images = {name: name for name in sorted(images_by_path)}
    records = []
    for key, name in images.items():
        paths = map(posixpath.normpath, (name, key))
        rows = next(filter(None, map(images_by_path.get, paths)), _Rows())
        captions = [
            MarkedCaption(number, text, [*phrases.values()])
            for number, (text, phrases) in enumerate(rows.captions.items())
        ]
        image = key, name, rows.size, captions, rows.boxes, rows.left_out
        records.append(ImagePhrases(*image))
    return records


class _Rows:
    """The rows of an image: `captions` maps a caption to its phrases."""

    def __init__(self, size=(0, 0)):
        self.size = size
        self.captions, self.boxes = {}, {}
        self.left_out = collections.Counter()


def _read_row(file, line, row, images):
    image = row["image"]
    image = image.strip() if isinstance(image, str) else image
    name = file.file_name(image, line)
    text = _words(file, line, row["phrase"], "phrase")
    caption = text
    if "caption" in row:
        caption = _words(file, line, row["caption"], "caption")
    types = _types(file, line, row.get("type", []))
    size = _size(file, line, row)
    chain = _chain(file, line, row.get("chain", ""))
    box = size and _box(file, line, row, size)
    if None in (name, text, caption, types, chain, box):
        return
    entry = images.setdefault(posixpath.normpath(name), _Rows(size))
    if entry.size != size:
        expected = f"{entry.size}, the size in earlier rows of the image"
        file.refuse(expected, size, line)
        return
    if box[0] >= box[2] or box[1] >= box[3]:
        entry.left_out["no_area"] += 1
        return
    phrases = entry.captions.get(caption, {})
    chain = chain or "@" + ",".join(f"{edge:g}" for edge in box)
    if (text, chain) not in phrases:
        span = _span(text, caption, {p.span for p in phrases.values()})
        if span is None:
            file.refuse(f"words of the caption {shown(caption)}", text, line)
            return
        phrases[text, chain] = MarkedPhrase(text, span, chain, types)
        entry.captions[caption] = phrases
    elif box in entry.boxes[chain]:
        entry.left_out["repeated"] += 1
    entry.boxes.setdefault(chain, []).append(box)


def _words(file, line, value, kind):
    text = file.caption(value, line)
    if text == "":
        file.report(f"expected the words of a {kind}; found none.", line)
    return " ".join(text.split()) if text else None


def _types(file, line, value):
    names = [value] if isinstance(value, str) else value
    if is_kind(names, list[str]) and all(map(_TYPE.fullmatch, names)):
        return tuple(names)
    return file.refuse("one word, or a list of words, as 'type'", value, line)


def _chain(file, line, value):
    # A missing chain is "", and an invalid chain is None.
    if isinstance(value, str | int) and not isinstance(value, bool):
        return str(value).strip()
    return file.refuse("a name or a number as 'chain'", value, line)


def _size(file, line, row):
    # A missing size is (0, 0), and an invalid size is None.
    size = row.get("width", 0), row.get("height", 0)
    has_size = "width" in row or "height" in row
    if is_kind([*size], list[int]) and max(size) < MOST_PIXELS:
        if min(size) > 0 or not has_size:
            return size
    expected = "the integers 'width' and 'height' in pixels, or neither"
    return file.refuse(expected, size, line)


def _box(file, line, row, size):
    # A `bbox` is clipped to its image, and a `box` must be inside.
    is_clipped = "bbox" in row
    edges = row["bbox" if is_clipped else "box"]
    limits = [side or MOST_PIXELS for side in size] * 2
    is_valid = is_kind(edges, list[float]) and len(edges) == 4
    is_valid = is_valid and all(abs(edge) <= MOST_PIXELS for edge in edges)
    if is_valid and is_clipped:
        x, y, width, height = edges
        pairs = zip((x, y, x + width, y + height), limits)
        return [min(max(edge, 0), limit) for edge, limit in pairs]
    if is_valid and all(
        0 <= low < high <= limit
        for low, high, limit in zip(edges, edges[2:], limits)
    ):
        return edges
    expected = "x, y, width and height in pixels"
    if not is_clipped:
        place = f" inside {size[0]} x {size[1]}" if size[0] else ""
        expected = f"pixels x_min, y_min < x_max, y_max >= 0{place}"
    return file.refuse(expected, edges, line)


def _span(text, caption, used_spans):
    # Prefers the first unused span.
    if text == caption:
        return 0, len(text.split())
    words = [letters(word) for word in caption.split()]
    phrase_words = [letters(word) for word in text.split()]
    spans = [
        (first, first + len(phrase_words))
        for first in range(len(words) - len(phrase_words) + 1)
        if words[first : first + len(phrase_words)] == phrase_words
    ]
    free_spans = [span for span in spans if span not in used_spans]
    return (free_spans or spans or [None])[0]


NEEDED = ("image", "phrase", "box")
INSTANCES, IMAGE_DATA = "instances.json", "image_data.json"


def rows_of(file):
    """Yields (place, row) for each phrase in a `CaptionFile` of JSON.

    `row` is a dict with the keys of a phrase table. For Visual Genome and
    RefCOCO, it contains `bbox` instead of `box`: x, y, width and height of a
    box that may extend beyond its image.
    """
    if file.is_json_lines:
        yield from file.json_rows(NEEDED)
    elif file.content is not None:
        read = published_reader(file.content) or _rows
        yield from read(file, file.content)


def published_reader(content):
    """Returns the function that reads a published format, or None for rows."""
    first = content[0] if isinstance(content, list) and content else None
    if isinstance(first, dict):
        if "regions" in first:
            return _regions
        if {"sentences", "ann_id"} <= first.keys():
            return _references
    return None


def _rows(file, entries):
    for place, row in entries_of(file, entries):
        if all(name in row for name in NEEDED):
            yield place, row
        else:
            keys = ", ".join(map(repr, NEEDED))
            expected = f"{keys}; 'regions'; or 'sentences' and 'ann_id'"
            file.refuse(expected, sorted(row), place)


def _regions(file, images):
    sizes, path = {}, _beside(file, IMAGE_DATA)
    if os.path.isfile(path):
        data = CheckedFile(path, file.problems)
        for place, entry in entries_of(data, data.json()):
            sizes[key_of(data, entry, "image_id", place)] = entry
    for place, image in entries_of(file, images):
        name = "image_id" if "image_id" in image else "id"
        key = key_of(file, image, name, place)
        entry = sizes.get(key, image)
        row = {k: entry[k] for k in ("width", "height") if k in entry}
        row["image"] = _photo_name(key, entry.get("url"))
        for where, region in entries_of(
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
        for place, entry in entries_of(instances, entries, kind):
            by_key[key_of(instances, entry, "id", place)] = entry
    for place, reference in entries_of(file, references):
        found = []
        for kind, name in (("images", "image_id"), ("annotations", "ann_id")):
            key = key_of(file, reference, name, place)
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
        sentences, before = reference.get("sentences"), f"{place}.sentences"
        for where, sentence in entries_of(file, sentences, before):
            yield where, {**row, "phrase": sentence.get("sent")}


def _beside(file, name):
    return os.path.join(os.path.dirname(file.path), name)


def entries_of(file, entries, before=""):
    """Yields (place, entry) for each object of a list; reports other values.

    `before` is the place of the list in the file.
    """
    if not isinstance(entries, list):
        file.refuse("a list of objects", entries, before or None)
        return
    for number, entry in enumerate(entries):
        place = f"{before}[{number}]"
        if isinstance(entry, dict):
            yield place, entry
        else:
            file.refuse("an object", entry, place)


def key_of(file, entry, name, place):
    """Returns the id in `entry[name]` as a string; reports an invalid id."""
    key = entry.get(name)
    if isinstance(key, int | str) and not isinstance(key, bool):
        return str(key)
    return file.refuse(f"an integer or a string as {name!r}", key, place)
