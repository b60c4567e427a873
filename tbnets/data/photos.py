"""Which photos a tool works on: (id, path) of each, in a fixed order."""

import pathlib

from tbnets.data import captions
from tbnets.images import list_photos


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
