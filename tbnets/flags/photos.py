"""The flags of tools that work on photos."""

from absl import flags

from tbnets.data.captions import READERS
from tbnets.data.format_guess import usual_format
from tbnets.data.photos import find_photos

flags.disclaim_key_flags()  # They are the tool's, and stand in its --help.


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
        None,
        list(READERS),
        "Format of --captions; docs/data_formats.md describes each. Not given, "
        "table for a .csv, .tsv or .jsonl, else karpathy.",
    )
    splits = flags.DEFINE_list(
        "splits", None, "Splits of --captions to work on; by default all."
    )

    def find():
        path = captions_path.value or ""
        format = captions_format.value or usual_format(path)
        return find_photos(images.value, format, path, splits.value)

    return find
