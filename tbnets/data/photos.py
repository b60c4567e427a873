"""Which photos a tool works on: (id, path) of each, in a fixed order."""

import os
import pathlib
import unicodedata

from tbnets.data import captions
from tbnets.images import PHOTO_SUFFIXES, list_photos


def find_photos(folder, captions_format=None, captions_path="", splits=None):
    """Finds photos and their ids.

    Args:
        folder: folder of the photos.
        captions_format: key of `captions.READERS`.
        captions_path: captions whose images are wanted, under the ids they
            have there; "" for all photos below the folder, each under its
            path from there.
        splits: names of splits of the captions; None for all.

    Returns:
        list of (id, `pathlib.Path`), each id once. A photo of the captions
        need not exist.

    Raises:
        FileNotFoundError: the folder holds no photos, or there are no
            captions.
        ValueError: the captions can not be read.
    """
    folder = pathlib.Path(folder)
    if not captions_path:
        paths = list_photos(folder)
        return [(path.relative_to(folder).as_posix(), path) for path in paths]
    where = (captions_format, captions_path)
    photos = {}
    for split in splits or captions.list_splits(*where):
        records = captions.read_captions(*where, split)
        for row, key in enumerate(records.image_ids):
            photos.setdefault(key, folder / records.file_name(row))
    return list(photos.items())


def find_photo(folder, image_id):
    """Returns the path of an image's photo inside a folder, or None.

    The id must not lead out of the folder; a link that stands there may.
    """
    root = pathlib.Path(os.path.abspath(folder))
    for suffix in ("", *PHOTO_SUFFIXES):
        path = pathlib.Path(os.path.abspath(root / f"{image_id}{suffix}"))
        if path.is_relative_to(root) and path.is_file():
            return path
    return None


def stem_of(name):
    """Returns the name of a file without its folder and suffix."""
    return os.path.splitext(os.path.basename(name))[0]


def list_files(folder):
    """Returns the paths of all files below a folder, from there, sorted."""
    folder = pathlib.Path(folder)
    return sorted(
        path.relative_to(folder).as_posix()
        for path in folder.rglob("*")
        if path.is_file()
    )


def likely_name(name, files):
    """Finds the file that a name is probably meant to be.

    Folders and suffix, slashes, upper and lower case and the code of accents
    may differ.

    Args:
        name: as somebody wrote it.
        files: paths of the files that there are, with slashes.

    Returns:
        The path; None where there is no such file.
    """
    wanted = _bare(name)
    return next((path for path in files if _bare(path) == wanted), None)


def _bare(name):
    stem = stem_of(name.replace("\\", "/"))
    return unicodedata.normalize("NFC", stem).casefold()
