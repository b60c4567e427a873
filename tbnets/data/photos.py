"""Finds all photos in a folder, or those that a caption file or list names."""

import dataclasses
import os
import pathlib
import re
import unicodedata

import numpy as np

from tbnets.data import archives
from tbnets.data.archives import (
    PHOTO_SUFFIXES,
    is_left_out,
    is_photo_name,
    walk_files,
)
from tbnets.data.splits import SPLIT_FIELD, fill_split
from tbnets.errors import InputError, MissingFileError
from tbnets.files import CheckedFile, listed, readable

MOST_NAMED = 10
_FLICKR_NAME = re.compile(r"([0-9]+)_[0-9a-f]+")


def list_photos(folder):
    """Returns the sorted paths of the photos below a folder.

    Photos are recognised by their suffixes. A broken link is listed, so that it
    is reported as missing. Links to folders are skipped, and so are the names
    in `archives.is_left_out`. Raises OSError if a subfolder cannot be listed.
    """
    return [pathlib.Path(entry) for entry in sort_files(folder)[0].values()]


def is_listed(path, folder):
    """Returns whether `list_photos` would list `path` if the file existed."""
    path, folder = (pathlib.Path(os.path.realpath(x)) for x in (path, folder))
    below = path.is_relative_to(folder) and path.relative_to(folder).parts
    if not below or not is_photo_name(below[-1]):
        return False
    return not any(map(is_left_out, below))


def sort_files(folder):
    """Separates the photos below a folder from other files.

    Names for which `archives.is_left_out` is true are in neither result. Raises
    FileNotFoundError if there is no photo, and OSError if a subfolder cannot be
    listed.

    Returns (photos, other_files). `photos` is a sorted dict that maps the
    relative path of each photo, with slashes, to its `os.DirEntry`.
    `other_files` is a list of `os.DirEntry`s.
    """
    photos, other_files = {}, []
    for name, entry in walk_files(folder):
        # A system call takes time, and only links need it.
        is_link = entry.is_symlink()
        is_file = os.path.isfile(entry) if is_link else entry.is_file()
        if is_photo_name(entry.name):
            if is_file or not os.path.exists(entry):
                photos[name] = entry
        elif is_file:
            other_files.append(entry)
    if not photos:
        names = listed([entry.name for entry in other_files], MOST_NAMED)
        contents = f", only {names}" if other_files else ""
        raise MissingFileError(
            "images",
            f"be a folder of {', '.join(PHOTO_SUFFIXES)} files",
            f"images={folder}, which has no photo{contents}",
        )
    return photos, other_files


def left_out_lines(broken, other_files, count):
    """Returns lines of text that list the skipped files, with reasons.

    `broken` maps each broken photo's path to a verb phrase such as "is empty".
    `count` is the number of all files, including the photos.
    """
    lines = [f"left out: {path}, which {why}" for path, why in broken.items()]
    if omitted := lines[MOST_NAMED:]:
        lines = [*lines[:MOST_NAMED], f"left out: {len(omitted)} more files"]
    if other_files:
        names = listed([path.name for path in other_files], MOST_NAMED)
        lines.append(f"left out: {names}, without the extension of a photo")
    if num_left_out := len(broken) + len(other_files):
        lines.append(f"{num_left_out} of {count} files left out")
    return [readable(line) for line in lines]


def find_photos(folder, captions=None, splits=None):
    """Returns a list with a pair (unique id, `pathlib.Path`) for each photo.

    If `captions` is a `CaptionSource`, the list contains the photos that it
    names for `splits` (all splits if None), even if the photos do not exist. If
    `captions` is None, the list contains all photos below the folder. Their ids
    are then their relative paths, or those of `archives.photos_inside`.
    """
    if not captions:
        return _all_photos(folder)
    folder = archives.photo_root(folder)
    matches = match_names(folder, captions)
    photos = {}
    for split in splits or captions.splits():
        records = captions.read(split)
        for key, name in zip(records.image_ids, records.names):
            photos.setdefault(key, folder / matches.get(name, name))
    return list(photos.items())


def _all_photos(folder):
    root = archives.photo_root(folder)
    try:
        return [(name, root / name) for name in sort_files(root)[0]]
    except MissingFileError:
        inside = [*archives.photos_inside(folder)]
        if not inside:
            raise
    return [(key, root / path) for key, path in inside]


MATCHED = "Images are matched by name without folder and extension."


