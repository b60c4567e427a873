"""The flags of verbs that work on photos."""

import dataclasses

from tbnets.data.captions import READERS
from tbnets.data.format_guess import usual_format
from tbnets.data.photos import find_photos
from tbnets.flags.flag import REQUIRED, flag


@dataclasses.dataclass(frozen=True, kw_only=True)
class Photos:
    """Which photos are worked on."""

    images: str = flag(REQUIRED, "Folder of the photos.")
    captions: str = flag(
        "",
        "Captions whose images are wanted, and which tell their splits; "
        "without, all photos below --images, each under its path as id.",
    )
    captions_format: str | None = flag(
        None,
        "Format of --captions; docs/data_formats.md describes each. Not given, "
        "table for a .csv, .tsv or .jsonl, else karpathy.",
        choices=tuple(READERS),
    )
    splits: list[str] = flag(
        [], "Splits of --captions to work on; by default all."
    )

    def find(self):
        """Returns what `find_photos` does by these flags."""
        form = self.captions_format or usual_format(self.captions)
        return find_photos(self.images, form, self.captions, self.splits)
