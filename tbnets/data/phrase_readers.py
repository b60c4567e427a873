"""Readers of phrases and boxes -> one record for each image.

A reader takes (path, images, problems) and returns `ImagePhrases`: in the
order of `images`, a dict from the ids wanted to file names, or of all there
are, sorted by name, for None.
"""

import collections
import os
import pathlib
from typing import NamedTuple

from tbnets.checked_files import CheckedFile, ProblemError
from tbnets.data.entities import read_annotations
from tbnets.data.phrase_markup import NO_CHAIN, read_sentences
from tbnets.errors import MissingFileError

FOLDERS = {"Sentences": ".txt", "Annotations": ".xml"}


class ImagePhrases(NamedTuple):
    """An image, its captions with phrases, and the boxes of its chains.

    Args:
        image_id: str.
        file_name: of the photo, relative to an images folder.
        size: (width, height) that the boxes count in; (0, 0): the photo's.
        captions: list of `phrase_markup.MarkedCaption`.
        boxes: chain -> x_min, y_min, x_max, y_max.
        left_out: reason -> number of phrases without a box.
    """

    image_id: str
    file_name: str
    size: tuple
    captions: list
    boxes: dict
    left_out: collections.Counter


def read_entities(path, images, problems) -> list[ImagePhrases]:
    """Reads a folder of Flickr30K Entities: `Sentences` and `Annotations`."""
    root = pathlib.Path(path)
    stems = _stems(root)
    if images is None:
        wanted = [(stem, None, "") for stem in sorted(set().union(*stems))]
    else:
        file = CheckedFile(path)
        wanted = [
            (_stem(file.file_name(name, None)), key, name)
            for key, name in images.items()
        ]
    records = []
    for stem, key, name in wanted:
        if not _both(root, stem, stems, key, problems):
            continue
        try:
            records.append(_read_image(root, stem, key, name, problems))
        except ProblemError as error:
            if problems is None:
                raise
            problems.append(error.problem)
    return records


def _stems(root):
    """Returns the names without suffix of the files of both folders."""
    found = []
    for name, suffix in FOLDERS.items():
        folder = root / name
        if not folder.is_dir():
            raise MissingFileError(
                f"`path` must be a folder with {' and '.join(FOLDERS)}. "
                f"Received: path={root}, without a folder {name}. Name the "
                "folder of Flickr30K Entities, of scenes, or a .jsonl file."
            )
        found.append(
            {
                entry[: -len(suffix)]
                for entry in os.listdir(folder)
                if entry.endswith(suffix)
            }
        )
    return found


def _stem(name):
    """Returns a file name without its folder and suffix."""
    return os.path.splitext(os.path.basename(name))[0]


def _both(root, stem, stems, key, problems):
    """Tells whether an image has both files; reports which it has not."""
    here = [stem in names for names in stems]
    if all(here):
        return True
    paths = [root / name / (stem + end) for name, end in FOLDERS.items()]
    if not any(here):
        whose = f"of the image {key!r}"
        found, missing = "none", paths[1]
    else:
        whose = f"beside {paths[here.index(True)]}"
        found, missing = "no such file", paths[here.index(False)]
    CheckedFile(missing, problems).report(
        f"expected this file {whose}; found {found}. Copy both again, or "
        "leave the image out."
    )
    return False


def _read_image(root, stem, key, name, problems):
    """Returns the record of one image."""
    captions = read_sentences(root / "Sentences" / f"{stem}.txt", problems)
    path = root / "Annotations" / f"{stem}.xml"
    annotation = read_annotations(path, problems)
    if key is None:
        # What the annotation calls the photo, if it is a file of that name.
        named = annotation.file_name
        name = named if _stem(named) == stem else stem
        key = name = CheckedFile(path).file_name(name, None)
    boxes = annotation.enclosing_boxes()
    left_out = collections.Counter(
        _reason(phrase.chain, annotation)
        for caption in captions
        for phrase in caption.phrases
        if phrase.chain not in boxes
    )
    size = (annotation.width, annotation.height)
    return ImagePhrases(key, name, size, captions, boxes, left_out)


def _reason(chain, annotation):
    """Returns why a chain has no box.

    There is nothing to see, it is all of the photo, it is not visible, or
    the annotation says nothing of it.
    """
    if chain == NO_CHAIN:
        return "notvisual"
    if chain in annotation.scenes:
        return "scene"
    return "nobndbox" if chain in annotation.unseen else "unknown"