def match_names(folder, captions):
    """Returns a dict from image names without a photo to photos that fit.

    A photo fits if its name equals the image name without folder and extension.
    If both names contain a folder, the folders must be equal, too. Names that
    differ only in their Unicode normal form are equal. The dict contains only
    names that a single photo fits, and no photo twice. `captions` is a
    `CaptionSource`.
    """
    folder, names = archives.photo_root(folder), {}
    for split in captions.splits():
        records = captions.read(split, problems=[])
        names |= dict.fromkeys(records.names)
    missing = [x for x in names if not archives.is_file(folder / x)]
    if not missing or not archives.is_folder(folder):
        return {}
    photos = [name for name, _ in walk_files(folder) if is_photo_name(name)]
    if not photos:  # Archives beside photos may hold anything.
        photos = [path for _, path in archives.photos_inside(folder)]
    by_stem = {}
    for name in photos:
        if name not in names:
            by_stem.setdefault(stem_of(_composed(name)), []).append(name)
    fits = {}
    for name in missing:
        # Tables of Windows have backslashes.
        path = _composed(name).replace("\\", "/")
        last = os.path.basename(path)
        stem = stem_of(last) if is_photo_name(last) else last
        photos = [x for x in by_stem.get(stem, ()) if _has_folder_of(x, path)]
        same = [x for x in photos if os.path.basename(_composed(x)) == last]
        if len(best := same or photos) == 1:
            fits.setdefault(best[0], []).append(name)
    return {names[0]: photo for photo, names in fits.items() if not names[1:]}


def with_matches(records, matches):
    """Returns `records` with the file names found by `match_names`."""
    names = [matches.get(name, name) for name in records.names]
    return dataclasses.replace(records, file_names=names)


def _has_folder_of(photo, name):
    folders = (x.split("/")[-2::-1] for x in (_composed(photo), name))
    return all(one == other for one, other in zip(*folders))


def find_photo(folder, image_id):
    """Returns the path of an image's photo in a folder, or None.

    The id may lack the suffix, or have another Unicode normal form than the
    file. It cannot refer to a file outside the folder, but a link can.
    """
    root = pathlib.Path(os.path.abspath(folder))
    forms = (unicodedata.normalize(form, image_id) for form in ("NFC", "NFD"))
    for name in dict.fromkeys([image_id, *forms]):
        for suffix in ("", *PHOTO_SUFFIXES):
            path = pathlib.Path(os.path.abspath(root / f"{name}{suffix}"))
            if path.is_relative_to(root) and archives.is_file(path):
                return path
    return None


def _composed(name):
    return unicodedata.normalize("NFC", name)


def stem_of(name):
    """Returns a file name without its folder and suffix."""
    return os.path.splitext(os.path.basename(name))[0]


def list_files(folder):
    """Returns the sorted relative paths of the files below a folder."""
    folder = pathlib.Path(folder)
    files = (path for path in folder.rglob("*") if path.is_file())
    return sorted(path.relative_to(folder).as_posix() for path in files)


def likely_name(name, files):
    """Returns the path in `files` that a misspelled name probably refers to.

    The names may differ in folders, suffix, slashes, case, Unicode form and
    outer whitespace. Returns None if no path is similar.
    """
    stem = _bare(name)
    return next((path for path in files if _bare(path) == stem), None)


def _bare(name):
    stem = stem_of(name.replace("\\", "/"))
    return _composed(stem).casefold().strip()


def listed_rows(image_ids, path) -> np.ndarray:
    """Returns the rows of the photos that a list names, ascending, int64.

    A line contains a photo's id, its file name without folder or suffix, or the
    number with which a Flickr name starts: `36979` refers to `36979_9c0b.jpg`.
    Lines that match no photo are ignored. Raises ValueError if no line matches,
    or if a line matches several photos.
    """
    file = CheckedFile(path)
    lines = enumerate(file.lines(may_be_cp1252=True)[0], 1)
    listed = {name.strip(): line for line, name in lines}
    listed.pop("", None)
    row_of_id = {key: row for row, key in enumerate(image_ids)}
    rows_of_name = {}
    for key, row in row_of_id.items():
        whole = _composed(key)
        flickr = _FLICKR_NAME.fullmatch(stem_of(key))
        numbers = flickr.groups() if flickr else ()
        for name in {whole, stem_of(whole), *numbers}:
            rows_of_name.setdefault(name, []).append(row)
    rows = set()
    for name, line in listed.items():
        forms = _composed(name), stem_of(_composed(name))
        meant = next(filter(None, map(rows_of_name.get, forms)), [])
        if name in row_of_id:
            meant = [row_of_id[name]]
        if len(meant) > 1:
            examples = " and ".join(repr(image_ids[row]) for row in meant[:2])
            advice = f"It matches {examples}. Write the full id."
            file.refuse("the name of one photo", name, line, advice)
        rows.update(meant)
    if not rows:
        file.report(
            f"expected ids of the {len(image_ids)} photos, such as "
            f"{[*image_ids][:2]}; found none in {len(listed)} lines."
        )
    return np.array(sorted(rows), np.int64)


def read_listed(captions, lists, split):
    """Reads the captions of the images in the list of a split.

    The splits of the `CaptionSource` `captions` are ignored. `lists` is a path
    that contains `{split}`.
    """
    if SPLIT_FIELD not in os.fspath(lists):
        expected = f"contain {SPLIT_FIELD}, so that splits differ"
        raise InputError("lists", expected, f"lists={lists}")
    chosen = fill_split(lists, split)
    images = captions.read("+".join(captions.splits()))
    images = images.subset(listed_rows(images.image_ids, chosen))
    return dataclasses.replace(images, split=split)
