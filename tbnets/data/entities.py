"""Reads captions, phrases and boxes in the format of Flickr30K Entities.

The captions are in `Sentences/<id>.txt`, and the boxes in
`Annotations/<id>.xml`. These files count pixels from 1, and their boxes include
the last pixel. The returned boxes have the format of `tbnets.evaluation.boxes`.
XML documents with a DTD are rejected, so that no XML entity is expanded.
"""

import collections
import contextlib
import math
import os
import pathlib
import re
from typing import NamedTuple
from xml.etree import ElementTree

import numpy as np

from tbnets.data.photos import stem_of
from tbnets.data.phrase_tables import (
    ImagePhrases,
    MarkedCaption,
    MarkedPhrase,
)
from tbnets.errors import InputError, MissingFileError
from tbnets.files import CheckedFile, ProblemError, shown

FOLDERS = {"Sentences": ".txt", "Annotations": ".xml"}
MOST_BYTES = 1 << 20
EDGES = ("xmin", "ymin", "xmax", "ymax")
_ADVICE = "Use a file from the folder Annotations of Flickr30K Entities."


# `Sentences/<id>.txt` of Flickr30K Entities has one caption per line. A phrase
# is a tag with a coreference chain and one or more types:
#
#     [/EN#283585/people/clothing A man in uniform] likes [/EN#0/notvisual it] .
#
# Chain 0 is for objects that are not visible. It has no annotation.

NO_CHAIN = "0"
_TAG = re.compile(
    r"\[/EN#([0-9]+)((?:/[^\s/\[\]]+)+)[ \t]\s*([^\s\[\]][^\[\]]*)\]"
)


def parse_caption(line, number=0) -> MarkedCaption:
    """Parses a line of a `Sentences` file into a caption and its phrases.

    Raises ValueError if brackets are unbalanced or nested, or if a tag lacks a
    chain, a type or words.

    Example:
        >>> parse_caption("[/EN#7/people A man] runs").phrases[0].text
        'A man'
    """
    words, phrases, end = [], [], 0
    for tag in _TAG.finditer(line):
        words += _untagged(line[end : tag.start()])
        first, end = len(words), tag.end()
        words += tag[3].split()
        text, types = " ".join(words[first:]), tuple(tag[2][1:].split("/"))
        span, chain = (first, len(words)), tag[1]
        chain = chain if chain.strip("0") else NO_CHAIN
        phrases.append(MarkedPhrase(text, span, chain, types))
    words += _untagged(line[end:])
    return MarkedCaption(number, " ".join(words), phrases)


def _untagged(text):
    if bracket := re.search(r"[\[\]]", text):
        place = bracket.start()
        raise InputError(
            "expected [/EN#<chain>/<type> <words>]; found "
            f"{shown(text[max(0, place - 30) : place + 30])}."
        )
    return text.split()


def read_sentences(path, problems=None) -> list[MarkedCaption]:
    """Reads the captions of one photo from a text file.

    Invalid lines are skipped and reported in the list `problems`; the other
    captions keep their numbers. If `problems` is None, the first invalid line
    raises an error.

    Source: Plummer et al. 2015, "Flickr30k Entities", release 1.0.
    """
    file = CheckedFile(path, problems)
    lines, _ = file.lines(may_be_cp1252=True)
    captions = []
    for number, line in enumerate(lines):
        try:
            captions.append(parse_caption(line, number))
        except InputError as error:
            file.report(str(error), number + 1)
    if not lines:
        file.report("expected captions; found none. Copy the file again.")
    return captions


class AnnotatedBoxes(NamedTuple):
    """The annotated boxes of one photo. `width` and `height` are in pixels.

    `boxes` maps a coreference chain to a list of boxes. `without` maps a chain
    that has no box to the reason: `scene` (it refers to the whole photo) or
    `nobndbox` (its object is not visible).
    """

    file_name: str
    width: int
    height: int
    boxes: dict
    without: dict


def read_annotations(path, problems=None) -> AnnotatedBoxes:
    """Reads the boxes of one photo from an XML file.

    Invalid objects are skipped and reported in the list `problems`. If
    `problems` is None, the first invalid object raises an error. Raises
    ProblemError if the file is not an Entities annotation.

    Source: Plummer et al. 2015, "Flickr30k Entities", release 1.0.
    """
    file, strict = CheckedFile(path, problems), CheckedFile(path)
    root = _parse(strict)
    if root.tag != "annotation":
        strict.refuse("<annotation>", root.tag, None, _ADVICE)
    width = _number(strict, root, "size/width")
    height = _number(strict, root, "size/height")
    boxes, flagged = {}, {"nobndbox": {}, "scene": {}}
    for number, item in enumerate(root.findall("object")):
        place = f"object[{number}]"
        names = [(tag.text or "").strip() for tag in item.findall("name")]
        if not all(names) or not names:
            expected = "<name> with a chain"
            file.refuse(expected, names, place, "Copy the file again.")
            continue
        for element in item.findall("bndbox"):
            box = _box(file, element, place, width, height)
            for name in names if box else ():
                boxes.setdefault(name, []).append(box)
        for reason, chains in flagged.items():
            if (item.findtext(reason) or "0").strip() == "1":
                chains.update(dict.fromkeys(names, reason))
    name = (root.findtext("filename") or "").strip()
    without = flagged["nobndbox"] | flagged["scene"]
    return AnnotatedBoxes(name, width, height, boxes, without)


