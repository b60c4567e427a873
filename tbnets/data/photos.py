"""Which photos a tool works on: (id, path) of each, in a fixed order."""

import pathlib

from absl import flags

from tbnets.data import captions
from tbnets.images import list_photos

flags.disclaim_key_flags()  # They are the tool's, and stand in its --help.


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


def define_photo_flags():
    """Defines --images, --captions, --captions_format and --splits.

    Returns:
        Function () -> what `find_photos` does by the values of these flags.
    """
    images = flags.DEFINE_string(
        "images", None, "Folder of the photos.", required=True
    )
    captions_path = flags.DEFINE_string(
        "captions",
        None,
        "Captions whose images are wanted, and which tell their splits; "
        "without, all photos below --images, each under its path as id.",
    )
    captions_format = flags.DEFINE_enum(
        "captions_format",
        "karpathy",
        list(captions.READERS),
        "Format of --captions; docs/data_formats.md describes each.",
    )
    splits = flags.DEFINE_list(
        "splits", None, "Splits of --captions to work on; by default all."
    )
    return lambda: find_photos(
        images.value, captions_format.value, captions_path.value, splits.value
    )
