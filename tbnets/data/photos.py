"""Finds all photos in a folder, or those that a caption file or list names."""

import dataclasses
import os
import pathlib
import re
import unicodedata

import numpy as np

from tbnets.checks import rows_of
from tbnets.data import archives
from tbnets.data.archives import (
    PHOTO_SUFFIXES,
    is_left_out,
    is_photo_name,
    walk_files,
)
from tbnets.errors import MissingFileError
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
    `count` is the number of files, including the photos.
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
    are then their relative paths, or the ids of `archives.photos_inside`.
    """
    if not captions:
        return _all_photos(folder)
    folder, photos = archives.photo_root(folder), {}
    captions = dataclasses.replace(captions, images=folder, lists="")
    for split in splits or captions.splits():
        records = captions.read(split)
        for key, name in zip(records.image_ids, records.names):
            photos.setdefault(key, folder / name)
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


class PhotoNames:
    """Names of photos, which can be found without their folder and suffix.

    A name fits a photo if they are equal without folder and suffix. If both
    have folders, the folders must be equal, too. Unicode normal forms are
    equivalent, and so are slashes and backslashes.

    Args:
        names: the names of the photos.
        have_numbers: whether the number with which a Flickr name starts fits,
            too: `36979` fits `36979_9c0b.jpg`.
    """

    def __init__(self, names, have_numbers=False):
        self._names, self._by_stem = dict.fromkeys(names), {}
        for name in self._names:
            stem = stem_of(_composed(name))
            match = have_numbers and _FLICKR_NAME.fullmatch(stem)
            for key in (stem, match[1]) if match else (stem,):
                self._by_stem.setdefault(key, []).append(name)

    def __contains__(self, name):
        return name in self._names

    def find(self, name):
        """Returns a list of the photos that a name fits.

        A photo with exactly this name is preferred, and then photos with this
        suffix.
        """
        if name in self._names:
            return [name]
        path = _composed(name)
        fits = self._by_stem.get(stem_of(path), ())
        fits = [photo for photo in fits if _has_folder_of(photo, path)]
        last = _parts(path)[-1]
        return [x for x in fits if _parts(_composed(x))[-1] == last] or fits


def _composed(name):
    return unicodedata.normalize("NFC", name)


def _parts(name):
    # Tables of Windows have backslashes.
    return name.replace("\\", "/").split("/")


def stem_of(name):
    """Returns a file name without its folder and the suffix of a photo."""
    last = _parts(name)[-1]
    return os.path.splitext(last)[0] if is_photo_name(last) else last


def _has_folder_of(photo, name):
    folders = (_parts(x)[-2::-1] for x in (_composed(photo), name))
    return all(one == other for one, other in zip(*folders))


MATCHED = "Images are matched by name without folder and extension."


def match_names(folder, names):
    """Returns a dict from image names without a photo to photos that fit.

    The dict contains only names that fit a single photo (`PhotoNames`), and no
    photo twice.
    """
    folder, names = archives.photo_root(folder), dict.fromkeys(names)
    missing = [x for x in names if not archives.is_file(folder / x)]
    if not missing or not folder.exists():
        return {}
    photos = [name for name, _ in walk_files(folder) if is_photo_name(name)]
    if not photos:  # Archives beside photos may hold anything.
        photos = [path for _, path in archives.photos_inside(folder)]
    photos, fits = PhotoNames(name for name in photos if name not in names), {}
    for name in missing:
        if len(found := photos.find(name)) == 1:
            fits.setdefault(found[0], []).append(name)
    return {names[0]: photo for photo, names in fits.items() if not names[1:]}


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


def list_files(folder):
    """Returns the sorted relative paths of the files below a folder."""
    folder = pathlib.Path(folder)
    files = (path for path in folder.rglob("*") if path.is_file())
    return sorted(path.relative_to(folder).as_posix() for path in files)


def listed_rows(image_ids, path) -> np.ndarray:
    """Returns the rows of the photos that a list names, ascending, int64.

    A line contains a photo's id, its file name without folder or suffix, or the
    number with which a Flickr name starts: `36979` refers to `36979_9c0b.jpg`.
    Lines that match no photo are ignored. Raises ValueError if no line matches,
    or if a line matches several photos.
    """
    ids = listed_names(CheckedFile(path), image_ids)
    return np.sort(rows_of(ids, image_ids))


def listed_names(file, names, may_lack=True):
    """Returns the `names` that a list contains, in the order of the list.

    `file` is the `CheckedFile` of the list. A line that fits several names is a
    problem and, unless the names `may_lack` it, also a line that fits none.
    """
    photos, found = PhotoNames(names, have_numbers=True), {}
    lines = map(str.strip, file.lines(may_be_cp1252=True)[0])
    for line, name in enumerate(lines, 1):
        fits = photos.find(name)
        if len(fits) > 1 or name and not fits and not may_lack:
            advice = f"It matches {len(fits)} of {len(names)} images."
            if fits:
                advice += f" Write the full id, such as {fits[0]!r}."
            file.refuse("the name of one image", name, line, advice)
        else:
            found |= dict.fromkeys(fits)
    if not found:
        file.report(
            f"expected names of the {len(names)} images, such as "
            f"{[*names][:2]}; found none."
        )
    return [*found]
