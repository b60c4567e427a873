"""The flags of verbs that work on captions, or on photos."""

import dataclasses

from tbnets.data.captions import READERS, list_splits, usual_format
from tbnets.data.open import Data
from tbnets.data.photos import find_photos, left_out_lines, sort_files
from tbnets.data.sources import Sources
from tbnets.features import extraction
from tbnets.flags.flag import REQUIRED, Count, flag


@dataclasses.dataclass(frozen=True, kw_only=True)
class Captions:
    """Which captions are worked on."""

    captions: str = flag(
        REQUIRED, "File or folder of captions; may hold {split}."
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

    @property
    def where(self):
        """(format, path) of the captions."""
        form = self.captions_format or usual_format(self.captions)
        return form, self.captions

    def data(self, **more):
        """Returns the `Data` of the captions.

        Args:
            **more: fields of `Sources`; texts are `phrases` where they are
                named.
        """
        form, path = self.where
        found = Sources("", captions=path, captions_format=form, **more)
        return Data(found, of_phrases=bool(found.phrases))

    def names(self):
        """Returns the splits asked for."""
        return self.splits or list_splits(*self.where)


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
