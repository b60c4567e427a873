"""The flags of the tools that work on photos; see `data.photos`."""

import dataclasses

from absl import flags

from tbnets.data import captions
from tbnets.data.photos import find_photos

flags.disclaim_key_flags()  # They are the tool's, and stand in its --help.


@dataclasses.dataclass(frozen=True)
class PhotoFlags:
    """The flags that tell a tool its photos; see `define_photo_flags`."""

    images: flags.FlagHolder
    captions: flags.FlagHolder
    captions_format: flags.FlagHolder
    splits: flags.FlagHolder

    def find(self):
        """Returns what `find_photos` does by the values of the flags."""
        return find_photos(
            self.images.value,
            self.captions_format.value,
            self.captions.value,
            self.splits.value,
        )

    def read_captions(self, split):
        """Returns the `CaptionedImages` of a split of --captions."""
        return captions.read_captions(
            self.captions_format.value, self.captions.value, split
        )


def define_photo_flags() -> PhotoFlags:
    """Defines --images, --captions, --captions_format and --splits."""
    return PhotoFlags(
        images=flags.DEFINE_string(
            "images", None, "Folder of the photos.", required=True
        ),
        captions=flags.DEFINE_string(
            "captions",
            None,
            "Captions whose images are wanted, and which tell their splits; "
            "without, all photos below --images, each under its path as id.",
        ),
        captions_format=flags.DEFINE_enum(
            "captions_format",
            "karpathy",
            list(captions.READERS),
            "Format of --captions; docs/data_formats.md describes each.",
        ),
        splits=flags.DEFINE_list(
            "splits", None, "Splits of --captions to work on; by default all."
        ),
    )
