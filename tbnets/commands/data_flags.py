"""The flags of verbs that work on captions."""

import dataclasses

from tbnets.data.captions import READERS, list_splits, usual_format
from tbnets.data.open import Data
from tbnets.data.sources import Sources
from tbnets.flags.flag import REQUIRED, flag


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