def read_boxes(folder, image_id, photo_size=None) -> np.ndarray:
    """Reads the distinct boxes of a photo, float64 `[num_boxes, 4]`.

    `folder` is the `Annotations` folder of Flickr30K Entities. If `photo_size`
    (width, height) is set, the boxes are scaled to this size in pixels.
    """
    stem = stem_of(CheckedFile(folder).file_name(image_id))
    photo = read_annotations(pathlib.Path(folder) / f"{stem}.xml")
    boxes = [box for boxes in photo.boxes.values() for box in boxes]
    boxes = np.unique(np.reshape(boxes, (-1, 4)), axis=0)
    if photo_size is not None:
        width, height = photo_size
        boxes = boxes * ([width / photo.width, height / photo.height] * 2)
    return boxes


def read_entities(path, images, problems) -> list[ImagePhrases]:
    """Reads a folder that contains `Sentences` and `Annotations`.

    `images` maps the ids of the images to read to file names; None reads all
    images, sorted by name. `problems` is as in `phrases.read_phrases`.
    """
    root = pathlib.Path(path)
    stems = set()
    for folder, suffix in FOLDERS.items():
        if not (root / folder).is_dir():
            expected = f"be a folder with {' and '.join(FOLDERS)}, or a file"
            raise MissingFileError("path", expected, f"path={root}")
        stems |= {file.stem for file in (root / folder).glob(f"*{suffix}")}
    entries = [(stem, None, "") for stem in sorted(stems)]
    if images is not None:
        check = CheckedFile(path).file_name
        entries = [(stem_of(check(n)), key, n) for key, n in images.items()]
    records = []
    for stem, key, name in entries:
        try:
            records.append(_read_image(root, stem, key, name, problems))
        except ProblemError as error:
            error.problem.raise_or_add_to(problems)
    return records


def _read_image(root, stem, key, name, problems):
    sentences, path = [
        root / folder / f"{stem}{suffix}" for folder, suffix in FOLDERS.items()
    ]
    for half in (path, sentences):
        if not os.path.isfile(half):
            image = key or stem
            message = f"expected this file of {image!r}; found none."
            CheckedFile(half).report(message)
    captions = read_sentences(sentences, problems)
    photo = read_annotations(path, problems)
    if key is None:
        # Prefer the annotated file name, which has the extension.
        named = photo.file_name
        name = named if stem_of(named) == stem else stem
        key = name = CheckedFile(path).file_name(name)
    reasons = {**photo.without, NO_CHAIN: "notvisual"}
    chains = [p.chain for caption in captions for p in caption.phrases]
    lost = (chain for chain in chains if chain not in photo.boxes)
    left_out = collections.Counter(reasons.get(x, "unknown") for x in lost)
    size = (photo.width, photo.height)
    return ImagePhrases(key, name, size, captions, photo.boxes, left_out)


class _Builder(ElementTree.TreeBuilder):
    def doctype(self, *_):
        """Refuses XML that may define entities."""
        raise InputError("a document type. Remove it")


def _parse(file):
    content = file.read_bytes()
    if len(content) > MOST_BYTES:
        file.refuse(f"XML of at most {MOST_BYTES} bytes", len(content))
    try:
        parser = ElementTree.XMLParser(target=_Builder())
        return ElementTree.fromstring(content, parser)
    # Python's codecs raise LookupError and ValueError for a bad encoding.
    except (ElementTree.ParseError, LookupError, ValueError) as error:
        text = f"expected XML in UTF-8; found {error}. Copy the file again."
        line, _ = getattr(error, "position", (None, None))
        return file.report(text, line)


def _number(file, root, path):
    text = root.findtext(path)
    if text is None or not re.fullmatch(r"\s*[1-9][0-9]{0,8}\s*", text):
        file.refuse("a positive integer", text, f"<{path}>", _ADVICE)
    return int(text)


def _box(file, element, place, width, height):
    # The coordinates are continuous. A bad box is reported.
    texts = [element.findtext(edge) for edge in EDGES]
    with contextlib.suppress(TypeError, ValueError):
        x_min, y_min, x_max, y_max = edges = [float(text) for text in texts]
        # The first pixel is 1 and the box includes the last pixel. Some files
        # count from 0.
        low = [max(x_min - 1, 0.0), max(y_min - 1, 0.0)]
        high = [min(x_max, float(width)), min(y_max, float(height))]
        if math.isfinite(sum(edges)) and low[0] < high[0] and low[1] < high[1]:
            return low + high
    expected = f"xmin, ymin, xmax, ymax >= 1 of a box in {width} x {height}"
    return file.refuse(expected, texts, place, "Correct the file.")
