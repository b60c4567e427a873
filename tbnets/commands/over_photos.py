"""What verbs share that make a store from photos: which, and where to."""

import dataclasses

from tbnets.commands.data_flags import Captions
from tbnets.data.photos import find_photos, left_out_lines, sort_files
from tbnets.features import extraction
from tbnets.flags.flag import REQUIRED, Count, flag


@dataclasses.dataclass(frozen=True, kw_only=True)
class Photos(Captions):
    """Which photos are worked on, and where the store goes."""

    images: str = flag(REQUIRED, "Folder of the photos.")
    captions: str = flag(
        "",
        "Captions whose images are wanted, and which tell their splits; "
        "without, all photos below --images, each under its path as id.",
    )
    output: str = flag(REQUIRED, "Folder of the store to write.")
    shard_images: Count = flag(
        extraction.SHARD_IMAGES,
        "Photos a shard: a kill costs no more than this.",
    )

    def find(self):
        """Returns what `find_photos` does by these flags; tells of the rest."""
        if not self.captions:
            _, others = sort_files(self.images)
            for line in left_out_lines({}, others, len(others))[:1]:
                print(line)
        return find_photos(self.images, *self.where, self.splits)
